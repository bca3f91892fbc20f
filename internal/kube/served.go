package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// served is what one API server is known to serve.
type served struct {
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.ResettableRESTMapper

	mu    sync.Mutex
	since time.Time // what the mapper knows was asked for at this time or later
}

func newServed(by discovery.DiscoveryInterface) *served {
	cached := memory.NewMemCacheClient(by)
	return &served{discovery: cached, mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached), since: time.Now()}
}

// lists reports whether the server lists a kind. The mapper, to which a kind of which the server has said nothing is
// one that is not there, may lack it; the error is what keeps the server from saying it.
func (s *served) lists(gvk schema.GroupVersionKind) (bool, error) {
	_, lists, err := s.discovery.ServerGroupsAndResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		err = nil // those of other groups, as of an aggregated API that is away
		for gv, why := range failed.Groups {
			if gv.Group == gvk.Group && !apierrors.IsNotFound(why) {
				err = why
			}
		}
	}
	return slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
		gv, _ := schema.ParseGroupVersion(l.GroupVersion)
		return gv.Group == gvk.Group && (gvk.Version == "" || gv.Version == gvk.Version) &&
			slices.ContainsFunc(l.APIResources, func(r metav1.APIResource) bool { return r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") })
	}), err
}

// renew forgets what was asked for before a time.
func (s *served) renew(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.Before(before) {
		s.mapper.Reset()
		s.since = time.Now()
	}
}

// Believing returns the client as one that takes a kind for not served, without asking the
// server again, when it was not served a time of age ago: who asks about hundreds of jobs asks
// for kinds that are not there once. The client itself asks each time.
func (c *Client) Believing(age time.Duration) *Client {
	believing := *c
	believing.age = age
	return &believing
}

// Served tells whether the server serves a kind, and in which version; of
// several versions it names the group's preferred one. It asks the server each time
// ([Client.Believing] says when not).
func (c *Client) Served(ctx context.Context, group, kind string) (version string, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, err
	}
	c.served.renew(time.Now().Add(-c.age))
	m, err := c.mapping(schema.GroupVersionKind{Group: group, Kind: kind})
	switch {
	case errors.Is(err, ErrNotServed):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("discover what the API server serves: %w", err)
	}
	return m.GroupVersionKind.Version, true, nil
}

// Serves tells whether the server serves a kind in this version.
func (c *Client) Serves(gvk schema.GroupVersionKind) (bool, error) {
	_, err := c.mapping(gvk)
	if errors.Is(err, ErrNotServed) {
		return false, nil
	}
	return err == nil, err
}

// AwaitServed waits until the server serves a resource of which there is a CRD: it does not at once after that was
// created. It does not wait where there is none, as far as the user may see.
func (c *Client) AwaitServed(ctx context.Context, resource schema.GroupResource) error {
	serves := func(context.Context) (bool, error) {
		_, err := c.served.mapper.KindFor(resource.WithVersion(""))
		if meta.IsNoMatchError(err) {
			c.served.renew(time.Now())
			_, err = c.served.mapper.KindFor(resource.WithVersion(""))
		}
		return err == nil, nil // whoever uses it hears what else is wrong
	}
	if served, _ := serves(ctx); served {
		return nil
	}
	crd, err := c.Get(ctx, crdKind, "", resource.String())
	if err != nil || crd.GetDeletionTimestamp() != nil {
		return nil //nolint:nilerr // nothing is to come, or nobody knows
	}
	if err := wait.PollUntilContextCancel(ctx, discoveryPoll, true, serves); err != nil { // which cannot be watched
		return fmt.Errorf("the cluster has the CRD %[1]s, and does not serve what that defines: `kubectl describe crd %[1]s` says why (%[2]w)", resource, err)
	}
	return nil
}

// mapping finds the resource of a kind, and asks the server again before it says
// that there is none ([Client.Believing] says when not), because CRDs come and go.
func (c *Client) mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	asked := time.Now()
	m, err := c.served.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		c.served.renew(asked.Add(-c.age))
		m, err = c.served.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if meta.IsNoMatchError(err) {
		if _, err := c.served.mapper.RESTMapping(namespaceKind.GroupKind(), namespaceKind.Version); meta.IsNoMatchError(err) {
			return nil, c.stranger(noCore)
		}
		switch listed, why := c.served.lists(gvk); {
		case why != nil:
			return nil, c.discovered(why)
		case !listed:
			return nil, fmt.Errorf("%w: %s (is its CRD installed?)", ErrNotServed, gvk)
		}
		c.served.renew(time.Now())
		m, err = c.served.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return nil, c.discovered(err)
	}
	return m, nil
}
