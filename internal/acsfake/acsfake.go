// Package acsfake emulates the part of the Alibaba Cloud Container Service API that
// gpuplan uses, with state: pools grow and shrink through tasks that take time, nodes
// appear when they have registered, add-on configurations are merged, and the service's
// known peculiarities are kept. What no public source tells is decided in
// assumptions.go, each with a name, so that one run against a real account can confirm it.
//
// The emulator shares no type with the client (package acs): a field that the client
// misspells is a field that the emulator does not see.
package acsfake

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Options configure an emulator.
type Options struct {
	// ClusterID is the only cluster, "c" and letters or digits by convention.
	ClusterID string
	// ClusterName is its name, "" for the ID.
	ClusterName string
	// Region is the cluster's region; node names begin with it: "cn-local.10.0.1.2".
	Region string
	// KubernetesVersion is what the cluster reports, "1.36.3-aliyun.1".
	KubernetesVersion string
	// ClusterType is the cluster's type, "" for that of managed clusters. Others have no specification.
	ClusterType string
	// ClusterSpec is the specification of a managed cluster, "" for that of a Pro cluster.
	ClusterSpec string
	// Kubeconfig is what users get to reach the cluster, "" where they get nothing. It does not end.
	Kubeconfig string
	// AccessKeyID and AccessKeySecret are the credentials that requests must be signed with.
	AccessKeyID, AccessKeySecret string
	// SecurityToken is what requests must carry besides, "" for an access key that is not temporary.
	SecurityToken string
	// TaskDuration is how long a task takes without the time that the Backend needs.
	TaskDuration time.Duration
	// Backend makes the nodes real; nil when they need not be.
	Backend Backend
	// Clock drives tasks and time stamps; nil is the real one.
	Clock Clock
	// State is where to go on from, nil for an empty cluster. Tasks that were running
	// start again.
	State *State
	// OnChange gets a copy of the state after every change, one call at a time.
	OnChange func(State)
	// Knobs are the failures to begin with; see [Server.SetKnobs].
	Knobs Knobs
	// Seed determines the random order of labels and taints in answers.
	Seed uint64
}

// Clock tells the time; k8s.io/utils/clock has a real and a manual one.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Server is the emulator, an [http.Handler]. It is safe for concurrent use.
type Server struct {
	opts  Options
	clock Clock
	mux   *http.ServeMux

	ctx   context.Context
	stop  context.CancelFunc
	tasks sync.WaitGroup

	notify sync.Mutex // held while OnChange runs

	mu      sync.Mutex // guards what follows
	state   State
	active  map[string]bool // targets with a task in progress
	nonces  map[string]time.Time
	closed  bool
	knobs   Knobs
	journal []Exchange
	random  *rand.Rand
}

// New returns an emulator; Close ends its tasks. It fails when the options lack the
// cluster, the region or the credentials, or the state is of another version.
func New(opts Options) (*Server, error) {
	if opts.ClusterID == "" || opts.Region == "" || opts.AccessKeyID == "" || opts.AccessKeySecret == "" {
		return nil, errors.New("the emulator needs a cluster ID, a region and an access key with its secret")
	}
	if opts.ClusterName == "" {
		opts.ClusterName = opts.ClusterID
	}
	s := &Server{
		opts:   opts,
		clock:  opts.Clock,
		active: map[string]bool{},
		nonces: map[string]time.Time{},
		knobs:  opts.Knobs,
		random: rand.New(rand.NewPCG(opts.Seed, 0)),
	}
	if s.clock == nil {
		s.clock = realClock{}
	}
	var err error
	if s.state, err = initialState(opts.State); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.mux = s.routes()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.state.Tasks {
		if t.State == taskRunning {
			s.startNext(t.Target)
		}
	}
	return s, nil
}

