package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// followClusters begins to follow the clusters of the hub, until ctx ends. Karmada serves them by an API server of its own, without a CRD
// that would say so.
func (c *controller) followClusters(ctx context.Context) (cache.InformerSynced, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(c.hub.Dynamic, clusters, metav1.NamespaceAll, 0, cache.Indexers{}, follow.Latest).Informer()
	if err := informer.SetTransform(follow.Trim); err != nil {
		return nil, fmt.Errorf("follow the clusters of the fleet: %w", err)
	}
	handled, err := informer.AddEventHandler(follow.On(func(o *unstructured.Unstructured) { c.setCluster(ctx, o) }, c.removeCluster))
	if err != nil {
		return nil, fmt.Errorf("follow the clusters of the fleet: %w", err)
	}
	go informer.RunWithContext(ctx)
	return handled.HasSynced, nil
}

// setCluster takes in a member cluster, and begins to follow one that is new, or reached in another way.
func (c *controller) setCluster(ctx context.Context, object *unstructured.Unstructured) {
	cluster, err := contract.FleetClusterOf(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot use a cluster")
		// It is there, and nobody knows whether it is reached: one that is not there is said to be lost.
		c.clusters[object.GetName()] = &contract.FleetCluster{ObjectMeta: metav1.ObjectMeta{Name: object.GetName()}}
		return
	}
	before := c.clusters[cluster.Name]
	c.clusters[cluster.Name] = cluster
	c.work.Add(memberPrefix + cluster.Name)
	if before == nil || !reflect.DeepEqual(counting(before), counting(cluster)) {
		c.work.Add(changePrefix + cluster.Name)
	}
	if cluster.DeletionTimestamp == nil {
		return
	}
	for key, b := range c.bindings { // they leave it
		if b.Cluster() == cluster.Name {
			c.work.Add(key)
		}
	}
}

// counting is what of a cluster decides which jobs may go there. Sums over its nodes, which change all the time, are none of it.
func counting(cluster *contract.FleetCluster) contract.FleetCluster {
	of := *cluster
	of.ObjectMeta = metav1.ObjectMeta{Labels: cluster.Labels, DeletionTimestamp: cluster.DeletionTimestamp}
	of.Status.NodeSummary, of.Status.ResourceSummary = nil, nil
	return of
}

func (c *controller) removeCluster(object *unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.clusters, object.GetName())
	c.work.Add(memberPrefix + object.GetName())
}

// connect follows a member cluster as the hub says that it is reached.
func (c *controller) connect(ctx context.Context, name string) error {
	c.mu.Lock()
	cluster, m := c.clusters[name], c.members[name]
	c.mu.Unlock()
	if cluster == nil {
		c.forget(name, m)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.unreached, name)
		c.retry() // who waits is told of the others alone
		return nil
	}
	config, access, err := c.access(ctx, cluster)
	c.mu.Lock()
	if delete(c.unreached, name); err != nil {
		c.unreached[name] = "it cannot be followed: " + err.Error()
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("member cluster %s: %w", name, err)
	}
	if m != nil && m.access == access {
		return nil
	}
	c.forget(name, m)
	m, err = followMember(ctx, c.id, name, access, config, followsDevices(cluster), func() { c.work.AddAfter(changePrefix+name, again) }, c.work.Add)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.unreached[name] = "it cannot be followed: " + err.Error()
		return err
	}
	c.members[name] = m
	return nil
}

func (c *controller) forget(name string, m *member) {
	if m == nil {
		return
	}
	m.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, name)
	for key, b := range c.bindings { // what the next picture of the cluster lacks
		if b.Cluster() == name {
			delete(c.sent, key)
			c.work.Add(key)
		}
	}
}

// access is how a member cluster is reached, and a digest of that and of what is followed there.
func (c *controller) access(ctx context.Context, cluster *contract.FleetCluster) (*rest.Config, string, error) {
	config, err := fleet.Access(ctx, c.hub, cluster)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %v %v", config.Host, config.BearerToken, config.CAData, config.Insecure, followsDevices(cluster)))
	return config, hex.EncodeToString(sum[:]), nil
}

// followsDevices reports whether a member cluster serves classes of devices, as its hub has found.
func followsDevices(cluster *contract.FleetCluster) bool {
	return cluster.Serves(clustercache.DeviceClassKind)
}
