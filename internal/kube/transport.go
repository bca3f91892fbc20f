package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// dialTimeout bounds how long a connection may take to open, and with HTTPS until the
	// server says its first word, which it does before it looks at any request.
	dialTimeout = 4 * time.Second
	// answerTimeout bounds how long the answer to a request may take, unless the
	// connection says otherwise. Watches are not bounded.
	answerTimeout = 30 * time.Second
	// patience is the longest pause after which a server may ask client-go to come
	// back: it tries ten times, with no bound of its own on the pauses.
	patience = 5 * time.Second
)

// UnreachableError means that the API server did not answer.
type UnreachableError struct {
	// Host is the server's URL.
	Host string
	// Err is why: the network's own error, or that time ran out.
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach the Kubernetes API at %s: %s; check that the kubeconfig and its context name the right cluster, or start the cluster", e.Host, networkCause(e.Err))
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// bound makes all clients of cfg give up on a server that does not answer, and say which.
func bound(cfg *rest.Config) {
	t := transport{host: cfg.Host, timeout: answerTimeout}
	if cfg.Timeout != 0 {
		t.timeout, cfg.Timeout = cfg.Timeout, 0 // client-go's own would also end watches
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
		if strings.HasPrefix(cfg.Host, "https://") {
			cfg.Dial = dialGreeted
		}
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		t.next = next
		return t
	})
}

// transport bounds requests and names the server in its errors.
type transport struct {
	host    string
	timeout time.Duration
	next    http.RoundTripper
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("watch") {
		return t.send(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(t.timeout, func() { cancel(fmt.Errorf("no answer within %v", t.timeout)) })
	stop := func() {
		timer.Stop()
		cancel(nil)
	}
	resp, err := t.send(r.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && r.Context().Err() == nil {
			err = &UnreachableError{Host: t.host, Err: cause}
		}
		stop()
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, stop: stop}
	return resp, nil
}

func (t transport) send(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	var (
		op        *net.OpError
		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &untrusted), errors.Is(err, errSilent):
		return nil, &UnreachableError{Host: t.host, Err: err}
	case err != nil:
		return nil, err
	case wantsTLS(resp):
		resp.Body.Close()
		return nil, &UnreachableError{Host: t.host, Err: errors.New("it serves HTTPS, and the address says http")}
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > int(patience.Seconds()) {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// errSilent is that of a server that takes connections and says nothing.
var errSilent = errors.New("it takes connections, and says nothing")

// dialGreeted connects to a server that has to speak soon.
func dialGreeted(ctx context.Context, network, address string) (net.Conn, error) {
	deadline := time.Now().Add(dialTimeout)
	conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &greeted{Conn: conn}, conn.SetReadDeadline(deadline)
}

// greeted is a connection that has a deadline for the first word.
type greeted struct {
	net.Conn
	heard bool
}

func (c *greeted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case c.heard:
	case n > 0:
		c.heard, err = true, errors.Join(err, c.SetReadDeadline(time.Time{}))
	case err != nil && !errors.Is(err, net.ErrClosed):
		err = errSilent // and no cause by which client-go would ask again
	}
	return n, err
}

func (c *greeted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && !c.heard && !errors.Is(err, net.ErrClosed) {
		err = errSilent
	}
	return n, err
}

// wantsTLS reports whether a server of HTTPS answers that it was spoken to in plain HTTP, as those in Go do.
func wantsTLS(resp *http.Response) bool {
	if resp.TLS != nil || resp.StatusCode != http.StatusBadRequest {
		return false
	}
	begin := make([]byte, 64)
	n, _ := io.ReadFull(resp.Body, begin) // who reads the body meets the error
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin[:n]), resp.Body), resp.Body}
	return bytes.Contains(begin[:n], []byte("HTTP request to an HTTPS server"))
}

// WrappedRoundTripper lets client-go see through the wrapper.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// body ends the bound of a request when its answer was read.
type body struct {
	io.ReadCloser
	stop func()
}

func (b *body) Close() error {
	defer b.stop()
	return b.ReadCloser.Close()
}

// networkCause returns the words that matter of a network error: "connection refused".
func networkCause(err error) string {
	var (
		dns       *net.DNSError
		syscall   *os.SyscallError
		timeout   net.Error
		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &untrusted):
		return fmt.Sprintf("the kubeconfig's certificate authority does not vouch for it (%v)", untrusted.Err)
	case errors.Is(err, errSilent):
		return errSilent.Error()
	case errors.As(err, &dns):
		return "no such host " + dns.Name
	case errors.As(err, &syscall):
		return syscall.Err.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no connection within " + dialTimeout.String()
	default:
		return err.Error()
	}
}

// isBrokenConnection reports whether a connection ended in the middle of a request.
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
