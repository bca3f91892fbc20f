// Package endpoint serves the answers of package explain by HTTPS from a running
// scheduler, out of its live view.
//
//	GET /gpuplan/gangs                       all gangs, those that wait first
//	GET /gpuplan/gangs/{namespace}/{name}    why a gang, a job's gangs or a pod waits
//	GET /gpuplan/map                         every GPU and who is on it
//	GET /gpuplan/without?node=a&node=b       who would lose a place without nodes
//
// Each takes ?output=json (default) or text, and the map svg as well. Who asks is
// authenticated by a TokenReview or a client certificate, and authorised by a
// SubjectAccessReview for the path and the verb get, as for the scheduler's metrics.
//
// kube-scheduler has no hook for more paths at its own port, so the answers have a
// port of their own, with the same certificate and the same reviews.
package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

const (
	// patience is how long a request waits for the view after the scheduler has started.
	patience = 5 * time.Second
	// shutdown is how long requests under way may take when the scheduler stops.
	shutdown = 5 * time.Second
)

// Guard checks who asks.
type Guard struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
}

// Source is where snapshots come from.
type Source struct {
	Cache *clustercache.Cache
	// Synced waits until the cache holds the cluster.
	Synced func(context.Context) error
	// Around reads what there is around the gangs of a namespace, "" for all.
	Around func(ctx context.Context, namespace string) (explain.Around, error)
}

// Serve serves until ctx ends, with the TLS settings of the scheduler's own port. It
// returns once the port is open.
func Serve(ctx context.Context, listener net.Listener, secure *server.SecureServingInfo, guard Guard, source Source) error {
	own := *secure
	own.Listener = listener
	if _, _, err := own.Serve(guard.protect(Handler(source)), shutdown, ctx.Done()); err != nil {
		return fmt.Errorf("serve answers at %s: %w", listener.Addr(), err)
	}
	return nil
}

// protect puts authentication and authorisation before a handler, as kube-scheduler
// does for its own.
func (g Guard) protect(handler http.Handler) http.Handler {
	info := &request.RequestInfoFactory{}
	handler = filters.WithAuthorization(handler, g.Authorizer, scheme.Codecs)
	handler = filters.WithAuthentication(handler, g.Authenticator, filters.Unauthorized(scheme.Codecs), nil, nil)
	handler = filters.WithRequestInfo(handler, info)
	handler = filters.WithCacheControl(handler)
	handler = genericfilters.WithHTTPLogging(handler)
	return genericfilters.WithPanicRecovery(handler, info)
}

// errUnknown means that there is nothing of the name that was asked for.
var errUnknown = errors.New("not found")

// answer is what can be encoded as JSON, and its other forms by name.
type answer struct {
	data  any
	forms map[string]form
}

type form struct {
	contentType string
	write       func(io.Writer) error
}

func text(write func(io.Writer) error) form { return form{"text/plain; charset=utf-8", write} }

// Handler answers whoever asks.
func Handler(source Source) http.Handler {
	mux := http.NewServeMux()
	for path, ask := range map[string]func(*clusterstate.Snapshot, *http.Request) (answer, error){
		"GET /gpuplan/gangs":                    source.gangs,
		"GET /gpuplan/gangs/{namespace}/{name}": source.why,
		"GET /gpuplan/map":                      always(gpus),
		"GET /gpuplan/without":                  without,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { source.respond(w, r, ask) })
	}
	return mux
}

// respond answers one request from a snapshot of its own.
func (s Source) respond(w http.ResponseWriter, r *http.Request, ask func(*clusterstate.Snapshot, *http.Request) (answer, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := s.Synced(ctx); err != nil {
		http.Error(w, "the scheduler is still reading the cluster: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	a, err := ask(s.Cache.Snapshot(), r)
	switch {
	case errors.Is(err, errUnknown):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	output := r.URL.Query().Get("output")
	if output == "" || output == "json" {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.data) // the connection may be gone
		return
	}
	f, ok := a.forms[output]
	if !ok {
		http.Error(w, fmt.Sprintf("there is no output %q of this answer", output), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", f.contentType)
	_ = f.write(w) // the connection may be gone
}

// always makes a handler of an answer that there always is.
func always(ask func(*clusterstate.Snapshot) answer) func(*clusterstate.Snapshot, *http.Request) (answer, error) {
	return func(snapshot *clusterstate.Snapshot, _ *http.Request) (answer, error) { return ask(snapshot), nil }
}

func (s Source) gangs(snapshot *clusterstate.Snapshot, r *http.Request) (answer, error) {
	around, err := s.Around(r.Context(), "")
	if err != nil {
		return answer{}, err
	}
	list := explain.Gangs(snapshot, around)
	return answer{list, map[string]form{"text": text(func(w io.Writer) error { return explain.WriteGangs(w, list, time.Now()) })}}, nil
}

func (s Source) why(snapshot *clusterstate.Snapshot, r *http.Request) (answer, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	around, err := s.Around(r.Context(), namespace)
	if err != nil {
		return answer{}, err
	}
	list := explain.Find(snapshot, around, namespace, name)
	if len(list) == 0 {
		return answer{}, fmt.Errorf("gang, job or pod %s/%s that asks for GPUs: %w", namespace, name, errUnknown)
	}
	return answer{list, map[string]form{"text": text(func(w io.Writer) error {
		now := time.Now()
		return explain.WriteAll(w, list, func(a explain.Answer, w io.Writer) error { return a.WriteText(w, now) })
	})}}, nil
}

func gpus(snapshot *clusterstate.Snapshot) answer {
	m := explain.GPUs(snapshot)
	return answer{m, map[string]form{
		"text": text(m.WriteText),
		"svg": {"image/svg+xml", func(w io.Writer) error {
			_, err := w.Write(m.SVG())
			return err
		}},
	}}
}

func without(snapshot *clusterstate.Snapshot, r *http.Request) (answer, error) {
	nodes := r.URL.Query()["node"]
	losses, err := explain.Without(snapshot, nodes)
	if err != nil {
		return answer{}, err
	}
	return answer{losses, map[string]form{"text": text(func(w io.Writer) error { return explain.WriteLosses(w, nodes, losses) })}}, nil
}
