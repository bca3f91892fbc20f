// Package cluster keeps what the cluster has about the nodes that an agent serves, by
// watches, so that a quiet node costs no requests: the Node, its GPUNode and the mirror of
// its topology.
package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// Kind is what of a node is followed.
type Kind int

// The kinds that are followed.
const (
	Node Kind = iota
	GPUNode
	Mirror
	kinds
)

// MirrorNamespace is where arena looks for the mirror.
const MirrorNamespace = "kube-system"

// WatchSeconds is for how long one watch is asked for: each new one is a request.
const WatchSeconds = int64(3600)

var resources = [kinds]struct {
	resource  schema.GroupVersionResource
	namespace string
	prefix    string
	labels    string
}{
	Node:    {resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}},
	GPUNode: {resource: schema.GroupVersionResource{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Resource: contract.GPUNodeResource}},
	Mirror: {resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace: MirrorNamespace,
		prefix: contract.TopologyConfigMapPrefix, labels: contract.NameLabel + "=" + contract.NodeAgentName},
}

// Nodes is what the cluster has about nodes. Its methods may be called from different goroutines.
type Nodes struct {
	synced [kinds]cache.InformerSynced

	mu      sync.Mutex
	objects [kinds]map[string]*unstructured.Unstructured
	// ended are the objects that a watch has shown to be gone, the last one of each name.
	ended   [kinds]map[string]types.UID
	changed map[string]chan struct{}
	// followers are the channels of others that follow a node, beside that of Changed.
	followers map[string][]chan struct{}
}

// Start follows one node, or all when name is "", until ctx ends.
func Start(ctx context.Context, client dynamic.Interface, name string) (*Nodes, error) {
	n := &Nodes{changed: map[string]chan struct{}{}, followers: map[string][]chan struct{}{}}
	for kind := range kinds {
		n.objects[kind], n.ended[kind] = map[string]*unstructured.Unstructured{}, map[string]types.UID{}
		r := resources[kind]
		informer := dynamicinformer.NewFilteredDynamicInformer(client, r.resource, r.namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
			follow.Latest(options)
			options.LabelSelector = r.labels
			if name != "" {
				options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, r.prefix+name).String()
			}
			if options.TimeoutSeconds != nil {
				*options.TimeoutSeconds = WatchSeconds
			}
		}).Informer()
		if err := informer.SetTransform(trim); err != nil {
			return nil, fmt.Errorf("follow %s: %w", r.resource.Resource, err)
		}
		registration, err := informer.AddEventHandler(follow.On(
			func(obj *unstructured.Unstructured) { n.take(kind, obj) },
			func(obj *unstructured.Unstructured) { n.end(kind, obj) },
		))
		if err != nil {
			return nil, fmt.Errorf("follow %s: %w", r.resource.Resource, err)
		}
		n.synced[kind] = registration.HasSynced
		go informer.RunWithContext(ctx)
	}
	return n, nil
}

// trim drops what nobody reads: most of a Node changes often, and is large.
func trim(object any) (any, error) {
	obj, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	obj.SetManagedFields(nil)
	if obj.GetKind() != "Node" {
		return obj, nil
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	runtime, known, _ := unstructured.NestedString(obj.Object, runtimeVersion...)
	delete(obj.Object, "spec")
	delete(obj.Object, "status")
	conditions = slices.DeleteFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return !ok || condition["type"] != contract.GPUsReadyCondition && condition["type"] != contract.RDMAReadyCondition
	})
	if len(conditions) > 0 {
		obj.Object["status"] = map[string]any{"conditions": conditions}
	}
	if known {
		_ = unstructured.SetNestedField(obj.Object, runtime, runtimeVersion...) // the fields above it are objects
	}
	return obj, nil
}

// runtimeVersion is where a Node has the name and version of its container runtime.
var runtimeVersion = []string{"status", "nodeInfo", "containerRuntimeVersion"}

