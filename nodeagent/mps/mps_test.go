package mps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// A GPU is shared from the first part of it to the last.
func TestSharing(t *testing.T) {
	m := newMachine(t)
	t.Setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "1") // of the agent, and nobody's business
	e, _ := m.start()
	assert.Empty(t, e.States())

	env, mounts, err := e.Edits(first, 2048, 30)
	require.NoError(t, err)
	assert.Equal(t, []string{"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30"}, env)
	require.Equal(t, []Mount{{Host: filepath.Join(m.root, first, "client"), Container: "/tmp/nvidia-mps"}}, mounts)
	offered, err := os.ReadDir(mounts[0].Host)
	require.NoError(t, err)
	require.Len(t, offered, 1, "a client has no socket by which it could stop the daemon")
	connection, err := net.Dial("unix", filepath.Join(mounts[0].Host, offered[0].Name()))
	require.NoError(t, err)
	require.NoError(t, connection.Close())

	assert.Equal(t, []State{{UUID: first, Ready: true}}, e.States())
	assert.Equal(t, hardware.ExclusiveProcess, m.mode(first))
	assert.Equal(t, hardware.DefaultMode, m.mode(second))
	environ, err := os.ReadFile(filepath.Join(m.knobs, "environment"))
	require.NoError(t, err)
	assert.Contains(t, string(environ), "CUDA_VISIBLE_DEVICES="+first)
	assert.NotContains(t, string(environ), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")

	is := m.processes(first)
	require.Len(t, is.daemons, 1)
	require.Len(t, is.servers, 1)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", is.daemons[0]))
	require.NoError(t, err)
	_, fields, _ := strings.Cut(string(stat), ") ") // state, parent, process group, session: proc(5)
	assert.Equal(t, strconv.Itoa(is.daemons[0]), strings.Fields(fields)[3], "it does not end with the session of the agent")
	limits := func() string {
		return m.ask(first, "get_device_pinned_mem_limit %d 0", is.servers[0]) + " " + m.ask(first, "get_active_thread_percentage %d", is.servers[0])
	}
	assert.Equal(t, "2048M 30.0", limits())

	env, _, err = e.Edits(first, 1025, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1025M"}, env)
	assert.Equal(t, "2048M 100.0", limits(), "the largest memory, and one without a limit of cores")
	_, _, err = e.Edits(second, 512, 10)
	require.NoError(t, err)
	assert.Len(t, e.States(), 2)
	assert.Equal(t, is, m.processes(first), "each GPU has a daemon of its own")

	require.NoError(t, e.InUse([]Share{{first, 1025, 40}, {first, 1000, 5}}))
	require.Eventually(t, func() bool { return limits() == "1025M 40.0" }, 30*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool { return len(m.processes(second).all()) == 0 && m.mode(second) == hardware.DefaultMode }, 30*time.Second, 5*time.Millisecond)
	assert.Equal(t, is, m.processes(first), "it has gone on")

	m.modes.mu.Lock()
	m.modes.of[second] = hardware.ExclusiveThread
	m.modes.mu.Unlock()
	_, _, err = e.Edits(second, 512, 10)
	require.NoError(t, err, "a GPU is shared again")
	require.NoError(t, e.InUse(nil))
	gone := func(uuid string, mode hardware.ComputeMode) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(m.root, uuid))
			return os.IsNotExist(err)
		}, 30*time.Second, 5*time.Millisecond)
		assert.Empty(t, m.processes(uuid).all())
		assert.Equal(t, mode, m.mode(uuid))
	}
	gone(first, hardware.DefaultMode)
	gone(second, hardware.ExclusiveThread)
	require.Eventually(t, func() bool { return len(e.States()) == 0 }, 30*time.Second, 5*time.Millisecond)
}

