package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A job of a fleet is planned on a node of the cluster that the plan names.
func TestPlanOfFleet(t *testing.T) {
	var plan values
	require.NoError(t, json.Unmarshal([]byte(`{"root_module": {"resources": [
		{"mode": "managed", "type": "gpuplan_training_job", "values": {"name": "far", "planned_cluster": "member-2", "planned_placement": {"v100[0]": "master-0 GPU 0,4; worker-0 GPU 2,3: 50 GB/s, 2 NVLink rings"}}},
		{"mode": "managed", "type": "gpuplan_training_job", "values": {"name": "here", "planned_placement": {"v100[0]": "worker-0 GPU 1"}}}
	]}}`), &plan))
	jobs, err := plan.snapshot()
	require.NoError(t, err)
	var out bytes.Buffer
	reportPlan(&out, jobs)
	assert.Regexp(t, `far +master-0 +member-2/v100\[0\] +0,4 +50 GB/s`, out.String())
	assert.Regexp(t, `here +worker-0 +v100\[0\] +1 `, out.String())
}

func TestReportQueue(t *testing.T) {
	unit := func(job string, status contract.QueueUnitStatus) contract.QueueUnit {
		return contract.QueueUnit{
			Spec:   contract.QueueUnitSpec{ConsumerRef: corev1.ObjectReference{Kind: contract.ResourceBindingKind, Name: job + "-pytorchjob"}},
			Status: status,
		}
	}
	units := []contract.QueueUnit{
		unit("late", contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 2, Message: "max of jobs is 1"}),
		unit("next", contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 1, Message: "max of jobs is 1"}),
		unit("test", contract.QueueUnitStatus{Phase: contract.UnitRunning}),
	}
	var out bytes.Buffer
	reportQueue(&out, units)
	assert.Regexp(t, `(?m)^  next +Enqueued +1 +max of jobs is 1$`, out.String())
	assert.Regexp(t, `(?m)^  test +Running +- +-$`, out.String())
	assert.Equal(t, "next", firstOf(units))
	assert.Empty(t, firstOf(units[2:]))
}

func TestUntil(t *testing.T) {
	asked := 0
	require.NoError(t, until(t.Context(), time.Minute, func(context.Context) error {
		if asked++; asked < 2 {
			return errors.New("not yet")
		}
		return nil
	}))
	assert.Equal(t, 2, asked)
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorContains(t, until(ended, time.Minute, func(context.Context) error { return errors.New("not yet") }), "not yet")
	asked = 0
	require.ErrorContains(t, until(t.Context(), 1100*time.Millisecond, func(ctx context.Context) error {
		if asked++; asked == 1 {
			return errors.New("not yet")
		}
		<-ctx.Done()
		return ctx.Err()
	}), "not yet", "what the end of the time has cut short says nothing")
}
