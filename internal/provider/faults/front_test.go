package faults

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
)

// An answer that does not come from the service but from what is between.
const badGateway = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"

// rule is what happens to requests, instead of or beside what the service does with them.
type rule struct {
	// write is the number of the request that changes something at which it happens; 0 for none.
	write int
	// carriedOut says that the service carries the request out all the same.
	carriedOut bool
	// status and body are the answer; status 0 breaks the connection.
	status int
	body   string
	// reads are refused after that write, until the rule is gone, so that nobody sees what became of it.
	reads bool
}

// front stands before the emulated service and spoils what the rule says.
type front struct {
	service http.Handler

	mu     sync.Mutex
	rule   rule
	writes int
}

// serve puts the service behind a front, and the front's address into the environment.
func serve(t *testing.T, service *acsfake.Server) *front {
	t.Helper()
	f := &front{service: service}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	t.Setenv("GPUPLAN_CS_ENDPOINT", server.URL)
	return f
}

// set replaces the rule; writes are counted from here.
func (f *front) set(r rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule, f.writes = r, 0
}

// spoiled is the rule for a request, false when it is the service's alone.
func (f *front) spoiled(r *http.Request) (rule, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rule.write == 0 {
		return rule{}, false
	}
	if r.Method == http.MethodGet {
		return f.rule, f.rule.reads && f.writes >= f.rule.write
	}
	f.writes++
	return f.rule, f.writes == f.rule.write
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule, spoiled := f.spoiled(r)
	if !spoiled {
		f.service.ServeHTTP(w, r)
		return
	}
	if rule.carriedOut && r.Method != http.MethodGet {
		answer := httptest.NewRecorder()
		f.service.ServeHTTP(answer, r)
		if rule.reads {
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
	}
	if rule.status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(rule.status)
	_, _ = w.Write([]byte(rule.body))
}
