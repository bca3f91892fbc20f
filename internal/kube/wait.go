package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Check looks at an object and says whether it is as wanted, and its status for people.
type Check func(obj *unstructured.Unstructured) (done bool, status string, err error)

// WaitFor watches an object until check is done or fails, or ctx ends, and
// returns the object it saw last. It waits for an object that does not exist
// yet; one that vanishes meanwhile ends the wait with an error that answers to
// [IsNotFound]. progress, which may be nil, is called with every new status.
// Lost connections are not errors: the wait goes on until ctx ends.
func (c *Client) WaitFor(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string,
	check func(obj *unstructured.Unstructured) (done bool, status string, err error), progress func(status string)) (*unstructured.Unstructured, error) {
	seen := false
	return c.waitFor(ctx, gvk, namespace, name, func(obj *unstructured.Unstructured) (bool, string, error) {
		if obj != nil {
			seen = true
			return check(obj)
		}
		if seen {
			gone := apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
			return false, "", fmt.Errorf("it was deleted meanwhile: %w", gone)
		}
		return false, "does not exist yet", nil
	}, progress)
}

// waitFor is WaitFor with a check that also sees the object's absence, as nil.
func (c *Client) waitFor(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, check Check, progress func(string)) (*unstructured.Unstructured, error) {
	resource, err := c.resource(gvk, namespace)
	if err != nil {
		return nil, fmt.Errorf("wait for %s: %w", describe(gvk, namespace, name), err)
	}
	w := &waiter{client: c, gvk: gvk, resource: resource, name: name, check: check, progress: progress}
	if err := w.run(ctx); err != nil {
		return w.last, fmt.Errorf("wait for %s: %w", describe(gvk, namespace, name), err)
	}
	return w.last, nil
}

// waiter follows one object by list and watch.
type waiter struct {
	client   *Client
	gvk      schema.GroupVersionKind
	resource dynamic.ResourceInterface
	name     string
	check    Check
	progress func(string)

	last   *unstructured.Unstructured
	status string
}

// Pauses between two lists after the server failed, doubling from the first to the last.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

func (w *waiter) run(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		done, err := w.listAndWatch(ctx)
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return w.ended(ctx)
		case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			pause = firstPause // the watch ran out, as watches do
		case isTransient(err):
			w.report(plain(err).Error())
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return w.ended(ctx)
		case <-time.After(pause):
		}
	}
}

// ended is the error of a wait whose context ended, with what was seen last.
func (w *waiter) ended(ctx context.Context) error {
	err := context.Cause(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = &endedError{"timed out", err}
	case errors.Is(err, context.Canceled):
		err = &endedError{"interrupted", err}
	}
	if w.status == "" {
		return err
	}
	return fmt.Errorf("%w; last status: %s", err, w.status)
}

// endedError says in a word why a wait ended, without those of Go's library.
type endedError struct {
	text string
	err  error
}

func (e *endedError) Error() string { return e.text }
func (e *endedError) Unwrap() error { return e.err }

// listAndWatch looks at the object now and at each change until the check is
// done, the watch runs out (no error), or something fails.
func (w *waiter) listAndWatch(ctx context.Context) (done bool, err error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()}
	list, err := w.resource.List(ctx, options)
	if err != nil {
		return false, w.client.answered(ctx, w.gvk, err)
	}
	var now *unstructured.Unstructured
	for i := range list.Items {
		if list.Items[i].GetName() == w.name {
			now = &list.Items[i]
		}
	}
	if done, err := w.look(now); done || err != nil {
		return done, err
	}

	options.ResourceVersion = list.GetResourceVersion()
	changes, err := w.resource.Watch(ctx, options)
	if err != nil {
		return false, w.client.answered(ctx, w.gvk, err)
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case event, open := <-changes.ResultChan():
			if !open {
				return false, nil
			}
			done, err := w.take(event)
			if done || err != nil {
				return done, err
			}
		}
	}
}

// take handles one event of the watch.
func (w *waiter) take(event watch.Event) (done bool, err error) {
	if event.Type == watch.Error {
		return false, apierrors.FromObject(event.Object)
	}
	obj, ok := event.Object.(*unstructured.Unstructured)
	if !ok || obj.GetName() != w.name {
		return false, nil
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		return w.look(obj)
	case watch.Deleted:
		return w.look(nil)
	default:
		return false, nil
	}
}

// look runs the check on the object's present state, nil when it does not exist.
func (w *waiter) look(obj *unstructured.Unstructured) (done bool, err error) {
	if obj != nil {
		w.last = obj
	}
	done, status, err := w.check(obj)
	w.report(status)
	return done, err
}

func (w *waiter) report(status string) {
	if status == "" || status == w.status {
		return
	}
	w.status = status
	if w.progress != nil {
		w.progress(status)
	}
}

// isTransient tells errors that a later list may not meet again.
func isTransient(err error) bool {
	var unreachable *UnreachableError
	return errors.As(err, &unreachable) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		isBrokenConnection(err)
}