func TestDaemonsOutliveTheAgent(t *testing.T) {
	m := newMachine(t)
	e, stop := m.start()
	_, _, err := e.Edits(first, 2048, 30)
	require.NoError(t, err)
	is := m.processes(first)
	stop()

	e, stop = m.start()
	m.becomes(e, first, ready)
	assert.Equal(t, is, m.processes(first), "the same processes")
	_, _, err = e.Edits(first, 1024, 20)
	require.NoError(t, err)
	assert.Equal(t, "2048M", m.ask(first, "get_device_pinned_mem_limit %d 0", is.servers[0]), "what was in use before counts")
	stop()

	for _, pid := range is.all() {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.Eventually(t, func() bool { return len(m.processes(first).all()) == 0 }, 30*time.Second, 5*time.Millisecond)
	e, _ = m.start()
	m.becomes(e, first, ready)
	after := m.processes(first)
	require.Len(t, after.servers, 1, "both have ended meanwhile, and their sockets were left")
	assert.Equal(t, "2048M", m.ask(first, "get_device_pinned_mem_limit %d 0", after.servers[0]))
	require.NoError(t, e.InUse(nil))
	require.Eventually(t, func() bool { return m.mode(first) == hardware.DefaultMode && len(m.processes(first).all()) == 0 }, 30*time.Second, 5*time.Millisecond, "the mode of before both agents")
}

// The files of a container that has ended go when its image does, and with them what a server is started with. A daemon that an agent has
// started there goes on while it has a server.
func TestADaemonOfAContainerThatIsGone(t *testing.T) {
	m := newMachine(t)
	e, stop := m.start()
	_, mounts, err := e.Edits(first, 2048, 30)
	require.NoError(t, err)
	stop()
	before := m.processes(first)
	d := newDaemon(&Enforcer{Config: Config{Root: m.root}}, first)
	r, err := d.read()
	require.NoError(t, err)
	r.Mounts = "mnt:[1]" // of the container of before
	require.NoError(t, d.write(r))
	programs := os.Getenv("PATH")
	require.NoError(t, os.Rename(programs, programs+".new"))
	t.Setenv("PATH", programs+".new")

	e, _ = m.start()
	m.becomes(e, first, ready)
	assert.Equal(t, before, m.processes(first), "what uses the GPU goes on")
	require.NoError(t, syscall.Kill(before.servers[0], syscall.SIGKILL))
	require.Eventually(t, func() bool {
		now := m.processes(first)
		return len(now.daemons) == 1 && now.daemons[0] != before.daemons[0] && len(now.servers) == 1
	}, 30*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		connection, err := net.Dial("unix", filepath.Join(mounts[0].Host, "control"))
		return err == nil && connection.Close() == nil
	}, 30*time.Second, 5*time.Millisecond, "containers that run have the new socket")
}

func TestDaemonThatEnds(t *testing.T) {
	m := newMachine(t)
	e, _ := m.start()
	_, mounts, err := e.Edits(first, 2048, 30)
	require.NoError(t, err)
	before := m.processes(first)
	m.set("die", "Unable to make sense of this machine")
	require.NoError(t, syscall.Kill(before.daemons[0], syscall.SIGKILL))
	m.becomes(e, first, says("Unable to make sense of this machine"))
	select {
	case <-e.Changed():
	default:
		assert.Fail(t, "nobody was told")
	}
	_, _, err = e.Edits(first, 2048, 30)
	assert.ErrorContains(t, err, "a part of GPU "+first+" cannot be enforced now: the MPS control daemon has ended")
	assert.Equal(t, hardware.ExclusiveProcess, m.mode(first), "programs that lost their limits do not get the GPU")

	m.unset("die")
	m.becomes(e, first, ready)
	after := m.processes(first)
	require.Len(t, after.servers, 1)
	assert.NotEqual(t, before, after)
	assert.Equal(t, "2048M", m.ask(first, "get_device_pinned_mem_limit %d 0", after.servers[0]))
	connection, err := net.Dial("unix", filepath.Join(mounts[0].Host, "control"))
	require.NoError(t, err, "containers that run have the new socket")
	require.NoError(t, connection.Close())

	require.NoError(t, syscall.Kill(after.servers[0], syscall.SIGKILL))
	require.Eventually(t, func() bool {
		now := m.processes(first)
		return len(now.servers) == 1 && now.servers[0] != after.servers[0]
	}, 30*time.Second, 5*time.Millisecond, "there is always a server")
}

// A daemon that ends again and again is started less and less often.
func TestBackOff(t *testing.T) {
	m := newMachine(t)
	m.times.firstRetry, m.times.longestRetry = time.Hour, 3*time.Hour
	m.set("die", "Unable")
	e, _ := m.start()
	_, _, err := e.Edits(first, 1, 0)
	assert.ErrorContains(t, err, "Unable")
	for range 3 {
		_, _, again := e.Edits(first, 1, 0)
		assert.EqualError(t, again, err.Error(), "each reason is an event on the Node")
	}

	var waits []time.Duration
	for _, failures := range []int{0, 1, 2, 1000} {
		waits = append(waits, m.times.retry(failures))
	}
	assert.Equal(t, []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour, 3 * time.Hour}, waits)

	m.unset("die")
	require.NoError(t, e.InUse(nil))
	require.Eventually(t, func() bool { return len(e.States()) == 0 }, 30*time.Second, 5*time.Millisecond)
	_, _, err = e.Edits(first, 1, 0)
	assert.NoError(t, err, "a GPU that is shared again does not wait")
}

