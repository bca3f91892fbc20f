package faults

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
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
	// each, where it is not 0, has it happen to each request of so many, whatever that wants.
	each int
}

// front stands before a service and spoils what the rule says.
type front struct {
	service http.Handler

	mu               sync.Mutex
	rule             rule
	requests, writes int
}

// serve puts the service behind a front, and returns the front's address.
func serve(t *testing.T, service http.Handler) (f *front, url string) {
	t.Helper()
	f = &front{service: service}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

// set replaces the rule; writes are counted from here.
func (f *front) set(r rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule, f.requests, f.writes = r, 0, 0
}

// changes reports whether a request is to change something: a question is also asked by POST, and a dry run changes nothing.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && !strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/")
}

// spoiled is the rule for a request, false when it is the service's alone.
func (f *front) spoiled(r *http.Request) (rule, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	switch {
	case f.rule.each > 0:
		return f.rule, f.requests%f.rule.each == 0
	case f.rule.write == 0:
		return rule{}, false
	case !changes(r):
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
	if rule.carriedOut && changes(r) {
		answer := httptest.NewRecorder()
		f.service.ServeHTTP(answer, r)
		if rule.reads {
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
	}
	if rule.status == 0 {
		panic(http.ErrAbortHandler)
	}
	if strings.HasPrefix(rule.body, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(rule.status)
	_, _ = w.Write([]byte(rule.body))
}
