package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/cloud"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

const (
	karmada          = "gpuplan-karmada"
	karmadaScheduler = "gpuplan-karmada-scheduler" // the same program
	karmadaGrace     = 5 * time.Second
	// memberGrace is as long as a platform may take to stop.
	memberGrace = stopTimeout
	// memberStart is by how much a member cluster makes the start of a fleet longer on a slow machine.
	memberStart = time.Minute
)

// findKarmada complains when the program is missing that only fleets need.
func (s *server) findKarmada() error {
	if _, err := os.Stat(filepath.Join(s.Programs, karmada)); err != nil {
		return fmt.Errorf("the program that brings objects to member clusters is missing: %w; run make fleet", err)
	}
	return nil
}

// startFleet makes the hub of a fleet of the API server that runs, and starts its member clusters.
func (s *server) startFleet(ctx context.Context) error {
	members := make([]fleet.Member, s.Members)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.report.Do("kube-controller-manager", s.Dir.Log("server"), func() error { return s.plane.ControllerManager(groupCtx) })
	})
	for i := range members {
		name := datadir.MemberCluster(i + 1)
		group.Go(func() error {
			return s.report.Do(name, s.Dir.Member(name).Log("server"), func() (err error) {
				members[i], err = s.startMember(groupCtx, name)
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	hub, err := kube.New(s.plane.Config)
	if err != nil {
		return err
	}
	return s.report.Do("Karmada", s.Dir.Log(karmada), func() error {
		// Karmada looks for new kinds every half a minute only.
		if err := fleet.ServeJobs(ctx, hub, members[0].Client); err != nil {
			return fmt.Errorf("serve the kinds of jobs of %s: %w", members[0].Name, err)
		}
		if err := fleet.ServePrograms(ctx, hub); err != nil {
			return fmt.Errorf("give the programs of the hub their kinds and accounts: %w", err)
		}
		if err := s.startKarmada(ctx, hub); err != nil {
			return err
		}
		if err := fleet.ShowStatus(ctx, hub); err != nil {
			return err
		}
		group, groupCtx := errgroup.WithContext(ctx)
		for _, member := range members {
			s.state.Clusters = append(s.state.Clusters, datadir.Cluster{Name: member.Name, URL: member.URL, Kubeconfig: s.Dir.Kubeconfig(member.Name)})
			group.Go(func() error {
				if err := fleet.Join(groupCtx, hub, member); err != nil {
					return fmt.Errorf("join %s: %w", member.Name, err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if err := s.letBindingsGo(hub); err != nil {
			return err
		}
		for name, args := range map[string][]string{contract.FleetSchedulerName: {"fleet"}, contract.FleetQueueName: {"queue", "--fleet"}} {
			if err := s.startHubProgram(ctx, hub, name, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// startHubProgram keeps a program of the hub running, with the rights that it has on hubs everywhere.
func (s *server) startHubProgram(ctx context.Context, hub *kube.Client, name string, args ...string) error {
	kubeconfig, err := fleet.Kubeconfig(ctx, hub, name)
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir.Run(), name+".kubeconfig")
	if err := datadir.WriteFile(file, kubeconfig); err != nil {
		return err
	}
	_, err = s.keep(karmadaGrace, process.Spec{
		Name: name, Path: filepath.Join(s.Programs, contract.SchedulerName), Dir: s.Dir.Run(), Args: append(args, "--leader-elect=false", "--kubeconfig", file),
	})
	return err
}

// letBindingsGo does for the hub what ACK's makes of suspension.scheduling.
func (s *server) letBindingsGo(hub *kube.Client) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.onStop(func(context.Context) { cancel() })
	return fleet.Release(ctx, hub)
}

// startMember keeps the platform of a member cluster running, waits until it is ready, and gives it the scheduler and
// the node agent.
func (s *server) startMember(ctx context.Context, name string) (fleet.Member, error) {
	dir := s.Dir.Member(name)
	self, err := os.Executable()
	if err != nil {
		return fleet.Member{}, fmt.Errorf("find this program to start it as %s: %w", name, err)
	}
	if err := dir.Create(); err != nil {
		return fleet.Member{}, err
	}
	exits, err := s.keep(memberGrace, process.Spec{
		Name: name, Path: self, Args: s.ServeMember(dir, name), Env: os.Environ(), Dir: s.Dir.Run(),
	})
	if err != nil {
		return fleet.Member{}, err
	}
	var state datadir.State
	ready := func() (bool, error) {
		state, err = dir.ReadState()
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return state.ReadySeconds > 0 && state.Server.Alive(), err
	}
	if err := until(ctx, name, exits, ready); err != nil {
		return fleet.Member{}, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Dir.Kubeconfig(name))
	if err != nil {
		return fleet.Member{}, err
	}
	client, err := kube.New(config)
	if err != nil {
		return fleet.Member{}, err
	}
	if err := fleet.Equip(ctx, client); err != nil {
		return fleet.Member{}, err
	}
	return fleet.Member{Name: name, URL: config.Host, Region: cloud.RegionID, Client: client}, nil
}

// startKarmada keeps Karmada's controllers and its scheduler running, and returns when the kinds are served that its
// program installs.
func (s *server) startKarmada(ctx context.Context, hub *kube.Client) error {
	spec := process.Spec{
		Name: karmada, Path: filepath.Join(s.Programs, karmada), Dir: s.Dir.Run(),
		Args: []string{"--kubeconfig", s.Dir.Kubeconfig(datadir.HubCluster)},
	}
	exits, err := s.keep(karmadaGrace, spec)
	if err != nil {
		return err
	}
	kind := schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Kind: contract.KarmadaClusterKind}
	if err := until(ctx, karmada, exits, func() (bool, error) { return hub.Serves(kind) }); err != nil {
		return err
	}
	spec.Name, spec.Args = karmadaScheduler, append(spec.Args, "--scheduler")
	_, err = s.keep(karmadaGrace, spec)
	return err
}
