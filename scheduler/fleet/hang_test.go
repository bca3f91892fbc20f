package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

// asked is a request of the scheduler of the fleet that was the leader in a turn. It may hang, before the server has the request or before
// it has read the answer, until another one has led for a while; then it goes on by what it knew before.
func (s *simulation) asked(turn int, request func()) {
	if turn != s.turn || s.hangsAfter == 0 {
		request()
		return
	}
	if s.hangsAfter--; s.hangsAfter > 0 {
		request()
		return
	}
	late := s.IntN(2) == 0
	if !late {
		request()
	}
	s.log = append(s.log, fmt.Sprintf("the scheduler of the fleet hangs, late %v", late))
	s.restart()
	s.age(25 * time.Second)
	for range s.IntN(200) {
		s.step(true)
		s.check()
	}
	s.log = append(s.log, "and goes on")
	if late {
		request()
	}
}

// hubClient is that of the next scheduler that leads.
func (s *simulation) hubClient() *kube.Client {
	turn, config := s.turn, s.hub.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (answer *http.Response, err error) {
			if !strings.Contains(r.URL.Path, "/namespaces/") { // what the hub serves is asked by goroutines of the client
				return next.RoundTrip(r)
			}
			s.asked(turn, func() { answer, err = next.RoundTrip(r) })
			return answer, err
		})
	})
	client, err := kube.New(config)
	require.NoError(s.t, err)
	return client
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// clientOf is that of a member cluster for the scheduler that leads.
func (s *simulation) clientOf(m *simulated) *kube.Client {
	client := *m.client
	client.Dynamic = askedCluster{client.Dynamic, s, s.turn}
	return &client
}

// askedCluster are the objects of a member cluster, as the scheduler of the fleet reads and writes them.
type askedCluster struct {
	dynamic.Interface
	s    *simulation
	turn int
}

func (a askedCluster) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return askedResource{a.Interface.Resource(of), a}
}

type askedResource struct {
	dynamic.NamespaceableResourceInterface
	askedCluster
}

func (a askedResource) Namespace(name string) dynamic.ResourceInterface {
	return askedNamespace{a.NamespaceableResourceInterface.Namespace(name), a.askedCluster}
}

type askedNamespace struct {
	dynamic.ResourceInterface
	askedCluster
}

func (a askedNamespace) Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (o *unstructured.Unstructured, err error) {
	a.s.asked(a.turn, func() { o, err = a.ResourceInterface.Get(ctx, name, options, subresources...) })
	return o, err
}

func (a askedNamespace) Create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions, subresources ...string) (written *unstructured.Unstructured, err error) {
	a.s.asked(a.turn, func() { written, err = a.ResourceInterface.Create(ctx, o, options, subresources...) })
	return written, err
}

func (a askedNamespace) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (o *unstructured.Unstructured, err error) {
	a.s.asked(a.turn, func() { o, err = a.ResourceInterface.Patch(ctx, name, kind, data, options, subresources...) })
	return o, err
}

func (a askedNamespace) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) (err error) {
	a.s.asked(a.turn, func() { err = a.ResourceInterface.Delete(ctx, name, options, subresources...) })
	return err
}

// versioned has a fake API server give reservations their versions, and refuse changes and deletions of others than they are now.
func versioned(objects *fake.FakeDynamicClient) {
	version := 0
	next := func() string {
		version++
		return strconv.Itoa(version)
	}
	conflict := func(name string) error {
		return apierrors.NewConflict(gangreservation.Resource.GroupResource(), name, fmt.Errorf("it has changed"))
	}
	stored := func(namespace, name string) *unstructured.Unstructured {
		object, err := objects.Tracker().Get(gangreservation.Resource, namespace, name)
		if err != nil {
			return &unstructured.Unstructured{}
		}
		return object.(*unstructured.Unstructured) //nolint:forcetypeassert // of this client
	}
	objects.PrependReactor("*", gangreservation.Resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch a := action.(type) {
		case clienttesting.PatchActionImpl:
			a.Patch = fmt.Appendf(nil, `%s, {"op": "add", "path": "/metadata/resourceVersion", "value": %q}]`, a.Patch[:len(a.Patch)-1], next())
			return clienttesting.ObjectReaction(objects.Tracker())(a)
		case clienttesting.UpdateActionImpl:
			object := a.Object.(*unstructured.Unstructured) //nolint:forcetypeassert // of this client
			if object.GetResourceVersion() != stored(a.Namespace, object.GetName()).GetResourceVersion() {
				return true, nil, conflict(object.GetName())
			}
			object = object.DeepCopy()
			object.SetResourceVersion(next())
			a.Object = object
			return clienttesting.ObjectReaction(objects.Tracker())(a)
		case clienttesting.CreateActionImpl:
			object := a.Object.(*unstructured.Unstructured).DeepCopy() //nolint:forcetypeassert // of this client
			object.SetResourceVersion(next())
			object.SetUID(types.UID("reservation-" + object.GetResourceVersion()))
			a.Object = object
			return clienttesting.ObjectReaction(objects.Tracker())(a)
		case clienttesting.DeleteActionImpl:
			now := stored(a.Namespace, a.Name)
			if p := a.DeleteOptions.Preconditions; p != nil && now.GetUID() != "" && (*p.UID != now.GetUID() || *p.ResourceVersion != now.GetResourceVersion()) {
				return true, nil, conflict(a.Name)
			}
		}
		return false, nil, nil
	})
}
