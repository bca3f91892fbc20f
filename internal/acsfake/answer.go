package acsfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"
)

// request is a request whose signature is good, with its body read.
type request struct {
	*http.Request
	body []byte
	id   string
}

// refusal is an error of the service itself: its body has lower-case keys.
type refusal struct {
	status        int
	code, message string
}

func (e *refusal) Error() string { return e.code + ": " + e.message }

func refuse(status int, code, format string, args ...any) error {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// gatewayError is an error of the gateway before the service: CamelCase keys.
type gatewayError struct {
	status        int
	code, message string
}

// errLost breaks the connection instead of answering.
var errLost = errors.New("answer lost")

// Exchange is one request and its answer.
type Exchange struct {
	Time   time.Time
	Method string
	// Target is the path with the query.
	Target string
	// Action is the operation that the client named.
	Action string
	Body   string
	// Status is 0 when the answer was lost.
	Status int
	Answer string
}

// keptExchanges is the number of exchanges that are remembered.
const keptExchanges = 1000

// Journal returns the latest exchanges, the oldest first.
func (s *Server) Journal() []Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Exchange(nil), s.journal...)
}

func (s *Server) record(e Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = append(s.journal, e)
	if extra := len(s.journal) - keptExchanges; extra > 0 {
		s.journal = s.journal[extra:]
	}
}

// Secrets of requests and answers, which the journal does not keep.
var (
	password   = regexp.MustCompile(`"login_password":\s*"[^"]*"`)
	kubeconfig = regexp.MustCompile(`"config":"apiVersion(?:[^"\\]|\\.)*"`)
)

// maxBody limits a request, in bytes.
const maxBody = 4 << 20

// handle checks a request as the gateway does, calls the operation and writes its answer.
func (s *Server) handle(operation func(*request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "request body cannot be read", http.StatusBadRequest)
			return
		}
		req := &request{r, body, requestID(r, body)}
		status, answer := s.answer(req, operation)
		s.record(Exchange{
			Time: s.clock.Now(), Method: r.Method, Target: r.URL.RequestURI(), Action: r.Header.Get("x-acs-action"),
			Body: password.ReplaceAllString(string(body), `"login_password":"`+mask+`"`), Status: status,
			Answer: kubeconfig.ReplaceAllString(string(answer), `"config":"`+mask+`"`),
		})
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		w.Header().Set("x-acs-request-id", req.id)
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	}
}

// answer returns the status and body for a request, status 0 for a lost answer.
func (s *Server) answer(r *request, operation func(*request) (any, error)) (status int, body []byte) {
	if refused := s.gateway(r); refused != nil {
		return refused.status, encode(map[string]any{
			"Code": refused.code, "Message": refused.message, "RequestId": r.id, "HostId": r.Host,
			"Recommend": "https://api.aliyun.com/troubleshoot?q=" + refused.code,
		})
	}
	result, err := operation(r)
	var e *refusal
	switch {
	case errors.Is(err, errLost):
		return 0, nil
	case errors.As(err, &e):
		return e.status, encode(map[string]any{"code": e.code, "message": e.message, "requestId": r.id, "status": e.status})
	case err != nil:
		return http.StatusInternalServerError, encode(map[string]any{"code": "InternalError", "message": err.Error(), "requestId": r.id})
	case result == nil:
		return http.StatusOK, nil
	}
	return http.StatusOK, encode(result)
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("acsfake: answer is not JSON: " + err.Error())
	}
	return bytes.TrimSpace(b.Bytes())
}

// inCluster is handle for operations below /clusters/{cluster}.
func (s *Server) inCluster(operation func(*request) (any, error)) http.HandlerFunc {
	return s.handle(func(r *request) (any, error) {
		if id := r.PathValue("cluster"); id != s.opts.ClusterID {
			return nil, refuse(http.StatusNotFound, "ErrorClusterNotFound", "The specified cluster %s does not exist.", id)
		}
		return operation(r)
	})
}

// decode reads a request body; a value of a wrong type is refused in the service's words.
func decode(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return refuse(http.StatusBadRequest, "InvalidParameter", "Unmarshal type error: expected=%s, got=%s, field=%s", wrong.Type, wrong.Value, wrong.Field)
	case err != nil:
		return refuse(http.StatusBadRequest, "InvalidParameter", "the body is not JSON: %v", err)
	}
	return nil
}
