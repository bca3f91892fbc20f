package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrNotServed means that the API server serves no such kind: its CRD is not installed.
var ErrNotServed = errors.New("the API server does not serve this kind")

// discoveryLag is how long discovery may list a kind whose CRD is gone.
const discoveryLag = 5 * time.Second

// noCore is the answer of a server that lacks what every cluster serves.
const noCore = "it serves no namespaces"

// IsNotFound reports whether the API server says that an object does not exist. The 404 of a proxy or load
// balancer, which names none, says nothing of it.
func IsNotFound(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isStray reports whether err is a 404 that is not about an object.
func isStray(err error) bool { return apierrors.IsNotFound(err) && !IsNotFound(err) }

// answered is the error of a request about objects of a kind. A stray 404 comes from a server that does not serve the
// kind, whose CRD has gone since discovery, from something else in the server's place, or from an admission webhook:
// discovery tells.
func (c *Client) answered(ctx context.Context, gvk schema.GroupVersionKind, err error) error {
	if !isStray(err) {
		return plain(err)
	}
	var unserved error
	discover := func(context.Context) (bool, error) {
		c.served.renew(time.Now())
		_, unserved = c.mapping(gvk)
		return unserved != nil, nil
	}
	api := !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if api {
		_, _ = discover(ctx)
	} else { // it may be that of a kind that is served no more
		_ = wait.PollUntilContextTimeout(ctx, discoveryPoll, discoveryLag, true, discover)
	}
	switch {
	case unserved != nil:
		return unserved
	case api:
		return plain(err)
	default:
		return c.discovered(err)
	}
}

// discovered is the error of a request that every API server answers: a stray 404 is not of one.
func (c *Client) discovered(err error) error {
	if !isStray(err) {
		return plain(err)
	}
	said := err.Error()
	if cause, raw := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); raw {
		said = cause.Message
	}
	return c.stranger(fmt.Sprintf("404, %.100q", said))
}

// stranger is the error of an answer that no API server gives.
func (c *Client) stranger(answer string) error {
	return &UnreachableError{Host: c.Config.Host, Err: fmt.Errorf("something else answers there: %s", answer)}
}
