package acsfake

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	poolInitial      = "initial"
	poolScaling      = "scaling"
	poolActive       = "active"
	poolUpdating     = "updating"
	poolRemoving     = "removing_nodes"
	poolDeleting     = "deleting"
	poolDeleteFailed = "delete_failed"
)

// createPool is CreateClusterNodePool: the pool is there at once, its nodes come with
// the task, and no stock or no quota is an error of the task.
func (s *Server) createPool(r *request) (any, error) {
	body, err := parsePool(r.body)
	if err != nil {
		return nil, err
	}
	lost := s.use(&s.knobs.LoseCreateAnswers)
	s.mu.Lock()
	if err := s.checkNewPool(body); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	number := s.state.NextPool
	s.state.NextPool++
	now := s.clock.Now().UTC()
	blocks := withDefaults(body.blocks)
	p := &PoolRecord{
		ID:               "np" + digest(32, s.opts.ClusterID, "pool", strconv.Itoa(number)),
		Number:           number,
		Info:             blocks.Info,
		ScalingGroup:     masked(blocks.ScalingGroup),
		KubernetesConfig: blocks.KubernetesConfig,
		AutoScaling:      blocks.AutoScaling,
		Management:       blocks.Management,
		NodeConfig:       blocks.NodeConfig,
		State:            poolInitial,
		NextNode:         1,
		Created:          now,
		Updated:          now,
	}
	p.Size = body.size(0)
	s.state.Pools = append(s.state.Pools, p)
	answer := accepted(r, s.startTask(TaskRecord{Type: taskCreatePool, Target: p.ID}))
	s.mu.Unlock()
	s.changed()
	if lost {
		return nil, errLost
	}
	return answer, nil
}