func TestDaemonThatHangs(t *testing.T) {
	m := newMachine(t)
	m.times.answer = 10 * time.Second
	e, _ := m.start()
	_, _, err := e.Edits(first, 2048, 30)
	require.NoError(t, err)
	is := m.processes(first)
	m.set("hang", "")
	m.becomes(e, first, says("has not answered"))
	_, _, err = e.Edits(first, 2048, 30)
	assert.ErrorContains(t, err, "has not answered")
	assert.Equal(t, is, m.processes(first), "what uses the GPU goes on")
	m.unset("hang")
	m.becomes(e, first, ready)
	assert.Equal(t, is, m.processes(first))

	m.set("endless", "")
	require.NoError(t, e.InUse(nil))
	require.Eventually(t, func() bool { return len(m.processes(first).all()) == 0 }, time.Minute, 5*time.Millisecond, "nobody needs it any more")
}

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct{ knob, text, says string }{
		"no server":      {"barren", "", "the MPS server does not start: another program may use the GPU (/tmp/"},
		"fault":          {"status", statusFault, "a program has made a fatal error on the GPU"},
		"slow server":    {"status", statusInitializing, "the MPS server does not start"},
		"no settings":    {"refuse", "set_default_device", `answers "Insufficient privileges for UID 0`},
		"no memory":      {"refuse", "set_device", `answers "Insufficient privileges for UID 0`},
		"no percentage":  {"refuse", "set_active", `answers "Insufficient privileges for UID 0`},
		"percentage":     {"percent", "20.0", `answers "20.0" to "set_default_active_thread_percentage 30"`},
		"no start":       {"refuse", "start_server", `answers "Insufficient privileges for UID 0`},
		"garbage":        {"garbage", "\xff\x00 12 x", "the MPS control daemon answers"},
		"late words":     {"garbage", strings.Repeat("word ", 100000), "the MPS control daemon answers"},
		"server unknown": {"status", "SLEEPY", "the MPS server does not start"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if strings.Contains(test.says, "does not start") {
				m.times.start = 3 * time.Second
			}
			m.set(test.knob, test.text)
			e, _ := m.start()
			_, _, err := e.Edits(first, 2048, 30)
			require.ErrorContains(t, err, test.says)
			assert.Less(t, len(err.Error()), 1000)
			m.becomes(e, first, says(test.says))
			m.unset(test.knob)
			m.becomes(e, first, ready)
		})
	}
	t.Run("an old driver", func(t *testing.T) {
		m := newMachine(t)
		m.set("old", "")
		e, _ := m.start()
		_, _, err := e.Edits(first, 2048, 30)
		assert.NoError(t, err)
	})
	t.Run("a compute mode that may not be set", func(t *testing.T) {
		m := newMachine(t)
		m.modes.refused = errors.New("insufficient permissions")
		e, _ := m.start()
		_, _, err := e.Edits(first, 2048, 30)
		assert.ErrorContains(t, err, "insufficient permissions")
		assert.Empty(t, m.processes(first).all(), "no GPU is shared that everyone may use")
	})
}

// A daemon whose sockets have gone keeps its clients, until nobody has a part of the GPU.
func TestSocketsThatHaveGone(t *testing.T) {
	m := newMachine(t)
	e, _ := m.start()
	_, _, err := e.Edits(first, 2048, 30)
	require.NoError(t, err)
	is := m.processes(first)
	require.NoError(t, os.Remove(filepath.Join(m.root, first, "pipe", "control")))
	m.becomes(e, first, says("lives, but not its sockets"))
	assert.Equal(t, is, m.processes(first))
	require.NoError(t, e.InUse(nil))
	require.Eventually(t, func() bool { return len(m.processes(first).all()) == 0 }, time.Minute, 5*time.Millisecond)
	_, _, err = e.Edits(first, 2048, 30)
	assert.NoError(t, err)
}

