package acsfake

import (
	"encoding/json"
	"fmt"
	"time"
)

// StateVersion is the version of the [State] that this code writes.
const StateVersion = 1

// State is everything that the emulator remembers, for a file.
type State struct {
	Version int            `json:"version"`
	Pools   []*PoolRecord  `json:"pools"`
	Addons  []*AddonRecord `json:"addons"`
	Tasks   []*TaskRecord  `json:"tasks"`
	// NextPool and NextTask number pools and tasks, from 1, and never go back.
	NextPool int `json:"nextPool"`
	NextTask int `json:"nextTask"`
}

// PoolRecord is one node pool. The blocks are kept as they came in.
type PoolRecord struct {
	ID string `json:"id"`
	// Number is the third part of the pool's node addresses, 10.0.<number>.<node>.
	Number           int            `json:"number"`
	Info             map[string]any `json:"nodepool_info"`
	ScalingGroup     map[string]any `json:"scaling_group"`
	KubernetesConfig map[string]any `json:"kubernetes_config"`
	AutoScaling      map[string]any `json:"auto_scaling"`
	Management       map[string]any `json:"management"`
	NodeConfig       map[string]any `json:"node_config,omitempty"`
	// State is initial, scaling, active, updating, removing_nodes, deleting or delete_failed.
	State string `json:"state"`
	// Problem is why the pool is not what it should be, "" when it is.
	Problem string `json:"problem,omitempty"`
	// Size is the number of nodes wanted.
	Size  int          `json:"size"`
	Nodes []NodeRecord `json:"nodes"`
	// NextNode numbers nodes, from 1.
	NextNode int       `json:"nextNode"`
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated"`
}

// NodeRecord is a registered node of a pool.
type NodeRecord struct {
	Name         string `json:"name"`
	InstanceID   string `json:"instanceID"`
	InstanceType string `json:"instanceType"`
	// Number is the node's number in the pool, from 1.
	Number int `json:"number"`
	// Labels and Taints are those that the node was given last.
	Labels  map[string]string `json:"labels"`
	Taints  []Taint           `json:"taints"`
	Created time.Time         `json:"created"`
}

// AddonRecord is an installed add-on.
type AddonRecord struct {
	Name    string         `json:"name"`
	Version string         `json:"version"`
	State   string         `json:"state"`
	Config  map[string]any `json:"config"`
	// Next is the version of an upgrade that is under way.
	Next string `json:"next,omitempty"`
}

// TaskRecord is one task, finished or not.
type TaskRecord struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Target is the pool or add-on that the task changes.
	Target string `json:"target"`
	// State is running, success, failed or fail.
	State   string    `json:"state"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Stages  []Stage   `json:"stages"`
	// Fault is why it failed.
	Fault *Fault `json:"fault,omitempty"`
	// UpdateNodes and Force are the options of the request.
	UpdateNodes bool `json:"updateNodes,omitempty"`
	Force       bool `json:"force,omitempty"`
	// Nodes are the names of the nodes that it removes.
	Nodes []string `json:"nodes,omitempty"`
}

// Stage is a step of a task.
type Stage struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Message string    `json:"message"`
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
}

// keptTasks is the number of finished tasks that are remembered.
const keptTasks = 100

// State returns a copy of the state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.clone()
}

func (st State) clone() State {
	raw, err := json.Marshal(st)
	if err != nil {
		panic("acsfake: state is not JSON: " + err.Error())
	}
	var copied State
	if err := json.Unmarshal(raw, &copied); err != nil {
		panic("acsfake: state is not JSON: " + err.Error())
	}
	return copied
}

func initialState(from *State) (State, error) {
	if from == nil {
		return State{Version: StateVersion, NextPool: 1, NextTask: 1, Addons: defaultAddons()}, nil
	}
	if from.Version != StateVersion {
		return State{}, fmt.Errorf("the emulator's state has version %d; this program reads version %d", from.Version, StateVersion)
	}
	st := from.clone()
	for _, a := range st.Addons {
		// What ended the update is gone with the process that ran it.
		if a.State == addonUpdating {
			a.State = addonActive
		}
	}
	return st, nil
}

// changed tells OnChange; the caller must not hold the lock.
func (s *Server) changed() {
	if s.opts.OnChange == nil {
		return
	}
	s.notify.Lock()
	defer s.notify.Unlock()
	s.opts.OnChange(s.State())
}

func (s *Server) pool(id string) *PoolRecord {
	for _, p := range s.state.Pools {
		if p.ID == id {
			return p
		}
	}
	return nil
}

func (s *Server) addon(name string) *AddonRecord {
	for _, a := range s.state.Addons {
		if a.Name == name {
			return a
		}
	}
	return nil
}

func (s *Server) task(id string) *TaskRecord {
	for _, t := range s.state.Tasks {
		if t.ID == id {
			return t
		}
	}
	return nil
}
