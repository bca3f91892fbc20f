package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const patience = 20 * time.Second

func registry(t *testing.T) *Registry {
	t.Helper()
	r, err := Open(filepath.Join(t.TempDir(), "processes"))
	require.NoError(t, err)
	return r
}

func shell(name, script string, output *bytes.Buffer) Spec {
	return Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Output: output}
}

func TestStartAndEnd(t *testing.T) {
	for _, test := range []struct {
		name, script string
		code         int
	}{
		{"success", "exit 0", 0},
		{"failure", "exit 7", 7},
		{"killed", "kill -9 $$", 137},
		{"terminated", "kill $$", 143},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := registry(t)
			p, err := r.Start(shell("p", test.script, &bytes.Buffer{}))
			require.NoError(t, err)
			assert.Equal(t, test.code, p.ExitCode())
			children, err := r.Running()
			require.NoError(t, err)
			assert.Empty(t, children)
		})
	}
}

func TestEnvironmentIsGiven(t *testing.T) {
	t.Setenv("SECRET_OF_THE_PLATFORM", "1")
	var output bytes.Buffer
	p, err := registry(t).Start(Spec{Name: "env", Path: "/usr/bin/env", Env: []string{"A=b"}, Output: &output})
	require.NoError(t, err)
	assert.Zero(t, p.ExitCode())
	assert.Equal(t, "A=b\n", output.String())
}

func TestMissingProgram(t *testing.T) {
	_, err := registry(t).Start(Spec{Name: "p", Path: "/no/such/program"})
	assert.ErrorContains(t, err, "/no/such/program")
}

func TestStop(t *testing.T) {
	r := registry(t)
	var output bytes.Buffer
	p, err := r.Start(shell("polite", `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done`, &output))
	require.NoError(t, err)
	children, err := r.Running()
	require.NoError(t, err)
	assert.Equal(t, []Child{{Name: "polite", Identity: p.Identity}}, children)
	assert.Positive(t, p.ResidentBytes())
	p.Stop(patience)
	<-p.Done()
	assert.False(t, p.Alive())
	assert.Zero(t, p.ResidentBytes())

	begin := time.Now()
	p, err = r.Start(shell("stubborn", `trap '' TERM; while :; do sleep 0.01; done`, &output))
	require.NoError(t, err)
	p.Stop(50 * time.Millisecond)
	assert.Less(t, time.Since(begin), patience)
	assert.False(t, p.Alive())
}

// A process that leaves another one behind takes it along.
func TestGroupEndsTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p, err := registry(t).Start(shell("parent", "sleep 1000 & echo $! > "+file, &bytes.Buffer{}))
	require.NoError(t, err)
	p.ExitCode()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	id, err := ParseIdentity(strings.TrimSpace(string(data)) + " 0")
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		_, err := Identify(id.PID)
		return err != nil
	}, patience, 10*time.Millisecond)
}

func TestReap(t *testing.T) {
	r := registry(t)
	left := exec.Command("sleep", "1000")
	left.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, left.Start())
	go left.Wait()
	id, err := Identify(left.Process.Pid)
	require.NoError(t, err)
	self, err := Self()
	require.NoError(t, err)
	reused := self
	reused.StartTicks++
	for name, text := range map[string]string{"left": id.String(), "reused": reused.String(), "cut-off": "1"} {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
	}
	reaped, err := r.Reap()
	require.NoError(t, err)
	assert.Equal(t, []string{"left"}, reaped, "a later process with the number of an earlier one is spared")
	assert.False(t, id.Alive())
	entries, err := os.ReadDir(r.dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// observed collects what Keep reports.
type observed struct {
	mu  sync.Mutex
	all []Status
}

func (o *observed) add(s Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, s)
}

func (o *observed) last() Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) == 0 {
		return Status{}
	}
	return o.all[len(o.all)-1]
}

func keep(t *testing.T, program func(context.Context) (Spec, error)) (*observed, func()) {
	t.Helper()
	r, o := registry(t), &observed{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Keep(ctx, func() time.Duration { return patience }, program, o.add)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return o, stop
}

func TestKeepBacksOff(t *testing.T) {
	o, stop := keep(t, func(context.Context) (Spec, error) { return shell("p", "exit 3", &bytes.Buffer{}), nil })
	require.Eventually(t, func() bool { return o.last().Restarts == 3 && o.last().BackOff > 0 }, patience, 10*time.Millisecond)
	stop()
	var backOffs []time.Duration
	for _, s := range o.all {
		if s.BackOff > 0 {
			assert.Equal(t, 3, s.Last.Code)
			backOffs = append(backOffs, s.BackOff)
		}
	}
	assert.Equal(t, []time.Duration{firstBackOff, 2 * firstBackOff}, backOffs, "the first restart comes at once")
	assert.True(t, o.last().Stopped)
}

func TestKeepRestartsAKilledProcessAtOnce(t *testing.T) {
	o, stop := keep(t, func(context.Context) (Spec, error) { return shell("p", "sleep 1000", &bytes.Buffer{}), nil })
	for restarts := range 5 {
		require.Eventually(t, func() bool { return o.last().Running != nil && o.last().Restarts == restarts }, patience, time.Millisecond)
		require.NoError(t, syscall.Kill(o.last().Running.PID, syscall.SIGKILL))
	}
	require.Eventually(t, func() bool { return o.last().Restarts == 5 }, patience, time.Millisecond)
	stop()
	for _, s := range o.all {
		assert.Zero(t, s.BackOff)
	}
}

func TestKeepReportsWhatCannotStart(t *testing.T) {
	cause := errors.New("no configuration")
	var mu sync.Mutex
	fails := true
	o, stop := keep(t, func(context.Context) (Spec, error) {
		mu.Lock()
		defer mu.Unlock()
		if fails {
			return Spec{}, cause
		}
		return shell("p", "sleep 1000", &bytes.Buffer{}), nil
	})
	require.Eventually(t, func() bool { return errors.Is(o.last().StartError, cause) }, patience, time.Millisecond)
	mu.Lock()
	fails = false
	mu.Unlock()
	require.Eventually(t, func() bool { return o.last().Running != nil }, patience, time.Millisecond)
	running := o.last().Running
	stop()
	assert.False(t, running.Alive())
	assert.Equal(t, 143, o.last().Last.Code)
}

func TestIsolated(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	r := registry(t)
	var output bytes.Buffer
	spec := shell("node", "echo $$; sleep 100 & exec sleep 100", &output)
	spec.Isolated = true
	p, err := r.Start(spec)
	require.NoError(t, err)
	namespace, err := os.Readlink(namespaceOf(strconv.Itoa(p.PID)))
	require.NoError(t, err)
	members := func() (pids []int) {
		files, err := filepath.Glob(namespaceOf("[0-9]*"))
		require.NoError(t, err)
		for _, file := range files {
			if of, _ := os.Readlink(file); of == namespace {
				pid, err := strconv.Atoi(strings.Split(file, "/")[2])
				require.NoError(t, err)
				pids = append(pids, pid)
			}
		}
		return pids
	}
	require.Eventually(t, func() bool { return len(members()) == 2 }, patience, time.Millisecond)
	assert.Greater(t, p.ResidentBytes(), residentBytes(p.PID), "that of its child counts")
	require.NoError(t, syscall.Kill(p.PID, syscall.SIGKILL), "the first process alone")
	assert.Equal(t, 128+int(syscall.SIGKILL), p.ExitCode())
	assert.Equal(t, "1\n", output.String())
	require.Eventually(t, func() bool { return len(members()) == 0 }, patience, time.Millisecond, "all of it ends")
}
