package acs

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// transportError is a request without an answer: nobody knows whether the service
// carried it out.
type transportError struct {
	operation, endpoint, advice string
	err                         error
}

// noAnswer is that a request of the operation got no answer, and what to do about it.
func (c *Client) noAnswer(operation string, err error) error {
	advice := "check the endpoint (GPUPLAN_CS_ENDPOINT) and the network"
	if c.noHost != "" && c.hasNoAddress(err) {
		advice = c.noHost
	}
	return &transportError{operation: operation, endpoint: c.Endpoint(), advice: advice, err: err}
}

// hasNoAddress reports whether an error means that the endpoint's name has no address; a proxy's may have none, too.
func (c *Client) hasNoAddress(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound && strings.EqualFold(strings.TrimSuffix(dns.Name, "."), c.base.Hostname())
}

func (e *transportError) Error() string {
	cause := e.err
	// The URL error repeats method and address; its cause is what matters.
	var u *url.Error
	if errors.As(cause, &u) {
		cause = u.Err
	}
	return fmt.Sprintf("%s: no answer from the Container Service API at %s: %v; %s", e.operation, e.endpoint, cause, e.advice)
}

func (e *transportError) Unwrap() error { return e.err }

func isTransport(err error) bool {
	var e *transportError
	return errors.As(err, &e)
}

// ambiguous reports whether a request may have been carried out although it failed.
func ambiguous(err error) bool {
	return isTransport(err) || serverFault(err) || errors.Is(err, errUnreadable)
}

// errUnreadable means that an answer came, which is not the JSON that it should be.
var errUnreadable = errors.New("decode answer")
