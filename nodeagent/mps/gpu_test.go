package mps

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nvml"
)

// probeVariable names the program of testdata/probe.cu, on a machine with a GPU that nobody else uses.
const probeVariable = "GPUPLAN_TEST_CUDA_PROBE"

// workplace is a GPU, and programs on it as containers have them.
type workplace struct {
	t     *testing.T
	probe string
	uuid  string
	modes *nvml.Modes
	root  string
}

// at is the workplace of a subtest.
func (w workplace) at(t *testing.T) *workplace {
	w.t = t
	return &w
}

// begin starts an agent's enforcer.
func (w *workplace) begin() (*Enforcer, context.CancelFunc) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	e, err := Start(ctx, Config{Root: w.root, Modes: w.modes, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))})
	require.NoError(w.t, err)
	return e, cancel
}

// program is a probe that runs.
type program struct {
	t       *testing.T
	command *exec.Cmd
	lines   *bufio.Scanner
	said    []string
}

// markVariable tells the processes of one program from those of others.
const markVariable = "GPUPLAN_TEST_MARK"

// start starts a probe in namespaces of its own, with the socket mounted, and a /dev/shm, as in a container.
func (w *workplace) start(mark string, mounts []Mount, env []string, mebibytes int, seconds float64) *program {
	w.t.Helper()
	script := "mount -t tmpfs -o size=64m shm /dev/shm && exec \"$@\""
	for _, mount := range mounts {
		script = fmt.Sprintf("mkdir -p %[2]s && mount --bind %[1]s %[2]s && mount -o remount,bind,ro %[2]s && %[3]s", mount.Host, mount.Container, script)
	}
	command := exec.Command("unshare", "-m", "-p", "-i", "-f", "--mount-proc", "--kill-child", "sh", "-c", script, "sh", w.probe, strconv.Itoa(mebibytes), fmt.Sprint(seconds))
	command.Env = environment(append(env, markVariable+"="+mark)...)
	command.Stderr = w.t.Output()
	out, err := command.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, command.Start())
	w.t.Cleanup(func() { _ = command.Process.Kill() })
	return &program{t: w.t, command: command, lines: bufio.NewScanner(out)}
}

// running waits until it computes.
func (p *program) running() {
	p.t.Helper()
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
		if p.lines.Text() == "running" {
			return
		}
	}
	require.Fail(p.t, "the probe does not run", "%v", p.said)
}

// end waits for its end, and returns what it has said.
func (p *program) end() (string, error) {
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
	}
	text := strings.Join(p.said, "\n")
	p.t.Logf("%s: %s", p.command.Env[len(p.command.Env)-1], strings.ReplaceAll(text, "\n", "; "))
	return text, p.command.Wait()
}

// run runs a probe to its end.
func (w *workplace) run(mark string, mounts []Mount, env []string, mebibytes int, seconds float64) string {
	text, _ := w.start(mark, mounts, env, mebibytes, seconds).end()
	return text
}

// marked tells the processes of a program by their environment.
func marked(mark string) func(int) bool {
	return func(pid int) bool {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err == nil && strings.Contains(string(environ)+"\x00", markVariable+"="+mark+"\x00")
	}
}

// number reads the number behind words.
func number(t *testing.T, text, words string) float64 {
	t.Helper()
	found := regexp.MustCompile(regexp.QuoteMeta(words) + ` ([0-9.]+)`).FindStringSubmatch(text)
	require.NotEmpty(t, found, "%q is not in %q", words, text)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return value
}