// Of a GPU whose record is spoilt it is not known whether it is in use until someone says so: its clients go on.
func TestRecordThatIsSpoilt(t *testing.T) {
	m := newMachine(t)
	e, stop := m.start()
	for _, uuid := range []string{first, second} {
		_, _, err := e.Edits(uuid, 2048, 30)
		require.NoError(t, err)
	}
	is := m.processes(first)
	stop()
	for _, uuid := range []string{first, second} {
		require.NoError(t, os.WriteFile(filepath.Join(m.root, uuid, "record.json"), []byte(`{"computeMode`), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(m.root, "lost+found"), 0o755))
	e, stop = m.start()
	require.NoError(t, e.InUse([]Share{{first, 2048, 30}}))
	require.Eventually(t, func() bool { return m.mode(second) == hardware.DefaultMode && len(m.processes(second).all()) == 0 }, 30*time.Second, 5*time.Millisecond,
		"what is not in use is not shared")
	m.becomes(e, first, ready)
	assert.Equal(t, is, m.processes(first), "the same processes")
	stop()

	require.NoError(t, os.WriteFile(filepath.Join(m.root, first, "record.json"), []byte(`{"computeMode`), 0o600))
	e, _ = m.start()
	time.Sleep(3 * m.times.check)
	assert.Equal(t, is, m.processes(first), "nobody has said yet what is in use")
	_, _, err := e.Edits(first, 1024, 30)
	require.NoError(t, err)
	assert.Equal(t, is, m.processes(first))
	require.NoError(t, e.InUse(nil))
	require.Eventually(t, func() bool { return m.mode(first) == hardware.DefaultMode && len(e.States()) == 0 }, 30*time.Second, 5*time.Millisecond, "the mode that drivers begin with")
}

func TestPartsThatAreNone(t *testing.T) {
	m := newMachine(t)
	e, _ := m.start()
	for name, test := range map[string]struct {
		share Share
		says  string
	}{
		"no memory":     {Share{first, 0, 30}, "has 0 MiB of memory"},
		"less":          {Share{first, -1, 30}, "has -1 MiB of memory"},
		"many cores":    {Share{first, 1, 101}, "has 101 % of its cores"},
		"a MIG device":  {Share{"MIG-11111111", 1, 0}, "is not the UUID of a GPU"},
		"a path":        {Share{"GPU-/../../etc", 1, 0}, "is not the UUID of a GPU"},
		"nothing":       {Share{"", 1, 0}, "is not the UUID of a GPU"},
		"missing cores": {Share{first, 1, -5}, "has -5 % of its cores"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := e.Edits(test.share.UUID, test.share.MemoryMiB, test.share.CorePercent)
			assert.ErrorContains(t, err, test.says)
			assert.ErrorContains(t, e.InUse([]Share{test.share}), test.says)
		})
	}
	assert.Empty(t, e.States())
	_, _, err := e.Edits("GPU-33333333", 1, 0)
	assert.ErrorContains(t, err, "no such GPU")
}

func TestTerminate(t *testing.T) {
	const rows = "672       4         S            GPU-eee1c3c8-424e-0171    4026532340     /tmp/t\n" +
		"672       6         S            GPU-eee1c3c8-424e-0171    4026532340     /tmp/t\n" +
		"671       5         S            GPU-eee1c3c8-424e-0171    4026532267     python train.py"
	m := newMachine(t)
	e, _ := m.start()
	never := func(int) bool { assert.Fail(t, "asked"); return true }
	require.NoError(t, e.Terminate(t.Context(), first, never), "the GPU is not shared")
	_, _, err := e.Edits(first, 2048, 30)
	require.NoError(t, err)
	require.NoError(t, e.Terminate(t.Context(), first, never), "nobody uses it")

	m.set("clients", rows)
	require.NoError(t, e.Terminate(t.Context(), first, func(pid int) bool { return pid == 672 }))
	left, err := os.ReadFile(filepath.Join(m.knobs, "clients"))
	require.NoError(t, err)
	assert.Equal(t, "671", strings.Fields(string(left))[0], "the others go on")
	commands, err := os.ReadFile(filepath.Join(m.knobs, "commands"))
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(commands), "terminate_client"), "once for a process")

	m.set("immortal", "671")
	assert.ErrorContains(t, e.Terminate(t.Context(), first, func(int) bool { return true }), "Invalid process 671!")
	m.set("clients", "0 1 S x y z")
	assert.ErrorContains(t, e.Terminate(t.Context(), first, never), "the PID namespace of the host")
	m.set("clients", "many words")
	assert.ErrorContains(t, e.Terminate(t.Context(), first, never), "the MPS control daemon answers")
	m.unset("clients")

	m.set("hang", "")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, e.Terminate(ctx, first, never), context.DeadlineExceeded)
	m.unset("hang")
}

