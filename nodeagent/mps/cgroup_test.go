package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// The daemon is moved into the root of each hierarchy, and into nothing below.
func TestOutlive(t *testing.T) {
	for name, test := range map[string]struct{ files, written []string }{
		"version 2": {[]string{"cgroup.controllers", "cgroup.procs", "kubepods/cgroup.procs"}, []string{"cgroup.procs"}},
		"version 1": {
			[]string{"memory/cgroup.procs", "memory/kubepods/cgroup.procs", "unified/cgroup.controllers", "unified/cgroup.procs", "no hierarchy/x"},
			[]string{"memory/cgroup.procs", "unified/cgroup.procs"},
		},
		"neither": {[]string{"x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, file := range test.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), nil, 0o600))
			}
			if err := outlive(root, 17); len(test.written) == 0 {
				assert.ErrorContains(t, err, "has no control groups")
			} else {
				assert.NoError(t, err)
			}
			var written []string
			for _, file := range test.files {
				if text, err := os.ReadFile(filepath.Join(root, file)); err == nil && string(text) == "17" {
					written = append(written, file)
				}
			}
			assert.Equal(t, test.written, written)
		})
	}
	require.NoError(t, outlive("", 17), "nobody has asked")
}

// hostCgroups is where this machine has its control groups.
const hostCgroups = "/sys/fs/cgroup"

// agentVariable has the test binary be an agent that shares a GPU, with the directory of MPS that it names.
const agentVariable = "FAKE_AGENT"

// fakeAgent begins when its input has a line, and ends when that ends.
func fakeAgent(root string) int {
	input := bufio.NewReader(os.Stdin)
	_, _ = input.ReadString('\n')
	config := Config{
		Root: root, Cgroups: hostCgroups, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Modes: &modes{of: map[string]hardware.ComputeMode{first: hardware.DefaultMode}},
	}
	e, err := Start(context.Background(), config)
	if err == nil {
		_, _, err = e.Edits(first, 2048, 30)
	}
	fmt.Println("shared:", err)
	_, _ = input.ReadString('\n')
	return 0
}

// container is control groups as a runtime makes them for a container.
type container []string

// newContainer makes control groups in every hierarchy of this machine that takes a process without settings.
func newContainer(t *testing.T) (c container) {
	t.Helper()
	roots := []string{hostCgroups}
	if _, err := os.Stat(filepath.Join(hostCgroups, "cgroup.controllers")); err != nil {
		roots, err = filepath.Glob(filepath.Join(hostCgroups, "*"))
		require.NoError(t, err)
	}
	t.Cleanup(func() { _ = c.remove() })
	for _, root := range roots {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || filepath.Base(root) == "cpuset" {
			continue
		}
		group := filepath.Join(root, fmt.Sprintf("gpuplan-test-%d", os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Skipf("control groups cannot be made here: %v", err)
		}
		c = append(c, group)
	}
	if len(c) == 0 {
		t.Skip("this machine has no control groups")
	}
	return c
}

// add moves a process into the container.
func (c container) add(pid int) error {
	for _, group := range c {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kill ends all that is in the container, as a runtime does when its first process has ended.
func (c container) kill() {
	for _, group := range c {
		list, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		pids, _ := parsePIDs(string(list))
		kill(pids, syscall.SIGKILL)
	}
}

// remove removes the groups, which fails while there is a process in them.
func (c container) remove() error {
	var faults []error
	for _, group := range c {
		if err := os.Remove(group); !errors.Is(err, os.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// What is in the control groups of the agent's container ends with it, and the next container has other mounts.
func TestDaemonsOutliveTheContainer(t *testing.T) {
	m := newMachine(t)
	around := newContainer(t)
	self, err := os.Executable()
	require.NoError(t, err)
	unshare, err := exec.LookPath("/usr/bin/unshare")
	if err != nil {
		t.Skip(err)
	}
	agent := exec.Command(unshare, "--mount", self)
	agent.Env, agent.Stderr = environment(agentVariable+"="+m.root), t.Output()
	input, err := agent.StdinPipe()
	require.NoError(t, err)
	output, err := agent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, agent.Start())
	t.Cleanup(func() { _ = input.Close(); _ = agent.Wait() })
	if err := around.add(agent.Process.Pid); err != nil {
		t.Skipf("a process cannot be moved here: %v", err)
	}
	_, err = io.WriteString(input, "\n")
	require.NoError(t, err)
	said, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "shared: <nil>\n", said)
	is := m.processes(first)
	require.Len(t, is.daemons, 1)
	require.Len(t, is.servers, 1)

	require.Eventually(t, func() bool { around.kill(); return around.remove() == nil }, 30*time.Second, 5*time.Millisecond)
	require.Error(t, agent.Wait(), "the agent was killed")
	r, err := newDaemon(&Enforcer{Config: Config{Root: m.root}}, first).read()
	require.NoError(t, err)
	m.modes.of[first], m.times.start = hardware.ExclusiveProcess, 3*time.Second
	e, _ := m.start()
	m.becomes(e, first, ready)
	assert.Equal(t, is, m.processes(first), "the same processes")

	m.set("endless", "")
	require.NoError(t, e.InUse(nil))
	require.Eventually(t, func() bool { return m.mode(first) == hardware.DefaultMode }, time.Minute, 5*time.Millisecond)
	assert.Empty(t, find(filepath.Join(m.root, first, "pipe"), r.Mounts).all(), "what another container has started is ended, too")
}
