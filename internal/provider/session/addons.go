package session

import (
	"context"
	"sync"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// service is what the Container Service has said of the cluster, asked for once in a walk.
type service struct {
	mu sync.Mutex
	// addons are the versions of the add-ons, by name.
	addons map[string]string
	// instances are those that were asked for, nil for one that is not installed.
	instances map[string]*acs.AddonInstance
	record    *acs.Cluster
	// pools are the node pools, nil while nobody has asked.
	pools []acs.NodePool
}

// Addons returns the versions of the add-ons that the cluster had when it was first asked for
// them, by name, with the errors of [Session.ACS] and of the service. The caller must not change them.
func (s *Session) Addons(ctx context.Context) (map[string]string, error) {
	client, err := s.ACS()
	if err != nil {
		return nil, err
	}
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	if s.service.addons == nil {
		list, err := client.ListAddons(ctx, s.ClusterID)
		if err != nil {
			return nil, err
		}
		s.service.addons = map[string]string{}
		for _, a := range list {
			s.service.addons[a.Name] = a.Version
		}
	}
	return s.service.addons, nil
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
	defer s.service.mu.Unlock()
	instance, asked := s.service.instances[name]
	if !asked {
		switch live, err := client.GetAddon(ctx, s.ClusterID, name); {
		case err == nil:
			instance = &live
		case acs.Code(err) != "AddonNotFound":
			return nil, err
		}
		if s.service.instances == nil {
			s.service.instances = map[string]*acs.AddonInstance{}
		}
		s.service.instances[name] = instance
	}
	return instance, nil
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
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	if s.service.record == nil {
		record, err := client.GetCluster(ctx, s.ClusterID)
		if err != nil {
			return acs.Cluster{}, err
		}
		s.service.record = &record
	}
	return *s.service.record, nil
}

// NodePools returns the node pools that the cluster had when it was first asked for them, or has once the
// walk changes things, with the errors of [Session.ACS] and of the service. The caller must not change them.
func (s *Session) NodePools(ctx context.Context) ([]acs.NodePool, error) {
	client, err := s.ACS()
	if err != nil {
		return nil, err
	}
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	if s.service.pools == nil || s.Ledger.Applying() {
		pools, err := client.ListNodePools(ctx, s.ClusterID)
		if err != nil {
			return nil, err
		}
		s.service.pools = append([]acs.NodePool{}, pools...)
	}
	return s.service.pools, nil
}