func TestEnforcement(t *testing.T) {
	hopper := hardware.GPU{ComputeCapability: hardware.ComputeCapability{Major: 9}}
	reading := func(details ...hardware.GPU) hardware.Reading {
		return hardware.Reading{Machine: gpu.Machine{GPUs: []gpu.GPU{{Index: 0, UUID: first}, {Index: 4, UUID: second}}}, GPUs: details}
	}
	for name, test := range map[string]struct {
		reading hardware.Reading
		refused error
		none    bool
		want    string
	}{
		"all is well":          {reading(hopper, hopper), nil, false, ""},
		"no GPU answers":       {reading(hardware.GPU{}, hardware.GPU{}), nil, false, ""},
		"MIG":                  {reading(hopper, hardware.GPU{MIG: hardware.MIG{Enabled: true}}), nil, false, "GPU 4: it is split into MIG devices"},
		"old GPUs":             {reading(hardware.GPU{ComputeCapability: hardware.ComputeCapability{Major: 6, Minor: 1}}, hopper), nil, false, "GPU 0: its compute capability is 6.1, and MPS limits clients from 7.0 on"},
		"modes may not be set": {reading(hopper, hopper), errors.New("insufficient permissions"), false, "GPU 0: insufficient permissions; GPU 4: insufficient permissions"},
		"no program":           {reading(hopper, hopper), nil, true, "nvidia-cuda-mps-control is not on PATH: it comes with the NVIDIA driver; give the agent's container NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.modes.refused = test.refused
			if test.none {
				t.Setenv("PATH", t.TempDir())
			}
			e, _ := m.start()
			want := contract.GPUSharing{Enforcement: contract.EnforcedByMPS}
			if test.want != "" {
				want = contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: test.want}
			}
			assert.Equal(t, want, e.Enforcement(test.reading))
			sets := m.modes.sets
			assert.Equal(t, want, e.Enforcement(test.reading))
			if test.refused == nil {
				assert.Equal(t, sets, m.modes.sets, "what is known is not tried again")
			}
			assert.Equal(t, hardware.DefaultMode, m.mode(first))
		})
	}
}

// Who gives out parts and enforces none says so, but where ACK's cGPU may.
func TestUnenforced(t *testing.T) {
	procfs := t.TempDir()
	tell := Unenforced(procfs)
	assert.Equal(t, contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: "the node agent was not told to enforce them (mps)"}, tell(hardware.Reading{}))
	require.NoError(t, os.Mkdir(filepath.Join(procfs, "cgpu_km"), 0o755))
	assert.Equal(t, contract.EnforcementUnknown, tell(hardware.Reading{}).Enforcement)
}

// What a driver says of itself, and what its daemon does, need not be the same.
func TestEnforcementOfADriverWithoutLimits(t *testing.T) {
	reading := func(cuda hardware.CUDAVersion) hardware.Reading {
		return hardware.Reading{
			Machine: gpu.Machine{GPUs: []gpu.GPU{{UUID: first}}}, DriverVersion: "470.161.03", CUDAVersion: cuda,
			GPUs: []hardware.GPU{{ComputeCapability: hardware.ComputeCapability{Major: 7}}},
		}
	}
	m := newMachine(t)
	e, _ := m.start()
	old := contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: "driver 470.161.03 has CUDA 11.4, and MPS limits memory from 11.5 on"}
	assert.Equal(t, old, e.Enforcement(reading(hardware.CUDAVersion{Major: 11, Minor: 4})))
	enforced := contract.GPUSharing{Enforcement: contract.EnforcedByMPS}
	for _, version := range []hardware.CUDAVersion{{}, {Major: 11, Minor: 5}, {Major: 12}} {
		assert.Equal(t, enforced, e.Enforcement(reading(version)), version)
	}

	m.set("refuse", "set_default_device_pinned_mem_limit")
	_, _, err := e.Edits(first, 2048, 30)
	require.Error(t, err)
	refused := contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: `GPU 0: the MPS control daemon answers "Insufficient privileges for UID 0." to "set_default_device_pinned_mem_limit 0 2048M"`}
	assert.Equal(t, refused, e.Enforcement(reading(hardware.CUDAVersion{})))
	require.NoError(t, e.InUse(nil))
	require.Eventually(t, func() bool { return len(e.States()) == 0 }, 30*time.Second, 5*time.Millisecond)
	assert.Equal(t, refused, e.Enforcement(reading(hardware.CUDAVersion{})), "also when nobody shares the GPU any more")

	m.unset("refuse")
	_, _, err = e.Edits(first, 1024, 30)
	require.NoError(t, err)
	assert.Equal(t, enforced, e.Enforcement(reading(hardware.CUDAVersion{})))
}

