package acsfake

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Backend makes the emulator's nodes real. Tasks call it outside of requests, for one
// pool one call after the other. An error fails the task with its text.
type Backend interface {
	// EnsureNode creates a node and returns when it is registered; a node of that name
	// that exists is success.
	EnsureNode(ctx context.Context, node Node) error
	// UpdateNode writes labels and taints again; those of old that node lacks are removed.
	UpdateNode(ctx context.Context, old, node Node) error
	// DeleteNode drains and removes a node; one that is gone is success.
	DeleteNode(ctx context.Context, node Node) error
}

// Node is a node as the cloud hands it to Kubernetes.
type Node struct {
	// Name is "<region>.10.0.<pool number>.<node number>".
	Name             string
	PoolID, PoolName string
	InstanceID       string
	InstanceType     string
	// Index numbers the nodes of a pool from 1 in the order of their creation; numbers
	// of removed nodes are not used again.
	Index int
	// Mode is the value of the label ack.node.gpu.schedule, "" without one.
	Mode string
	// Labels are the pool's and those that the cloud sets itself.
	Labels  map[string]string
	Taints  []Taint
	Created time.Time
}

// Taint is a taint of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

type noBackend struct{}

func (noBackend) EnsureNode(context.Context, Node) error       { return nil }
func (noBackend) UpdateNode(context.Context, Node, Node) error { return nil }
func (noBackend) DeleteNode(context.Context, Node) error       { return nil }

func (s *Server) backend() Backend {
	if s.opts.Backend == nil {
		return noBackend{}
	}
	return s.opts.Backend
}

// Nodes returns all registered nodes as the Backend was given them last, by pool and number.
func (s *Server) Nodes() []Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nodes []Node
	for _, p := range s.state.Pools {
		for _, n := range p.Nodes {
			nodes = append(nodes, p.node(n))
		}
	}
	return nodes
}

// node is the record in the Backend's terms, sharing nothing with it.
func (p *PoolRecord) node(n NodeRecord) Node {
	return Node{
		Name: n.Name, PoolID: p.ID, PoolName: p.name(), InstanceID: n.InstanceID, InstanceType: n.InstanceType,
		Index: n.Number, Mode: n.Labels[contract.NodeModeLabel],
		Labels: maps.Clone(n.Labels), Taints: slices.Clone(n.Taints), Created: n.Created,
	}
}

// nextNode is the record of the node that a pool gets next. Its number is used up when
// the node has registered, so that a task that is started again makes the same node. It is of
// the first of the pool's types that is in stock; ok is false for none.
func (s *Server) nextNode(p *PoolRecord) (n NodeRecord, ok bool) {
	number, types := p.NextNode, p.instanceTypes()
	at := slices.IndexFunc(types, func(name string) bool { return !slices.Contains(s.knobs.OutOfStock, name) })
	if at < 0 {
		return NodeRecord{}, false
	}
	return NodeRecord{
		Name:         fmt.Sprintf("%s.10.0.%d.%d", s.opts.Region, p.Number, number),
		InstanceID:   "i-" + digest(20, p.ID, strconv.Itoa(number)),
		InstanceType: types[at],
		Number:       number,
		Labels:       s.nodeLabels(p, types[at]),
		Taints:       p.taints(),
		Created:      s.clock.Now().UTC(),
	}, true
}

// nodeLabels are a pool's labels and those that the cloud sets itself on a node of a type.
func (s *Server) nodeLabels(p *PoolRecord, instanceType string) map[string]string {
	labels := map[string]string{
		contract.ClusterIDLabel:    s.opts.ClusterID,
		contract.NodePoolIDLabel:   p.ID,
		contract.InstanceTypeLabel: instanceType,
	}
	if it, ok := catalog.Lookup(instanceType); ok {
		labels[contract.GPUModelLabel] = strings.ReplaceAll(it.GPUModel, " ", "-")
		labels[contract.GPUMemoryLabel] = strconv.FormatInt(it.GPUMemoryMiB, 10) + "MiB"
		labels[contract.GPUCountLabel] = strconv.Itoa(it.GPUs)
	}
	list, _ := p.KubernetesConfig["labels"].([]any)
	for _, l := range list {
		labels[text(l, "key")] = text(l, "value")
	}
	return labels
}

func (p *PoolRecord) taints() []Taint {
	list, _ := p.KubernetesConfig["taints"].([]any)
	taints := make([]Taint, 0, len(list))
	for _, t := range list {
		taints = append(taints, Taint{text(t, "key"), text(t, "value"), text(t, "effect")})
	}
	return taints
}

func (p *PoolRecord) name() string { return text(p.Info, "name") }

// instanceTypes are the types of the pool's nodes in the order in which they are tried.
func (p *PoolRecord) instanceTypes() (names []string) {
	list, _ := p.ScalingGroup["instance_types"].([]any)
	for _, entry := range list {
		if name, ok := entry.(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// text reads a string out of a JSON object.
func text(object any, key string) string {
	m, _ := object.(map[string]any)
	value, _ := m[key].(string)
	return value
}

// listNodes is DescribeClusterNodes. Nodes that have not registered are not listed.
func (s *Server) listNodes(r *request) (any, error) {
	query := r.URL.Query()
	page, err := positive(query.Get("pageNumber"), 1)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "InvalidParameter.PageNumber", "pageNumber: %v", err)
	}
	size, err := positive(query.Get("pageSize"), 10)
	if err != nil || size > 100 {
		return nil, refuse(http.StatusBadRequest, "InvalidParameter.PageSize", "pageSize must be 1 to 100")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := []map[string]any{}
	for _, p := range s.state.Pools {
		if id := query.Get("nodepool_id"); id != "" && id != p.ID {
			continue
		}
		if state := query.Get("state"); state != "" && state != "all" && state != "running" {
			continue
		}
		for _, n := range p.Nodes {
			nodes = append(nodes, map[string]any{
				"instance_id": n.InstanceID, "node_name": n.Name, "node_status": "Ready", "state": "running",
				"instance_type": n.InstanceType, "instance_type_family": "", "instance_role": "Worker",
				"ip_address":  []string{fmt.Sprintf("10.%d.%d.%d", (n.Number-1)/254, p.Number, (n.Number-1)%254+1)},
				"nodepool_id": p.ID, "source": "ess_attach", "spot_strategy": "NoSpot",
				"creation_time": n.Created.Format(time.RFC3339), "error_message": "",
			})
		}
	}
	total := len(nodes)
	from := min((page-1)*size, total)
	nodes = nodes[from:min(from+size, total)]
	return map[string]any{
		"nodes": nodes,
		"page":  map[string]any{"page_number": page, "page_size": size, "total_count": total},
	}, nil
}

func positive(value string, otherwise int) (int, error) {
	if value == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a positive number", value)
	}
	return n, nil
}
