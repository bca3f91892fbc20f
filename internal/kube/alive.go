package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leased is how old the last sign of life in a Lease may be. Leaders renew theirs every few
// seconds; the clocks of two machines may differ.
const leased = time.Minute

// Alive reports whether a program runs that is a Deployment, or whose leader holds a Lease, of
// that name; known is false when the user may not look.
func (c *Client) Alive(ctx context.Context, namespace, name string) (alive, known bool, err error) {
	deployment, err := c.Typed.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && deployment.Status.AvailableReplicas > 0:
		return true, true, nil
	case apierrors.IsForbidden(err):
		return false, false, nil
	case err != nil && !IsNotFound(err):
		return false, false, fmt.Errorf("look for Deployment %s/%s: %w", namespace, name, c.discovered(err))
	}
	lease, err := c.Typed.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case IsNotFound(err):
		return false, true, nil
	case apierrors.IsForbidden(err):
		return false, false, nil
	case err != nil:
		return false, false, fmt.Errorf("look for Lease %s/%s: %w", namespace, name, c.discovered(err))
	}
	held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	return held && lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) < leased, true, nil
}
