package nri

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nri/nritest"
)

// start starts a plugin, and returns it and what ends it.
func start(t *testing.T, r *nritest.Runtime, create func(context.Context, Container) (cdi.Edits, error)) (*Plugin, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &Plugin{Socket: r.Socket, Root: "/", Create: create, Found: func(context.Context, []Container) {}, Ended: func() {}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	end := func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			require.Fail(t, "the plugin does not end")
		}
	}
	t.Cleanup(end)
	return p, end
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing came")
	}
	return value
}

// created asks a plugin about a container of a pod.
func created(t *testing.T, plugin api.PluginService, env []string, mounts ...*api.Mount) (*api.ContainerAdjustment, error) {
	t.Helper()
	return nritest.Create(t, plugin, &api.PodSandbox{Namespace: "team", Name: "p", Uid: "uid"}, &api.Container{Name: "main", Env: env, Mounts: mounts})
}

func TestCreate(t *testing.T) {
	r := nritest.New(t)
	r.Start()
	var answer cdi.Edits
	var refuses error
	asked := make(chan Container, 10)
	p, end := start(t, r, func(_ context.Context, c Container) (cdi.Edits, error) {
		asked <- c
		return answer, refuses
	})
	assert.Equal(t, "50-gpuplan", receive(t, r.Registered))
	plugin := receive(t, r.Plugins)
	assert.True(t, p.Asked())

	change, err := created(t, plugin, []string{"A=0", "A=1", "AB=2"})
	require.NoError(t, err)
	assert.Nil(t, change, "nothing to change")
	c := receive(t, asked)
	assert.Equal(t, Container{Pod: types.NamespacedName{Namespace: "team", Name: "p"}, PodUID: "uid", Name: "main", Env: []string{"A=0", "A=1", "AB=2"}}, c)
	value, ok := c.Getenv("A")
	assert.Equal(t, "1", value)
	assert.True(t, ok)
	_, ok = c.Getenv("B")
	assert.False(t, ok)

	answer = cdi.Edits{}
	answer.Env("N=1")
	change, err = created(t, plugin, nil, &api.Mount{Destination: "/data"})
	require.NoError(t, err)
	assert.False(t, receive(t, asked).Pending)
	assert.Empty(t, change.Mounts, "nothing is pending")
	change, err = created(t, plugin, nil, &api.Mount{Destination: cdi.PendingPath})
	require.NoError(t, err)
	assert.True(t, receive(t, asked).Pending)
	require.Len(t, change.Mounts, 1)
	removed, ok := change.Mounts[0].IsMarkedForRemoval()
	assert.True(t, ok)
	assert.Equal(t, cdi.PendingPath, removed)
	require.Len(t, change.Env, 1)
	assert.Equal(t, "N=1", change.Env[0].Key+"="+change.Env[0].Value)

	refuses = errors.New("no GPU for it")
	_, err = created(t, plugin, nil)
	assert.ErrorContains(t, err, "no GPU for it")
	refuses, answer = nil, cdi.Edits{"intelRdt": {}}
	_, err = created(t, plugin, nil)
	assert.ErrorContains(t, err, "NRI has no counterpart of intelRdt")

	end()
	assert.False(t, p.Asked())
}

// A container runs from its start, or from before the plugin came, until it has ended.
func TestRuns(t *testing.T) {
	r := nritest.New(t)
	before := &api.PodSandbox{Namespace: "team", Name: "before", Uid: "before"}
	r.Has(before, &api.Container{Id: "1", Name: "main", State: api.ContainerState_CONTAINER_RUNNING})
	r.Has(&api.PodSandbox{Namespace: "team", Name: "ended", Uid: "ended"}, &api.Container{Id: "2", Name: "main", State: api.ContainerState_CONTAINER_STOPPED})
	r.Start()
	p, _ := start(t, r, func(context.Context, Container) (cdi.Edits, error) { return nil, nil })
	plugin := receive(t, r.Plugins)
	runs := func(want ...types.UID) {
		t.Helper()
		for _, uid := range []types.UID{"before", "ended", "next"} {
			assert.Equal(t, slices.Contains(want, uid), p.Runs(uid), uid)
		}
	}
	runs("before")
	next := &api.PodSandbox{Namespace: "team", Name: "next", Uid: "next"}
	nritest.Started(t, plugin, next, &api.Container{Id: "3", Name: "a"})
	nritest.Started(t, plugin, next, &api.Container{Id: "4", Name: "b"})
	nritest.Ended(t, plugin, before, &api.Container{Id: "1", Name: "main"})
	nritest.Ended(t, plugin, next, &api.Container{Id: "3", Name: "a"})
	runs("next")
	_, err := plugin.StateChange(t.Context(), &api.StateChangeEvent{Event: api.Event_REMOVE_CONTAINER, Pod: next, Container: &api.Container{Id: "4"}})
	require.NoError(t, err)
	runs()
}

