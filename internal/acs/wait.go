package acs

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// patience is how many looks in turn may end without an answer before a wait gives up: some
// minutes of an outage, each look with repetitions of its own. What is waited for goes on meanwhile.
const patience = 30

// poll calls look until it is done or fails, and reports what changed.
func (c *Client) poll(ctx context.Context, progress func(Progress), look func() (now Progress, done bool, err error)) error {
	var last, reported Progress
	failed := 0
	for {
		now, done, err := look()
		switch {
		case err == nil:
			failed, last = 0, now
		case ctx.Err() != nil:
			last = cmp.Or(last, now)
		case !done && temporary(err) && failed < patience:
			failed++
			now.State, now.Message = last.State, "no answer yet: "+err.Error()
		default:
			return err
		}
		if now != reported && ctx.Err() == nil && progress != nil {
			progress(now)
			reported = now
		}
		if done {
			return err
		}
		if pause(ctx, c.pollInterval) != nil {
			return fmt.Errorf("stopped waiting (last seen: %s): %w", cmp.Or(last, now), context.Cause(ctx))
		}
	}
}

// WaitNodePool waits until a pool is active and size nodes are healthy; a pool whose
// deletion failed is an error then. With size < 0 it waits until the pool is idle, with
// whatever nodes it has. States that the service does not document count as busy.
func (c *Client) WaitNodePool(ctx context.Context, clusterID, poolID string, size int64, progress func(Progress)) (NodePool, error) {
	var pool NodePool
	err := c.poll(ctx, progress, func() (Progress, bool, error) {
		var err error
		if pool, err = c.GetNodePool(ctx, clusterID, poolID); err != nil {
			return Progress{}, false, err
		}
		s := pool.Status
		now := Progress{State: s.State, Message: fmt.Sprintf("%d of %d nodes healthy", s.Healthy, max(s.Total, size))}
		if problem := s.Problem(); problem != "" {
			now.Message += ", " + problem
		}
		switch s.State {
		case PoolActive:
			return now, size < 0 || s.Healthy == size && s.Total == size, nil
		case PoolDeleteFailed:
			if size >= 0 {
				return now, true, s.deleteFailed(poolID)
			}
			return now, true, nil
		}
		return now, false, nil
	})
	return pool, err
}

func (s NodePoolStatus) deleteFailed(poolID string) error {
	problem := s.Problem()
	if problem == "" {
		problem = "the service gave no reason"
	}
	return fmt.Errorf("node pool %s could not be deleted: %s", poolID, problem)
}

// WaitNodePoolGone waits until a pool does not exist any more.
func (c *Client) WaitNodePoolGone(ctx context.Context, clusterID, poolID string, progress func(Progress)) error {
	return c.poll(ctx, progress, func() (Progress, bool, error) {
		pool, err := c.GetNodePool(ctx, clusterID, poolID)
		if IsNotFound(err) {
			return Progress{State: "gone"}, true, nil
		}
		if err != nil {
			return Progress{}, false, err
		}
		s := pool.Status
		now := Progress{State: s.State, Message: fmt.Sprintf("%d nodes left", s.Total)}
		if s.State == PoolDeleteFailed {
			return now, true, s.deleteFailed(poolID)
		}
		return now, false, nil
	})
}

// WaitAddon waits until an add-on is active.
func (c *Client) WaitAddon(ctx context.Context, clusterID, name string, progress func(Progress)) (AddonInstance, error) {
	var instance AddonInstance
	err := c.poll(ctx, progress, func() (Progress, bool, error) {
		var err error
		if instance, err = c.GetAddon(ctx, clusterID, name); err != nil {
			return Progress{}, false, err
		}
		return Progress{State: instance.State, Message: instance.Name + " " + instance.Version}, instance.State == AddonActive, nil
	})
	return instance, err
}

// pause waits for d or the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
