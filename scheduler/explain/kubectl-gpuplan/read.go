package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// atOnce is how many clusters of a fleet are read at the same time.
const atOnce = 8

// cluster is one as it was read; its name is that in a fleet, "" outside of one.
type cluster struct {
	name     string
	snapshot *clusterstate.Snapshot
	around   explain.Around
}

// seen is what was read for one answer.
type seen struct {
	// namespace is the one that the user works in.
	namespace string
	// fleet means that the clusters are those of a fleet that were read, in the order of their names; all others have one.
	fleet    bool
	clusters []cluster
	// unsent are the jobs of a fleet that are in no cluster, unread says which clusters could not be read, and why.
	unsent []explain.Unsent
	unread []string
}

// read reads what the kubeconfig leads to: a cluster, or the clusters of a fleet.
func (a *asker) read(ctx context.Context) (*seen, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides)
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := kube.New(config)
	if err != nil {
		return nil, err
	}
	members, err := membersOf(ctx, client)
	if err != nil {
		return nil, err
	}
	s := &seen{namespace: namespace, fleet: len(members) > 0}
	switch {
	case a.member == "" && s.fleet:
		if s.unsent, err = explain.ListUnsent(ctx, client); err != nil {
			return nil, err
		}
		return s, s.readAll(ctx, client, members)
	case a.member == "":
		c, err := readCluster(ctx, client)
		s.clusters = []cluster{c}
		return s, err
	}
	at := slices.IndexFunc(members, func(m *contract.FleetCluster) bool { return m.Name == a.member })
	if at < 0 {
		return nil, fmt.Errorf("--member is %q: %s", a.member, choices(members))
	}
	c, err := readMember(ctx, client, members[at])
	s.fleet, s.clusters = false, []cluster{c}
	return s, err
}

// choices says which clusters there are.
func choices(members []*contract.FleetCluster) string {
	if len(members) == 0 {
		return "the kubeconfig does not lead to the hub of a fleet"
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	return "the fleet has " + strings.Join(names, ", ")
}

// membersOf are the clusters of a hub, none where the API server is none.
func membersOf(ctx context.Context, client *kube.Client) ([]*contract.FleetCluster, error) {
	version, served, err := client.Served(ctx, contract.KarmadaClusterGroup, contract.KarmadaClusterKind)
	if err != nil || !served {
		return nil, err
	}
	objects, err := client.List(ctx, schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: version, Kind: contract.KarmadaClusterKind}, "", "")
	if err != nil {
		return nil, fmt.Errorf("list the clusters of the fleet: %w", err)
	}
	members := make([]*contract.FleetCluster, len(objects))
	for i := range objects {
		if members[i], err = contract.FleetClusterOf(&objects[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(members, func(a, b *contract.FleetCluster) int { return natural.Compare(a.Name, b.Name) })
	return members, nil
}

// readAll reads the clusters of a fleet; the error is that none could be.
func (s *seen) readAll(ctx context.Context, hub *kube.Client, members []*contract.FleetCluster) error {
	all, errs := make([]cluster, len(members)), make([]error, len(members))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, m := range members {
		group.Go(func() error {
			all[i], errs[i] = readMember(ctx, hub, m)
			return nil
		})
	}
	_ = group.Wait() // the errors are those of clusters
	for i, err := range errs {
		if err != nil {
			s.unread = append(s.unread, err.Error())
			continue
		}
		s.clusters = append(s.clusters, all[i])
	}
	if len(s.clusters) == 0 {
		return errors.Join(errs...)
	}
	return nil
}

// readMember reads a cluster of a fleet, as the hub reaches it.
func readMember(ctx context.Context, hub *kube.Client, m *contract.FleetCluster) (c cluster, err error) {
	var config *rest.Config
	var client *kube.Client
	if !m.Reached() {
		err = errors.New("the hub does not reach it")
		if ready := m.Ready(); ready != nil && ready.Message != "" {
			err = fmt.Errorf("%w: %s", err, ready.Message)
		}
	}
	if err == nil {
		config, err = fleet.Access(ctx, hub, m)
	}
	if err == nil {
		client, err = kube.New(config)
	}
	if err == nil {
		c, err = readCluster(ctx, client)
	}
	c.name = m.Name
	if err != nil {
		return c, fmt.Errorf("cluster %s is not in the answer: %w", m.Name, err)
	}
	return c, nil
}

// readCluster reads a cluster, and reserves the places in it that the scheduler reserves.
func readCluster(ctx context.Context, client *kube.Client) (c cluster, err error) {
	if c.snapshot, err = clusterlist.Snapshot(ctx, client); err != nil {
		return c, err
	}
	if c.around, err = explain.ReadAround(ctx, client, ""); err != nil {
		return c, err
	}
	if err = c.around.FindScheduler(ctx, client); err != nil {
		return c, err
	}
	after, err := clusterlist.ReserveAfter(ctx, client)
	if err != nil {
		return c, err
	}
	c.around.Reserve(c.snapshot, after)
	return c, nil
}

// one is the cluster of a question that is about one.
func (s *seen) one() (cluster, error) {
	if s.fleet {
		return cluster{}, errors.New("this is about one cluster, and the kubeconfig leads to the hub of a fleet: say which with --member")
	}
	return s.clusters[0], nil
}

// gangs are those of all clusters, and the jobs that are in none.
func (s *seen) gangs() (all []explain.Answer) {
	for _, c := range s.clusters {
		all = append(all, c.of(explain.Gangs(c.snapshot, c.around))...)
	}
	for _, u := range s.unsent {
		all = append(all, u.Answer())
	}
	explain.Sort(all)
	return all
}

// find answers for what a name stands for, in all clusters.
func (s *seen) find(about target) (answers []explain.Answer) {
	snapshots := map[string]*clusterstate.Snapshot{}
	for _, c := range s.clusters {
		snapshots[c.name] = c.snapshot
		answers = append(answers, c.of(explain.Find(c.snapshot, c.around, about.namespace, about.name))...)
	}
	for _, u := range s.unsent {
		if !u.Is(about.namespace, about.name) {
			continue
		}
		answer := u.Answer()
		answer.Fixes = u.Fixes(snapshots)
		answers = append(answers, answer)
	}
	return answers
}

// of says of answers that they are about the cluster.
func (c cluster) of(answers []explain.Answer) []explain.Answer {
	for i := range answers {
		answers[i].Cluster = c.name
	}
	return answers
}