// Close stops the tasks in progress and waits for them; their state stays "running",
// so that an emulator that is made from it goes on with them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.tasks.Wait()
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /clusters/{cluster}", s.inCluster(s.describeCluster))
	mux.HandleFunc("GET /k8s/{cluster}/user_config", s.inCluster(s.userConfig))
	mux.HandleFunc("POST /clusters/{cluster}/nodepools", s.inCluster(s.createPool))
	mux.HandleFunc("GET /clusters/{cluster}/nodepools", s.inCluster(s.listPools))
	mux.HandleFunc("GET /clusters/{cluster}/nodepools/{pool}", s.inCluster(s.describePool))
	mux.HandleFunc("PUT /clusters/{cluster}/nodepools/{pool}", s.inCluster(s.modifyPool))
	mux.HandleFunc("PUT /clusters/{cluster}/nodepools/{pool}/node_config", s.inCluster(s.modifyNodeConfig))
	mux.HandleFunc("DELETE /clusters/{cluster}/nodepools/{pool}/nodes", s.inCluster(s.releaseNodes))
	mux.HandleFunc("DELETE /clusters/{cluster}/nodepools/{pool}", s.inCluster(s.deletePool))
	mux.HandleFunc("GET /clusters/{cluster}/nodes", s.inCluster(s.listNodes))
	mux.HandleFunc("POST /clusters/{cluster}/components/install", s.inCluster(s.installAddons))
	mux.HandleFunc("POST /clusters/{cluster}/components/upgrade", s.inCluster(s.upgradeAddons))
	mux.HandleFunc("POST /clusters/{cluster}/components/uninstall", s.inCluster(s.uninstallAddons))
	mux.HandleFunc("POST /clusters/{cluster}/components/{addon}/config", s.inCluster(s.modifyAddon))
	mux.HandleFunc("GET /clusters/{cluster}/components/{addon}/metadata", s.inCluster(s.describeAddon))
	mux.HandleFunc("GET /clusters/{cluster}/addon_instances", s.inCluster(s.listAddons))
	mux.HandleFunc("GET /clusters/{cluster}/addon_instances/{addon}", s.inCluster(s.getAddon))
	mux.HandleFunc("GET /addons/{addon}", s.handle(s.describeAddon))
	mux.HandleFunc("GET /tasks/{task}", s.handle(s.describeTask))
	mux.HandleFunc("/", s.handle(func(r *request) (any, error) {
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", "the emulator does not know %s %s", r.Method, r.URL.Path)
	}))
	return mux
}

// ServeHTTP answers one request. Requests with a wrong signature get the gateway's
// errors, unknown routes 501.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) describeCluster(*request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, p := range s.state.Pools {
		size += len(p.Nodes)
	}
	kind, spec := s.opts.ClusterType, ""
	if kind == "" {
		kind, spec = "ManagedKubernetes", cmp.Or(s.opts.ClusterSpec, "ack.pro.small")
	}
	return map[string]any{
		"cluster_id":      s.opts.ClusterID,
		"name":            s.opts.ClusterName,
		"cluster_type":    kind,
		"profile":         "Default",
		"cluster_spec":    spec,
		"region_id":       s.opts.Region,
		"state":           "running",
		"current_version": s.opts.KubernetesVersion,
		"vpc_id":          "vpc-local",
		"vswitch_id":      "vsw-local",
		"size":            size,
		// These two are JSON objects inside of strings, as in the service's answers.
		"master_url": "{}",
		"meta_data":  "{}",
		"tags":       []any{},
	}, nil
}

// The shortest and the longest time that a kubeconfig is for, in minutes.
const minMinutes, maxMinutes = 15, 4320

// userConfig is DescribeClusterUserKubeconfig.
func (s *Server) userConfig(r *request) (any, error) {
	minutes, err := strconv.Atoi(r.URL.Query().Get("TemporaryDurationMinutes"))
	if err != nil || minutes < minMinutes || minutes > maxMinutes {
		return nil, refuse(http.StatusBadRequest, "InvalidParameter", "TemporaryDurationMinutes must be from %d to %d.", minMinutes, maxMinutes)
	}
	if s.opts.Kubeconfig == "" {
		return nil, refuse(http.StatusForbidden, "ForbiddenQueryClusterNamespace", "The user has no access to cluster %s.", s.opts.ClusterID)
	}
	return map[string]any{"config": s.opts.Kubeconfig, "expiration": s.clock.Now().Add(time.Duration(minutes) * time.Minute).UTC().Format(time.RFC3339)}, nil
}