// Runtime returns the name and version of a node's container runtime, like "containerd://2.1.4"; "" when it is not known.
func (n *Nodes) Runtime(node string) string {
	obj := n.Get(Node, node)
	if obj == nil {
		return ""
	}
	version, _, _ := unstructured.NestedString(obj.Object, runtimeVersion...)
	return version
}

// Synced tells whether everything is known that the cluster has, and what is not.
func (n *Nodes) Synced() error {
	for kind, synced := range n.synced {
		if !synced() {
			return fmt.Errorf("the cluster has not listed its %s yet: does the API server answer, and is the CRD installed?", resources[kind].resource.Resource)
		}
	}
	return nil
}

// Get returns an object of a node, nil when the cluster has none. It must not be changed.
func (n *Nodes) Get(kind Kind, node string) *unstructured.Unstructured {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.objects[kind][node]
}

// Wrote takes in the API server's answer to a write, which the watch shows later. Who follows the node learns of it now: by then it
// is no news.
func (n *Nodes) Wrote(kind Kind, obj *unstructured.Unstructured) {
	trimmed, _ := trim(obj.DeepCopy()) // it never fails
	n.mu.Lock()
	defer n.mu.Unlock()
	node := nodeOf(kind, obj)
	if n.ended[kind][node] != obj.GetUID() && newer(obj, n.objects[kind][node]) {
		n.objects[kind][node], _ = trimmed.(*unstructured.Unstructured)
		tell(n.followers[node])
	}
}

// Deleted notes that the API server has deleted, or does not have, an object of a node.
func (n *Nodes) Deleted(kind Kind, node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if obj := n.objects[kind][node]; obj != nil {
		n.ended[kind][node] = obj.GetUID()
		delete(n.objects[kind], node)
	}
}

// Changed receives a value after an object of a node has changed in the cluster. It never closes.
func (n *Nodes) Changed(node string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.signal(node)
}

// Follow returns a channel of its own for another that follows a node: it receives values as that of Changed does, and after
// each write.
func (n *Nodes) Follow(node string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	follower := make(chan struct{}, 1)
	n.followers[node] = append(n.followers[node], follower)
	return follower
}

func (n *Nodes) signal(node string) chan struct{} {
	if n.changed[node] == nil {
		n.changed[node] = make(chan struct{}, 1)
	}
	return n.changed[node]
}

func (n *Nodes) take(kind Kind, obj *unstructured.Unstructured) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := nodeOf(kind, obj)
	if n.ended[kind][node] == obj.GetUID() || !newer(obj, n.objects[kind][node]) {
		return
	}
	before := n.objects[kind][node]
	n.objects[kind][node] = obj
	if kind == Node && before != nil && sameNode(before, obj) {
		return // a kubelet's report
	}
	n.notify(node)
}

func (n *Nodes) end(kind Kind, obj *unstructured.Unstructured) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := nodeOf(kind, obj)
	if present := n.objects[kind][node]; present != nil && present.GetUID() == obj.GetUID() {
		delete(n.objects[kind], node)
	}
	n.ended[kind][node] = obj.GetUID()
	n.notify(node)
}

func (n *Nodes) notify(node string) {
	tell(append([]chan struct{}{n.signal(node)}, n.followers[node]...))
}

func tell(channels []chan struct{}) {
	for _, channel := range channels {
		select {
		case channel <- struct{}{}:
		default: // a change is already waiting to be looked at
		}
	}
}

func nodeOf(kind Kind, obj *unstructured.Unstructured) string {
	return obj.GetName()[min(len(resources[kind].prefix), len(obj.GetName())):]
}

// sameNode tells whether two states of a Node are the same for the agent.
func sameNode(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() && a.GetLabels()[contract.NodeModeLabel] == b.GetLabels()[contract.NodeModeLabel]
}

// newer tells whether an object is a later state than another, or another object.
func newer(obj, than *unstructured.Unstructured) bool {
	if than == nil || than.GetUID() != obj.GetUID() {
		return true
	}
	a, errA := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	b, errB := strconv.ParseUint(than.GetResourceVersion(), 10, 64)
	return errA != nil || errB != nil || a > b
}