// A driver that hangs holds up neither who publishes what is enforced nor who asks for a part, and is no GPU's mode later on.
func TestDriverThatHangs(t *testing.T) {
	reading := hardware.Reading{
		Machine: gpu.Machine{GPUs: []gpu.GPU{{UUID: first}}},
		GPUs:    []hardware.GPU{{ComputeCapability: hardware.ComputeCapability{Major: 9}}},
	}
	m := newMachine(t)
	m.times.driver = 50 * time.Millisecond
	e, _ := m.start()
	m.modes.mu.Lock() // the driver hangs
	sharing := e.Enforcement(reading)
	assert.Equal(t, contract.NotEnforced, sharing.Enforcement)
	assert.Contains(t, sharing.Reason, "GPU 0: the driver has not answered since ")
	_, _, err := e.Edits(first, 2048, 30)
	assert.ErrorContains(t, err, "the driver has not answered since ")
	m.modes.mu.Unlock()
	m.becomes(e, first, ready)
	require.Eventually(t, func() bool { return e.Enforcement(reading).Enforcement == contract.EnforcedByMPS }, 30*time.Second, 5*time.Millisecond)

	m.modes.mu.Lock()
	m.modes.of[first] = hardware.Prohibited // what the daemon's loop sets, once it can
	m.becomes(e, first, says("the driver has not answered since "))
	assert.Equal(t, contract.EnforcedByMPS, e.Enforcement(reading).Enforcement, "that is known")
	require.NoError(t, e.InUse(nil))
	m.modes.mu.Unlock()
	require.Eventually(t, func() bool { return m.mode(first) == hardware.DefaultMode && len(e.States()) == 0 }, 30*time.Second, 5*time.Millisecond,
		"the mode of before, although what ended late was to set another")
}

func TestLastWords(t *testing.T) {
	const before, server = "[2026-11-28 03:47:30.000 Control  1037] Unable to help\n", "[2026-11-28 03:47:33.189 Server  1041] Server failed with status 806\n"
	d := newDaemon(&Enforcer{Config: Config{Root: t.TempDir()}}, first)
	require.NoError(t, os.MkdirAll(filepath.Dir(d.log()), 0o755))
	assert.Empty(t, d.lastWords())
	for name, test := range map[string]struct{ log, want string }{
		"nothing":        {"", " (see LOG)"},
		"of clients":     {server, " (see LOG)"},
		"a server":       {"[2026-11-28 03:47:31.942 Control  1037] Server 1041 exited with status 1\n" + server, " (LOG: Server exited with status 1)"},
		"without a date": {"An instance of this daemon is already running\n[2026-11-28 03:47:31.942 Control  1037] NEW UI\n", " (LOG: An instance of this daemon is already running)"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(d.log(), []byte(before), 0o600))
			d.attempt = d.logSize()
			require.NoError(t, os.WriteFile(d.log(), []byte(before+test.log), 0o600))
			assert.Equal(t, strings.ReplaceAll(test.want, "LOG", d.log()), d.lastWords())
		})
	}
	require.NoError(t, os.WriteFile(d.log(), []byte(before[:10]+"cannot"), 0o600))
	assert.Contains(t, d.lastWords(), "cannot", "the log was emptied")
}

func TestDirectoryThatIsTooLong(t *testing.T) {
	_, err := Start(t.Context(), Config{Root: "/run/" + strings.Repeat("a", 50)})
	assert.ErrorContains(t, err, "choose a shorter one")
}

func TestLogsAreEmptied(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "long"), make([]byte, 11), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "short"), make([]byte, 10), 0o600))
	emptyLogs(folder, 10)
	long, err := os.Stat(filepath.Join(folder, "long"))
	require.NoError(t, err)
	short, err := os.Stat(filepath.Join(folder, "short"))
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 10}, []int64{long.Size(), short.Size()})
}