// With a real driver: parts of a GPU are enforced.
func TestOnAGPU(t *testing.T) {
	probe := os.Getenv(probeVariable)
	if probe == "" {
		t.Skipf("no GPU to try on: build testdata/probe.cu with nvcc, name the program with %s and run this test as root", probeVariable)
	}
	if err := missing(); err != nil {
		t.Skip(err)
	}
	source, err := nvml.Start(t.Context(), slog.New(slog.DiscardHandler), "/sys")
	require.NoError(t, err)
	reading, err := source.Read(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, reading.Machine.GPUs)
	root := fmt.Sprintf("/run/gpuplan-test-%d", os.Getpid())
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	w := &workplace{t: t, probe: probe, uuid: reading.Machine.GPUs[0].UUID, modes: nvml.NewModes(), root: root}
	before, err := w.modes.ComputeMode(w.uuid)
	require.NoError(t, err)
	e, stop := w.begin()
	t.Cleanup(func() { // whatever has failed, the GPU is as it was
		for _, pid := range find(filepath.Join(root, w.uuid, "pipe"), "").all() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = w.modes.SetComputeMode(w.uuid, before)
	})
	sharing := e.Enforcement(reading)
	require.Equal(t, contract.GPUSharing{Enforcement: contract.EnforcedByMPS}, sharing)

	share := func(t *testing.T, memoryMiB, corePercent int64) ([]string, []Mount) {
		t.Helper()
		began := time.Now()
		env, mounts, err := e.Edits(w.uuid, memoryMiB, corePercent)
		require.NoError(t, err)
		t.Logf("Edits took %v", time.Since(began))
		return env, mounts
	}
	t.Run("memory", func(t *testing.T) {
		for _, limit := range []int64{2048, 3000} {
			env, mounts := share(t, limit, 30)
			text := w.at(t).run("memory", mounts, env, 8192, 0.1)
			got := number(t, text, "allocated")
			assert.Contains(t, text, "out of memory")
			assert.Less(t, got, float64(limit))
			assert.Greater(t, got, float64(limit)-700, "but for the context, all of it")
		}
	})
	t.Run("cores", func(t *testing.T) {
		env, mounts := share(t, 4096, 0)
		all := number(t, w.at(t).run("all", mounts, env, 64, 2), "kernels/s")
		env, mounts = share(t, 4096, 30)
		part := number(t, w.at(t).run("part", mounts, env, 64, 2), "kernels/s")
		assert.InDelta(t, 0.3, part/all, 0.06)
	})
	t.Run("a program that changes its environment", func(t *testing.T) {
		require.NoError(t, e.InUse([]Share{{w.uuid, 3072, 40}}))
		_, mounts := share(t, 2048, 30)
		text := w.at(t).run("greedy", mounts, []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=16G", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"}, 8192, 1)
		assert.Less(t, number(t, text, "allocated"), 3072.0, "the largest part that is in use")
		assert.Contains(t, text, "out of memory")
		text = w.at(t).run("bare", nil, nil, 64, 0.1)
		assert.NotContains(t, text, "allocated", "without its socket it has nothing")
		text = w.at(t).run("elsewhere", mounts, []string{pipeVariable + "=/nowhere"}, 64, 0.1)
		assert.NotContains(t, text, "allocated")
	})
	t.Run("a program that is stopped", func(t *testing.T) {
		for range 3 {
			env, mounts := share(t, 2048, 30)
			other, victim := w.at(t).start("other", mounts, env, 64, 4), w.at(t).start("victim", mounts, env, 64, 30)
			other.running()
			victim.running()
			time.Sleep(300 * time.Millisecond) // both are in the middle of kernels
			began := time.Now()
			require.NoError(t, e.Terminate(t.Context(), w.uuid, marked("victim")))
			t.Logf("Terminate took %v", time.Since(began))
			require.NoError(t, victim.command.Process.Kill())
			_, err := victim.end()
			assert.Error(t, err)
			text, err := other.end()
			assert.NoError(t, err)
			assert.Contains(t, text, "kernels/s", "the other goes on")
		}
	})
	t.Run("another agent", func(t *testing.T) {
		env, mounts := share(t, 2048, 30)
		runs := w.at(t).start("runs", mounts, env, 64, 3)
		runs.running()
		is := find(filepath.Join(root, w.uuid, "pipe"), "")
		stop()
		e, stop = w.begin()
		require.Eventually(t, func() bool { s := e.States(); return len(s) == 1 && s[0].Ready }, time.Minute, 10*time.Millisecond)
		assert.Equal(t, is, find(filepath.Join(root, w.uuid, "pipe"), ""), "the same daemon and server")
		_, err := runs.end()
		assert.NoError(t, err)
	})
	t.Run("a daemon that is killed", func(t *testing.T) {
		_, mounts := share(t, 2048, 30)
		is := find(filepath.Join(root, w.uuid, "pipe"), "")
		require.Len(t, is.daemons, 1)
		require.NoError(t, syscall.Kill(is.daemons[0], syscall.SIGKILL))
		require.Eventually(t, func() bool {
			now := find(filepath.Join(root, w.uuid, "pipe"), "")
			s := e.States()
			return len(now.daemons) == 1 && now.daemons[0] != is.daemons[0] && s[0].Ready
		}, time.Minute, 10*time.Millisecond)
		env, again := share(t, 2048, 30)
		assert.Equal(t, mounts, again)
		text := w.at(t).run("after", mounts, env, 8192, 0.1)
		assert.Contains(t, text, "out of memory")
	})
	t.Run("programs of different users", func(t *testing.T) {
		env, mounts := share(t, 2048, 30)
		root := w.at(t).start("root", mounts, env, 64, 5)
		root.running()
		began := time.Now()
		user := w.at(t)
		script := filepath.Join(t.TempDir(), "user")
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec setpriv --reuid=1000 --regid=1000 --clear-groups "+w.probe+" \"$@\"\n"), 0o755))
		user.probe = script
		text, err := user.start("user", mounts, env, 64, 0.5).end()
		t.Logf("a program of user 1000 beside one of root has taken %v: %v, %q", time.Since(began), err, text)
		_, err = root.end()
		assert.NoError(t, err)
	})
	t.Run("no longer shared", func(t *testing.T) {
		require.NoError(t, e.InUse(nil))
		assert.EventuallyWithT(t, func(t *assert.CollectT) {
			after, err := w.modes.ComputeMode(w.uuid)
			require.NoError(t, err)
			assert.Equal(t, before, after)
			entries, err := os.ReadDir(root)
			require.NoError(t, err)
			assert.Empty(t, entries)
		}, time.Minute, 10*time.Millisecond)
		assert.Empty(t, e.States())
		if before == hardware.DefaultMode {
			assert.Contains(t, w.at(t).run("whole", nil, nil, 8192, 0.1), "allocated 8192 MiB")
		}
	})
	stop()
}
