package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	name string
	// member is how the hub has it, nil outside of a fleet.
	member   *contract.FleetCluster
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
	// jobs are those that the hub of a fleet has, unread says what could not be read, and why.
	jobs   []explain.HubJob
	unread []string
}

// access is what the kubeconfig leads to, and the namespace that the user works in.
func (a *asker) access() (client *kube.Client, namespace string, err error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.overrides)
	namespace, _, err = loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	a.timeout = config.Timeout
	client, err = kube.New(config)
	return client, namespace, err
}

// read reads what the kubeconfig leads to: a cluster, or the clusters of a fleet.
func (a *asker) read(ctx context.Context) (*seen, error) {
	client, namespace, err := a.access()
	if err != nil {
		return nil, err
	}
	members, hub, err := membersOf(ctx, client)
	if err != nil {
		return nil, err
	}
	s := &seen{namespace: namespace, fleet: hub}
	switch {
	case a.member == "" && hub:
		if s.jobs, s.unread, err = explain.ListHubJobs(ctx, client); err != nil {
			return nil, err
		}
		s.readAll(ctx, client, members, a.timeout)
		return s, nil
	case a.member == "":
		c, err := readCluster(ctx, client)
		s.clusters = []cluster{c}
		return s, err
	}
	at := slices.IndexFunc(members, func(m *contract.FleetCluster) bool { return m.Name == a.member })
	if at < 0 {
		return nil, fmt.Errorf("--member is %q: %s", a.member, choices(members, hub))
	}
	c, err := readMember(ctx, client, members[at], a.timeout)
	s.fleet, s.clusters = false, []cluster{c}
	return s, err
}

// choices says which clusters there are.
func choices(members []*contract.FleetCluster, hub bool) string {
	switch {
	case !hub:
		return "the kubeconfig does not lead to the hub of a fleet"
	case len(members) == 0:
		return "the fleet has no clusters"
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	return "the fleet has " + strings.Join(names, ", ")
}

// membersOf are the clusters of a hub; hub is false where the API server is none.
func membersOf(ctx context.Context, client *kube.Client) (members []*contract.FleetCluster, hub bool, err error) {
	version, served, err := client.Served(ctx, contract.KarmadaClusterGroup, contract.KarmadaClusterKind)
	if err != nil || !served {
		return nil, false, err
	}
	objects, err := client.List(ctx, schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: version, Kind: contract.KarmadaClusterKind}, "", "")
	if err != nil {
		return nil, true, fmt.Errorf("list the clusters of the fleet: %w", err)
	}
	members = make([]*contract.FleetCluster, len(objects))
	for i := range objects {
		if members[i], err = contract.FleetClusterOf(&objects[i]); err != nil {
			return nil, true, err
		}
	}
	slices.SortFunc(members, func(a, b *contract.FleetCluster) int { return natural.Compare(a.Name, b.Name) })
	return members, true, nil
}

// readAll reads the clusters of a fleet; timeout is what the user gives each request, 0 for as long as any.
func (s *seen) readAll(ctx context.Context, hub *kube.Client, members []*contract.FleetCluster, timeout time.Duration) {
	all, errs := make([]cluster, len(members)), make([]error, len(members))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, m := range members {
		group.Go(func() error {
			all[i], errs[i] = readMember(ctx, hub, m, timeout)
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
}

// nothing is the error of an answer that would be empty because nothing of the fleet could be read.
func (s *seen) nothing() error {
	if s.fleet && len(s.clusters) == 0 {
		return errors.New("the fleet has no cluster that could be read")
	}
	return nil
}

// readMember reads a cluster of a fleet, as the hub reaches it.
func readMember(ctx context.Context, hub *kube.Client, m *contract.FleetCluster, timeout time.Duration) (c cluster, err error) {
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
		config.Timeout = timeout
		client, err = kube.New(config)
	}
	if err == nil {
		c, err = readCluster(ctx, client)
	}
	c.name, c.member = m.Name, m
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
	if err = c.around.FindGrants(ctx, client); err != nil {
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
	for _, job := range s.jobs {
		sent := job.Clusters()
		if len(sent) == 0 {
			all = append(all, job.Answer())
		}
		for _, name := range sent {
			if c, read := s.cluster(name); !read || job.MissingIn(name, c.snapshot) {
				all = append(all, job.AnswerIn(name, read))
			}
		}
	}
	explain.Sort(all)
	return all
}

// find answers for what a name stands for, in all clusters.
func (s *seen) find(about target) (answers []explain.Answer) {
	for _, c := range s.clusters {
		answers = append(answers, c.of(explain.Find(c.snapshot, c.around, about.namespace, about.name))...)
	}
	for _, job := range s.jobs {
		if !job.Is(about.namespace, about.name) {
			continue
		}
		sent := job.Clusters()
		if len(sent) == 0 {
			answer := job.Answer()
			answer.Fixes = s.fixes(job)
			answers = append(answers, answer)
		}
		for _, name := range sent {
			if !slices.ContainsFunc(answers, func(a explain.Answer) bool { return a.Cluster == name }) {
				_, read := s.cluster(name)
				answers = append(answers, job.AnswerIn(name, read))
			}
		}
	}
	return answers
}

// fixes are changes of clusters of which each makes a job of the hub fit there, none where it fits in one as it is.
func (s *seen) fixes(job explain.HubJob) (all []explain.Fix) {
	for _, c := range s.clusters {
		found, fits := job.FixesIn(c.member, c.snapshot)
		if fits {
			return nil
		}
		all = append(all, found...)
	}
	return all
}

// cluster is the one of a name, if it could be read.
func (s *seen) cluster(name string) (c cluster, read bool) {
	at := slices.IndexFunc(s.clusters, func(c cluster) bool { return c.name == name })
	if at < 0 {
		return c, false
	}
	return s.clusters[at], true
}

// of says of answers that they are about the cluster.
func (c cluster) of(answers []explain.Answer) []explain.Answer {
	for i := range answers {
		answers[i].Cluster = c.name
	}
	return answers
}
