package kube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"k8s.io/client-go/rest"
)

// UnreachableError tells that no connection to the API server came about.
type UnreachableError struct {
	// Host is the server's URL.
	Host string
	// Err is the network's own error.
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach the Kubernetes API at %s: %s; check that the kubeconfig and its context name the right cluster, or start the cluster", e.Host, networkCause(e.Err))
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// nameUnreachable makes every client of cfg say which server did not answer.
func nameUnreachable(cfg *rest.Config) {
	host := cfg.Host
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return unreachableTripper{host: host, next: next}
	})
}

type unreachableTripper struct {
	host string
	next http.RoundTripper
}

func (t unreachableTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return nil, &UnreachableError{Host: t.host, Err: err}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go see through the wrapper.
func (t unreachableTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

// networkCause returns the words that matter of a dial error: "connection refused".
func networkCause(err error) string {
	var (
		dns     *net.DNSError
		syscall *os.SyscallError
		timeout net.Error
	)
	switch {
	case errors.As(err, &dns):
		return "no such host " + dns.Name
	case errors.As(err, &syscall):
		return syscall.Err.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer within " + dialTimeout.String()
	default:
		return err.Error()
	}
}

// isBrokenConnection tells that a connection ended in the middle of a request.
func isBrokenConnection(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// plain drops the URL that net/http puts before an error that already names the server.
func plain(err error) error {
	var unreachable *UnreachableError
	if request := (*url.Error)(nil); errors.As(err, &request) && errors.As(err, &unreachable) {
		return unreachable
	}
	return err
}