// A runtime that has no answer within 2 seconds goes on without the plugin: it gets a refusal before.
func TestCreateInTime(t *testing.T) {
	r := nritest.New(t)
	r.Start()
	late := make(chan error, 1)
	start(t, r, func(ctx context.Context, _ Container) (cdi.Edits, error) {
		<-ctx.Done() // as long as it takes
		late <- ctx.Err()
		return nil, nil
	})
	plugin := receive(t, r.Plugins)
	began := time.Now()
	_, err := created(t, plugin, nil)
	require.ErrorContains(t, err, "the node agent does not know in time what container main is to get")
	assert.Less(t, time.Since(began), 2*time.Second)
	require.ErrorIs(t, receive(t, late), context.DeadlineExceeded)
}

// A runtime may come later, start again, refuse a plugin, or go before it has configured it.
func TestRuntimeComesAndGoes(t *testing.T) {
	r := nritest.New(t)
	r.Behave(true, nil)
	p, _ := start(t, r, func(context.Context, Container) (cdi.Edits, error) { return nil, nil })
	assert.False(t, p.Asked())
	r.Start()
	receive(t, r.Registered)
	assert.False(t, p.Asked(), "the runtime has not configured it")
	r.Stop()
	r.Behave(false, errors.New("no plugins"))
	r.Start()
	require.Eventually(t, func() bool { return r.Connections() > 0 }, 20*time.Second, time.Millisecond)
	r.Stop()
	r.Behave(false, nil)
	r.Start()
	plugin := receive(t, r.Plugins)
	assert.True(t, p.Asked())
	_, err := created(t, plugin, nil)
	require.NoError(t, err)
	r.Stop()
	require.Eventually(t, func() bool { return !p.Asked() }, 20*time.Second, time.Millisecond, "a runtime that has gone asks nobody")
	r.Start()
	receive(t, r.Plugins)
}

func TestAdjustment(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Symlink("/dev", filepath.Join(root, "dev")))
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	seconds := 5
	given := cdi.Edits{
		"env":         {"NVIDIA_VISIBLE_DEVICES=GPU-1", "A=b=c", "NVIDIA_VISIBLE_DEVICES=void"},
		"deviceNodes": {map[string]any{"path": "/dev/nvidia0", "hostPath": "/dev/null"}, map[string]any{"path": "/dev/zero"}},
		"mounts":      {map[string]any{"hostPath": "/a", "containerPath": "/b", "options": []string{"ro"}}},
		"hooks": {
			map[string]any{"hookName": "createContainer", "path": "/h", "args": []string{"h", "x"}, "env": []string{"E=1"}, "timeout": seconds},
			map[string]any{"hookName": "poststop", "path": "/s"},
		},
	}
	change, err := adjustment(given, root)
	require.NoError(t, err)
	var env []string
	for _, e := range change.Env {
		env = append(env, e.Key+"="+e.Value)
	}
	assert.Equal(t, []string{"A=b=c", "NVIDIA_VISIBLE_DEVICES=void"}, env, "the later one counts")
	require.Len(t, change.Linux.Devices, 2)
	null, zero := change.Linux.Devices[0], change.Linux.Devices[1]
	assert.Equal(t, []any{"/dev/nvidia0", "c", int64(1), int64(3)}, []any{null.Path, null.Type, null.Major, null.Minor})
	assert.Equal(t, os.FileMode(0o666), *null.FileMode.Get())
	assert.Equal(t, []any{"/dev/zero", "c", int64(1), int64(5)}, []any{zero.Path, zero.Type, zero.Major, zero.Minor})
	require.Len(t, change.Mounts, 1)
	assert.True(t, change.Mounts[0].Cmp(&api.Mount{Source: "/a", Destination: "/b", Type: "bind", Options: []string{"ro"}}))
	require.Len(t, change.Hooks.CreateContainer, 1)
	hook := change.Hooks.CreateContainer[0].ToOCI()
	assert.Equal(t, []any{"/h", []string{"h", "x"}, []string{"E=1"}, &seconds}, []any{hook.Path, hook.Args, hook.Env, hook.Timeout})
	assert.Len(t, change.Hooks.Poststop, 1)

	for name, test := range map[string]struct {
		edits cdi.Edits
		want  string
	}{
		"another kind":     {cdi.Edits{"additionalGids": {7}}, "NRI has no counterpart of additionalGids"},
		"another hook":     {cdi.Edits{"hooks": {map[string]any{"hookName": "never"}}}, `NRI has no hook "never"`},
		"no such device":   {cdi.Edits{"deviceNodes": {map[string]any{"path": "/dev/nvidia77"}}}, "no such file"},
		"no device at all": {cdi.Edits{"deviceNodes": {map[string]any{"path": "/file"}}}, "is no device"},
		"unreadable":       {cdi.Edits{"env": {7}}, "read edits of a container"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := adjustment(test.edits, root)
			assert.ErrorContains(t, err, test.want)
		})
	}
}