// modifyPool is ModifyClusterNodePool. Labels and taints are recorded on the pool at
// once; nodes get them only with update_nodes.
func (s *Server) modifyPool(r *request) (any, error) {
	body, err := parsePool(r.body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	p, err := s.writable(r.PathValue("pool"))
	if err == nil {
		err = s.checkChange(p, body)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	p.merge(body.blocks)
	p.Size, p.Updated, p.Problem = body.size(p.Size), s.clock.Now().UTC(), ""
	answer := accepted(r, s.startTask(TaskRecord{Type: taskModifyPool, Target: p.ID, UpdateNodes: body.UpdateNodes}))
	s.mu.Unlock()
	s.changed()
	return answer, nil
}

// modifyNodeConfig is ModifyNodePoolNodeConfig: the kubelets of all nodes start again with the
// new configuration, which replaces the pool's whole one.
func (s *Server) modifyNodeConfig(r *request) (any, error) {
	var body struct {
		Kubelet *kubeletSettings `json:"kubelet_config"`
		Rolling *struct {
			MaxParallelism int `json:"max_parallelism"`
		} `json:"rolling_policy"`
	}
	var blocks struct {
		Kubelet map[string]any `json:"kubelet_config"`
	}
	if err := first(decode(r.body, &body), decode(r.body, &blocks)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	p, err := s.writable(r.PathValue("pool"))
	if err == nil && body.Kubelet != nil {
		err = body.Kubelet.check()
	}
	if err == nil && body.Rolling != nil && body.Rolling.MaxParallelism < 1 {
		err = invalid("RollingPolicy", "max_parallelism must be positive")
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	if blocks.Kubelet != nil {
		p.NodeConfig = map[string]any{"kubelet_configuration": blocks.Kubelet}
	}
	p.Updated, p.Problem = s.clock.Now().UTC(), ""
	answer := accepted(r, s.startTask(TaskRecord{Type: taskModifyNodeConfig, Target: p.ID}))
	s.mu.Unlock()
	s.changed()
	return answer, nil
}

// releaseNodes is RemoveNodePoolNodes, which drains and releases the nodes of the instances that it names.
func (s *Server) releaseNodes(r *request) (any, error) {
	var ids []string
	query := r.URL.Query()
	if err := json.Unmarshal([]byte(query.Get("instance_ids")), &ids); err != nil || len(ids) == 0 {
		return nil, invalid("InstanceIds", "instance_ids must be a JSON array of instance IDs")
	}
	if query.Get("drain_node") != "true" || query.Get("release_node") != "true" {
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", "the emulator drains and releases nodes that it removes")
	}
	s.mu.Lock()
	p, err := s.writable(r.PathValue("pool"))
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	var names []string
	for _, n := range p.Nodes {
		if slices.Contains(ids, n.InstanceID) {
			names = append(names, n.Name)
		}
	}
	if assumeRemovalLowersSize {
		p.Size -= len(names)
	}
	answer := accepted(r, s.startTask(TaskRecord{Type: taskRemoveNodes, Target: p.ID, Nodes: names}))
	s.mu.Unlock()
	s.changed()
	return answer, nil
}

// deletePool is DeleteClusterNodepool. That a pool still has nodes shows in the task.
func (s *Server) deletePool(r *request) (any, error) {
	s.mu.Lock()
	p, err := s.writable(r.PathValue("pool"))
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	p.State = poolDeleting
	answer := accepted(r, s.startTask(TaskRecord{Type: taskDeletePool, Target: p.ID, Force: r.URL.Query().Get("force") == "true"}))
	s.mu.Unlock()
	s.changed()
	return answer, nil
}

// writable returns a pool that takes changes; the caller holds the lock.
func (s *Server) writable(id string) (*PoolRecord, error) {
	p := s.pool(id)
	if p == nil {
		return nil, refuse(assumeNotFoundStatus, "ErrorNodePoolNotFound", "The specified node pool %s does not exist.", id)
	}
	if p.State == poolRemoving || assumeDeletingRefusesWrites && p.State == poolDeleting {
		return nil, refuse(http.StatusBadRequest, "InvalidNodePoolStatus.Forbidden", "The node pool %s is in state %s, which forbids the operation.", id, p.State)
	}
	return p, nil
}

// merge lays the blocks of a request over the pool's.
func (p *PoolRecord) merge(b poolBlocks) {
	keepAll := func(string) bool { return true }
	listsAnd := func(kept ...string) func(string) bool {
		return func(key string) bool {
			for _, k := range kept {
				if k == key {
					return true
				}
			}
			return !assumeAbsentScalarsReset
		}
	}
	p.Info = mergeBlock(p.Info, b.Info, keepAll)
	p.ScalingGroup = mergeBlock(p.ScalingGroup, masked(b.ScalingGroup), listsAnd("desired_size", "login_password", "key_pair", "ram_role_name"))
	p.KubernetesConfig = mergeBlock(p.KubernetesConfig, b.KubernetesConfig, listsAnd())
	p.AutoScaling = mergeBlock(p.AutoScaling, b.AutoScaling, listsAnd())
	p.Management = mergeBlock(p.Management, b.Management, listsAnd())
}

// mergeBlock returns the new block with what stays of the old one: nothing changes when
// the request has no such block; else lists and the keys that keep names stay.
func mergeBlock(old, sent map[string]any, keep func(key string) bool) map[string]any {
	if sent == nil {
		return old
	}
	merged := maps.Clone(sent)
	for key, value := range old {
		if _, present := sent[key]; present {
			continue
		}
		if _, list := value.([]any); list && assumeAbsentListsStay || keep(key) {
			merged[key] = value
		}
	}
	return merged
}

const mask = "******"

// masked hides the password, which the service never answers either.
func masked(scalingGroup map[string]any) map[string]any {
	if scalingGroup["login_password"] != nil {
		scalingGroup["login_password"] = mask
	}
	return scalingGroup
}

// listPools is DescribeClusterNodePools: not paged, filtered by NodepoolName.
func (s *Server) listPools(r *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pools := []any{}
	for _, p := range s.state.Pools {
		if name := r.URL.Query().Get("NodepoolName"); name == "" || name == p.name() {
			pools = append(pools, s.describe(p))
		}
	}
	return map[string]any{"nodepools": pools}, nil
}

// describePool is DescribeClusterNodePoolDetail.
func (s *Server) describePool(r *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pool(r.PathValue("pool"))
	if p == nil {
		return nil, refuse(assumeNotFoundStatus, "ErrorNodePoolNotFound", "The specified node pool %s does not exist.", r.PathValue("pool"))
	}
	return s.describe(p), nil
}

// describe is the answer for one pool, with labels and taints in random order; the
// caller holds the lock.
func (s *Server) describe(p *PoolRecord) map[string]any {
	info := maps.Clone(p.Info)
	info["nodepool_id"], info["region_id"], info["is_default"] = p.ID, s.opts.Region, false
	info["created"], info["updated"] = p.Created.Format(time.RFC3339), p.Updated.Format(time.RFC3339)

	group := maps.Clone(p.ScalingGroup)
	if group == nil {
		group = map[string]any{}
	}
	group["scaling_group_id"], group["ram_policy"] = "asg-"+p.ID[2:], ""
	if enabled, _ := p.AutoScaling["enable"].(bool); !enabled {
		group["desired_size"] = p.Size
	}
	kubernetes := maps.Clone(p.KubernetesConfig)
	for _, key := range []string{"labels", "taints"} {
		if list, ok := kubernetes[key].([]any); ok {
			kubernetes[key] = s.shuffled(list)
		}
	}
	return map[string]any{
		"nodepool_info": info, "scaling_group": group, "kubernetes_config": kubernetes,
		"auto_scaling": p.AutoScaling, "management": p.Management, "node_config": p.NodeConfig,
		"status": p.status(),
	}
}

func (s *Server) shuffled(list []any) []any {
	mixed := append([]any{}, list...)
	s.random.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return mixed
}

func (p *PoolRecord) status() map[string]any {
	registered := len(p.Nodes)
	initial, removing := 0, 0
	switch p.State {
	case poolScaling:
		initial = max(0, p.Size-registered)
	case poolRemoving:
		removing = max(0, registered-p.Size)
	case poolDeleting:
		removing = registered
	}
	conditions := []any{}
	if p.Problem != "" {
		conditions = append(conditions, map[string]any{
			"type": "Ready", "status": "False", "reason": "TaskFailed", "message": p.Problem,
			"last_transition_time": p.Updated.Format(time.RFC3339),
		})
	}
	return map[string]any{
		"state":       p.State,
		"total_nodes": registered + initial, "healthy_nodes": registered, "serving_nodes": registered,
		"initial_nodes": initial, "removing_nodes": removing, "failed_nodes": 0, "offline_nodes": 0,
		"conditions": conditions,
	}
}

// settle sets the pool's state after a task, which failed when fault is not nil.
func (p *PoolRecord) settle(taskType string, fault *Fault, now time.Time) {
	p.State, p.Problem, p.Updated = poolActive, "", now
	if fault == nil || fault.Hidden {
		return
	}
	p.Problem = fault.Code + ": " + fault.Message
	p.State = assumeStateAfterFailedGrowth
	if taskType == taskDeletePool {
		p.State = poolDeleteFailed
	}
}
