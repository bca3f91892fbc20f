package session

import (
	"context"
	"sync"
)

// addons are the names of the add-ons that the cluster has.
type addons struct {
	mu    sync.Mutex
	names map[string]bool
}

// HasAddon reports whether the cluster had an add-on when it was first asked for one, with the
// errors of [Session.ACS] and of the service. One list answers for all.
func (s *Session) HasAddon(ctx context.Context, name string) (bool, error) {
	client, err := s.ACS()
	if err != nil {
		return false, err
	}
	s.addons.mu.Lock()
	defer s.addons.mu.Unlock()
	if s.addons.names == nil {
		list, err := client.ListAddons(ctx, s.ClusterID)
		if err != nil {
			return false, err
		}
		s.addons.names = map[string]bool{}
		for _, a := range list {
			s.addons.names[a.Name] = true
		}
	}
	return s.addons.names[name], nil
}
