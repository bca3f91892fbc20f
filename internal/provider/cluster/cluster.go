// Package cluster is what the provider sees of the Kubernetes cluster during one walk
// of Terraform's graph. All resources of a walk look at one snapshot, so that they
// agree with each other and each kind is listed once, however many they are. Once the
// walk changes things, whoever looks sees the cluster as it is then, and those who look
// at a time look together.
package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Cluster is safe for concurrent use.
type Cluster struct {
	client   *kube.Client
	changing func() bool

	mu   sync.Mutex
	seen bool
	// first is what the first look showed, or why it failed.
	first *Snapshot
	err   error

	// latest is what was seen last while things change, or why it could not be, in a look that
	// began at the time taken.
	latestMu  sync.Mutex
	latest    *Snapshot
	latestErr error
	taken     time.Time

	// classes are the answers about StorageClasses that the walk has asked for by name.
	classesMu sync.Mutex
	classes   map[string]classAnswer

	// uid is what tells the cluster from others, once it was asked for.
	uidMu    sync.Mutex
	uid      types.UID
	uidAsked bool
}

type classAnswer struct {
	class *storagev1.StorageClass
	err   error
}

// New returns a cluster that nobody has looked at yet. changing tells whether the walk
// has begun to change things.
func New(client *kube.Client, changing func() bool) *Cluster {
	return &Cluster{client: client, changing: changing, classes: map[string]classAnswer{}}
}

// Snapshot returns the cluster as the walk found it, or as it is now once the walk
// changes things. Everybody gets the same error when the cluster cannot be listed.
func (c *Cluster) Snapshot(ctx context.Context) (*Snapshot, error) {
	if c.changing() {
		return c.since(ctx, time.Now())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen {
		return c.first, c.err
	}
	snapshot, err := read(ctx, c.client)
	if ctx.Err() != nil {
		return nil, err // it says nothing about the cluster
	}
	c.seen, c.first, c.err = true, snapshot, err
	return snapshot, err
}

// Recent returns the cluster as it was at most so long ago, but after what was told by [Cluster.Changed],
// for many who look while things change and need not see what others have just begun.
func (c *Cluster) Recent(ctx context.Context, age time.Duration) (*Snapshot, error) {
	return c.since(ctx, time.Now().Add(-age))
}

// Changed makes the next look a new one: who asks from now on must see what has gone, or has become
// something else.
func (c *Cluster) Changed() {
	c.latestMu.Lock()
	defer c.latestMu.Unlock()
	c.taken = time.Time{}
}

// since returns what a look has shown that began after a time. Those who ask while another
// looks share the next look.
func (c *Cluster) since(ctx context.Context, earliest time.Time) (*Snapshot, error) {
	c.latestMu.Lock()
	defer c.latestMu.Unlock()
	if c.taken.After(earliest) {
		return c.latest, c.latestErr
	}
	taken := time.Now()
	snapshot, err := read(ctx, c.client)
	if ctx.Err() != nil {
		return nil, err // it says nothing about the cluster
	}
	c.latest, c.latestErr, c.taken = snapshot, err, taken
	return snapshot, err
}

// StorageClass returns a class as the walk sees it. One that is not in the snapshot, because it is newer or the user may
// not list them, is asked for by name, once unless it is not there.
func (c *Cluster) StorageClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if snapshot, err := c.Snapshot(ctx); err == nil {
		for i := range snapshot.StorageClasses {
			if class := &snapshot.StorageClasses[i]; class.Name == name {
				return class, nil
			}
		}
	}
	c.classesMu.Lock()
	defer c.classesMu.Unlock()
	if known, ok := c.classes[name]; ok {
		return known.class, known.err
	}
	class, err := c.client.Typed.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	if ctx.Err() == nil && !kube.IsNotFound(err) { // who asks next may find it
		c.classes[name] = classAnswer{class, err}
	}
	return class, err
}

// UID tells the cluster from others, also from one that was made again under its address: it is that of the namespace kube-system,
// "" where that cannot be read.
func (c *Cluster) UID(ctx context.Context) types.UID {
	c.uidMu.Lock()
	defer c.uidMu.Unlock()
	if c.uidAsked {
		return c.uid
	}
	namespace, err := c.client.Typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case err == nil:
		c.uid, c.uidAsked = namespace.UID, true
	case apierrors.IsForbidden(err) || kube.IsNotFound(err):
		c.uidAsked = true
	}
	return c.uid
}

// Pods returns the pods of a namespace ("" for all) that match. Who may not read all of the cluster may read these.
func (c *Cluster) Pods(ctx context.Context, namespace string, match labels.Selector) ([]*corev1.Pod, error) {
	if !c.changing() {
		switch snapshot, err := c.Snapshot(ctx); {
		case err == nil:
			return matching(snapshot.Pods, namespace, match), nil
		case namespace == "" || !apierrors.IsForbidden(err):
			return nil, err
		}
	}
	list, err := c.client.Typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: match.String()})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return matching(list.Items, namespace, match), nil
}

// Nodes returns the nodes that match.
func (c *Cluster) Nodes(ctx context.Context, match labels.Selector) ([]*corev1.Node, error) {
	if !c.changing() {
		snapshot, err := c.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		return matching(snapshot.Nodes, "", match), nil
	}
	list, err := c.client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: match.String()})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return matching(list.Items, "", match), nil
}

// matching points at the objects of a namespace ("" for all) that match.
func matching[T any, P interface {
	*T
	metav1.Object
}](objects []T, namespace string, match labels.Selector) []P {
	var found []P
	for i := range objects {
		o := P(&objects[i])
		if (namespace == "" || o.GetNamespace() == namespace) && match.Matches(labels.Set(o.GetLabels())) {
			found = append(found, o)
		}
	}
	return found
}

func read(ctx context.Context, client *kube.Client) (*Snapshot, error) {
	objects, err := clusterlist.Read(ctx, client)
	if err != nil {
		return nil, err
	}
	snapshot := newSnapshot(objects)
	alive, known, err := client.Alive(ctx, contract.SystemNamespace, contract.SchedulerName)
	snapshot.NoScheduler = err == nil && known && !alive
	return snapshot, nil
}
