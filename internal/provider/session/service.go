package session

import (
	"context"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// service is what the Container Service has said of the cluster, asked for once in a walk.
type service struct {
	// addons are the versions of the add-ons, by name.
	addons answer[map[string]string]
	record answer[acs.Cluster]
	pools  answer[[]acs.NodePool]

	mu sync.Mutex
	// instances are the add-ons that were asked for, by name, nil for one that is not installed.
	instances map[string]*answer[*acs.AddonInstance]
}

// answer is what the service has said to one question. That it did not answer counts as well, so that a
// plan waits for it once, and not once for each resource.
type answer[T any] struct {
	mu    sync.Mutex
	known bool
	value T
	err   error
}

// get returns the answer, and asks when there is none, or it is not to last: what is being applied may
// take longer than the service is away.
func (a *answer[T]) get(lasts, failuresLast bool, ask func() (T, error)) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known || a.err == nil && !lasts || a.err != nil && !failuresLast {
		a.value, a.err = ask()
		a.known = true
	}
	return a.value, a.err
}

// Addons returns the versions of the add-ons that the cluster had when it was first asked for
// them, by name, with the errors of [Session.ACS] and of the service. The caller must not change them.
func (s *Session) Addons(ctx context.Context) (map[string]string, error) {
	client, err := s.ACS()
	if err != nil {
		return nil, err
	}
	return s.service.addons.get(true, !s.Ledger.Applying(), func() (map[string]string, error) {
		list, err := client.ListAddons(ctx, s.ClusterID)
		if err != nil {
			return nil, err
		}
		versions := map[string]string{}
		for _, a := range list {
			versions[a.Name] = a.Version
		}
		return versions, nil
	})
}

// HasAddon reports whether the cluster had an add-on ([Session.Addons]).
func (s *Session) HasAddon(ctx context.Context, name string) (bool, error) {
	addons, err := s.Addons(ctx)
	_, ok := addons[name]
	return ok, err
}

// Addon returns an add-on with its configuration as the cluster had it when it was first asked for, nil where it was not
// installed, with the errors of [Session.ACS] and of the service. The caller must not change it.
func (s *Session) Addon(ctx context.Context, name string) (*acs.AddonInstance, error) {
	client, err := s.ACS()
	if err != nil {
		return nil, err
	}
	s.service.mu.Lock()
	if s.service.instances == nil {
		s.service.instances = map[string]*answer[*acs.AddonInstance]{}
	}
	known, ok := s.service.instances[name]
	if !ok {
		known = new(answer[*acs.AddonInstance])
		s.service.instances[name] = known
	}
	s.service.mu.Unlock()
	return known.get(true, !s.Ledger.Applying(), func() (*acs.AddonInstance, error) {
		switch live, err := client.GetAddon(ctx, s.ClusterID, name); {
		case err == nil:
			return &live, nil
		case acs.Code(err) == "AddonNotFound":
			return nil, nil
		default:
			return nil, err
		}
	})
}

// KeepsAddon reports whether the cluster has an add-on once the plan is carried out, as far as the walk has come, with the
// errors of [Session.Addons].
func (s *Session) KeepsAddon(ctx context.Context, name string) (bool, error) {
	if stays, known := s.Ledger.Program(name); known {
		return stays, nil
	}
	return s.HasAddon(ctx, name)
}

// DevicePlugins is the ledger's name of the node agent as the device plugin of its nodes.
const DevicePlugins = contract.NodeAgentName + " --device-plugins"

// OffersDevices reports whether the node agent offers the GPUs of nodes once the plan is carried out, as far as the walk has
// come and the cluster tells.
func (s *Session) OffersDevices(ctx context.Context) bool {
	if offers, known := s.Ledger.Program(DevicePlugins); known {
		return offers
	}
	snapshot, err := s.Snapshot(ctx)
	return err == nil && slices.ContainsFunc(snapshot.DaemonSets, func(set appsv1.DaemonSet) bool {
		return set.Name == contract.NodeAgentName && slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, "--device-plugins")
		})
	})
}

// AddonVersion returns the version of an add-on that the cluster has once the plan is carried out, "" where it has none
// then or nobody can tell. A plan of the add-on counts once the walk has come to it; what refers to the add-on, or names it
// in depends_on, comes after it. The errors are those of [Session.Addons].
func (s *Session) AddonVersion(ctx context.Context, name string) (string, error) {
	if stays, known := s.Ledger.Program(name); known && !stays {
		return "", nil
	}
	if version := s.Ledger.Version(name); version != "" {
		return version, nil
	}
	addons, err := s.Addons(ctx)
	return addons[name], err
}

// Record returns what the Container Service says of the cluster, with the errors of [Session.ACS] and
// of the service. One answer serves the whole walk.
func (s *Session) Record(ctx context.Context) (acs.Cluster, error) {
	client, err := s.ACS()
	if err != nil {
		return acs.Cluster{}, err
	}
	return s.service.record.get(true, !s.Ledger.Applying(), func() (acs.Cluster, error) { return client.GetCluster(ctx, s.ClusterID) })
}

// NodePools returns the node pools that the cluster had when it was first asked for them, or has once the
// walk changes things, with the errors of [Session.ACS] and of the service. The caller must not change them.
func (s *Session) NodePools(ctx context.Context) ([]acs.NodePool, error) {
	client, err := s.ACS()
	if err != nil {
		return nil, err
	}
	planning := !s.Ledger.Applying()
	return s.service.pools.get(planning, planning, func() ([]acs.NodePool, error) { return client.ListNodePools(ctx, s.ClusterID) })
}
