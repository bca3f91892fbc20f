// Package fleetplan is where a plan sends the jobs of a fleet: by the capacity of pools in its member clusters, which travels through
// Terraform's graph, held against these clusters as they are. It decides as the scheduler of the fleet does.
package fleetplan

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
)

var clusterKind = schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Kind: contract.KarmadaClusterKind}

// Fleet is what one walk of Terraform's graph sees of a fleet, and what it has planned there. It is safe for concurrent use.
type Fleet struct {
	hub *kube.Client
	// applying tells whether the walk has begun to change things, owns by the labels of an object whether it belongs to the configuration.
	applying func() bool
	owns     func(labels map[string]string) bool

	// deciding is held while a job that starts is given its place.
	deciding sync.Mutex

	mu sync.Mutex
	// clusters are those of the hub, as a plan has seen them.
	clusters []*contract.FleetCluster
	members  map[string]*Member
	policies map[string]*Policy
	// listed are the policies of the hub by namespace, as far as the walk has asked.
	listed map[string][]unstructured.Unstructured
	jobs   map[string]*planned
	// visits are the jobs of which the walk has said what becomes of them, gone those that leave.
	visits, gone map[string]bool
	// next is closed by the next visit, nil when nobody waits.
	next chan struct{}
}

// Member is a member cluster as the walk reaches it.
type Member struct {
	Client *kube.Client
	Seen   *cluster.Cluster
}

// New returns a fleet at which nobody has looked yet.
func New(hub *kube.Client, applying func() bool, owns func(labels map[string]string) bool) *Fleet {
	return &Fleet{hub: hub, applying: applying, owns: owns,
		members: map[string]*Member{}, policies: map[string]*Policy{}, listed: map[string][]unstructured.Unstructured{}, jobs: map[string]*planned{}, visits: map[string]bool{}, gone: map[string]bool{}}
}

// Clusters are the member clusters of the hub in the natural order of their names, for a plan as it has seen them first. The error
// answers to [kube.ErrNotServed] where the cluster is no hub.
func (f *Fleet) Clusters(ctx context.Context) ([]*contract.FleetCluster, error) {
	f.mu.Lock()
	known := f.clusters
	f.mu.Unlock()
	if known != nil && !f.applying() {
		return known, nil
	}
	items, err := f.hub.List(ctx, clusterKind, "", "")
	if err != nil {
		return nil, fmt.Errorf("list the clusters of the fleet: %w", err)
	}
	all := make([]*contract.FleetCluster, len(items))
	for i := range items {
		if all[i], err = contract.FleetClusterOf(&items[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *contract.FleetCluster) int { return natural.Compare(a.Name, b.Name) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters = all
	return all, nil
}

// Member reaches a member cluster as its hub says.
func (f *Fleet) Member(ctx context.Context, of *contract.FleetCluster) (*Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[of.Name]; m != nil {
		return m, nil
	}
	config, err := fleet.Access(ctx, f.hub, of)
	if err != nil {
		return nil, fmt.Errorf("member cluster %s: %w", of.Name, err)
	}
	config.UserAgent, config.WarningHandler = f.hub.Config.UserAgent, rest.NoWarnings{}
	client, err := kube.New(config)
	if err != nil {
		return nil, fmt.Errorf("member cluster %s: %w", of.Name, err)
	}
	f.members[of.Name] = &Member{Client: client, Seen: cluster.New(client, f.applying)}
	return f.members[of.Name], nil
}

// MemberCalled reaches the member cluster of a name.
func (f *Fleet) MemberCalled(ctx context.Context, name string) (*Member, error) {
	all, err := f.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(c *contract.FleetCluster) bool { return c.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("the fleet has no cluster %q", name)
	}
	return f.Member(ctx, all[at])
}
