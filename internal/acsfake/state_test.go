package acsfake

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStateSurvivesARestart(t *testing.T) {
	var mu sync.Mutex
	var saved []byte
	save := func(o *Options) {
		o.OnChange = func(st State) {
			raw, err := json.Marshal(st)
			mu.Lock()
			defer mu.Unlock()
			if assert.NoError(t, err) {
				saved = raw
			}
		}
	}
	restart := func(b bench) bench {
		b.Close()
		mu.Lock()
		defer mu.Unlock()
		var st State
		require.NoError(t, json.Unmarshal(saved, &st))
		return newBench(t, func(o *Options) { save(o); o.State = &st })
	}

	first := newBench(t, save)
	path := first.create(t, poolBodyOf("v100", 2, `,"kubernetes_config":{"labels":[{"key":"a","value":"b"}]}`))
	status, _ := first.ask("POST", "/clusters/"+testCluster+"/components/kube-scheduler/config", `{"config":"{\"enableReservation\":true}"}`)
	require.Equal(t, 200, status)

	second := restart(first)
	_, before := first.ask("GET", path, "")
	_, after := second.ask("GET", path, "")
	assert.Equal(t, before, after)
	_, addon := second.ask("GET", "/clusters/"+testCluster+"/addon_instances/kube-scheduler", "")
	assert.Equal(t, "active", addon["state"], "an update ends with the process")
	assert.JSONEq(t, `{"enableReservation":true,"preemptionAlgorithm":"Auto"}`, addon["config"].(string))
	assert.Equal(t, first.Nodes(), second.Nodes())

	// Numbers go on, so that names are not used twice.
	second.create(t, poolBodyOf("other", 1, ""))
	assert.Equal(t, "cn-local.10.0.2.1", second.Nodes()[2].Name)
}

// A task that is cut off in the middle of making a node goes on after the restart and
// makes the same node again, not another one.
func TestTaskGoesOnAfterARestart(t *testing.T) {
	reached := make(chan struct{})
	backend := &scripted{}
	backend.on = func(ctx context.Context, call string) error {
		if call == "ensure cn-local.10.0.1.2" {
			close(reached)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	first := newBench(t, func(o *Options) { o.Backend = backend; o.TaskDuration = 0 })
	status, created := first.ask("POST", pools, poolBodyOf("v100", 3, ""))
	require.Equal(t, 200, status)
	select {
	case <-reached:
	case <-time.After(time.Minute):
		t.Fatal("the backend was not asked for the second node")
	}
	first.Close()
	st := first.State()
	require.Len(t, st.Pools[0].Nodes, 1)
	require.Equal(t, taskRunning, st.Tasks[0].State)

	again := &scripted{}
	second := newBench(t, func(o *Options) { o.Backend = again; o.State = &st })
	second.settle(t)
	assert.Equal(t, []string{"ensure cn-local.10.0.1.2", "ensure cn-local.10.0.1.3"}, again.calls)
	_, task := second.ask("GET", "/tasks/"+created["task_id"].(string), "")
	assert.Equal(t, "success", task["state"])
	state, nodes := poolState(t, second, pools+"/"+created["nodepool_id"].(string))
	assert.Equal(t, "active", state)
	assert.Equal(t, 3, nodes)
}

func TestStateIsACopy(t *testing.T) {
	b := newBench(t, nil)
	b.create(t, poolBodyOf("x", 1, `,"kubernetes_config":{"labels":[{"key":"a","value":"b"}]}`))
	st := b.State()
	st.Pools[0].Nodes[0].Labels["a"] = "changed"
	st.Pools[0].Info["name"] = "changed"
	assert.Equal(t, "b", b.Nodes()[0].Labels["a"])
	assert.Equal(t, "x", b.Nodes()[0].PoolName)
	node := b.Nodes()[0]
	node.Labels["a"] = "changed"
	assert.Equal(t, "b", b.Nodes()[0].Labels["a"])
}
