package transcript

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"sync"
)

// Recorder is a proxy that clients reach over plain HTTP, on the loopback address only, and that
// sends their requests on as they are, signature and host included, over HTTPS.
type Recorder struct {
	// Send sends the requests on.
	Send http.RoundTripper

	mu        sync.Mutex
	exchanges []Exchange
	scrubber  scrubber
}

// ServeHTTP sends a request on and writes the exchange down.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	asked, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	onward := request.Clone(request.Context())
	onward.RequestURI, onward.URL.Scheme, onward.URL.Host = "", "https", request.Host
	onward.Body = io.NopCloser(bytes.NewReader(asked))
	response, err := r.Send.RoundTrip(onward)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	r.record(request, asked, response.StatusCode, answer)
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(answer)
}

// record writes an exchange down, unless it only repeats the one before.
func (r *Recorder) record(request *http.Request, asked []byte, status int, answer []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := Exchange{
		Operation: request.Header.Get("x-acs-action"), Method: request.Method, Target: r.scrubber.target(request.URL),
		Request: r.scrubber.value("", decode(asked)), Status: status, Answer: r.scrubber.value("", decode(answer)),
	}
	if n := len(r.exchanges); n > 0 && reflect.DeepEqual(r.exchanges[n-1], e) {
		return
	}
	r.exchanges = append(r.exchanges, e)
}

// Transcript is what was written down so far.
func (r *Recorder) Transcript(origin string) Transcript {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Transcript{Origin: origin, Exchanges: append([]Exchange(nil), r.exchanges...)}
}
