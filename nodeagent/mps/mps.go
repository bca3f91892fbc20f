// Package mps keeps programs within their parts of GPUs by NVIDIA's Multi-Process Service. Each shared GPU has a control
// daemon of its own with one server, and is in the compute mode in which nobody else may use it. A client is told its
// limits by its environment, and the server has the largest of them, which no client can exceed, whatever its
// environment says.
//
// Daemons outlive the agent and its container, so that its update ends no training: they are in sessions of their own and in
// the control groups of the host, and are found again by their directories. They end with the container of the agent,
// however, where that has a PID namespace of its own.
package mps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

// ComputeModes reads and sets the compute modes of GPUs by UUID.
type ComputeModes interface {
	ComputeMode(uuid string) (hardware.ComputeMode, error)
	SetComputeMode(uuid string, mode hardware.ComputeMode) error
}

// Config is what an Enforcer needs.
type Config struct {
	// Root is the directory for sockets, logs and records, one folder per shared GPU. It has to be empty after a boot,
	// and the host's where the agent runs in a container, since containers with parts of GPUs get a folder of it.
	Root string
	// Cgroups is where the host's control groups are, into which daemons are moved; "" leaves them in those of the agent.
	Cgroups string
	Modes   ComputeModes
	Log     *slog.Logger
}

// Share is a part of one GPU.
type Share struct {
	// UUID is that of the GPU.
	UUID string
	// MemoryMiB is memory of the GPU in MiB, CorePercent the part of its multiprocessors, 0 for all of them.
	MemoryMiB, CorePercent int64
}

// check says what is wrong with a share.
func (s Share) check() error {
	switch {
	case !uuidPattern.MatchString(s.UUID):
		return fmt.Errorf("%q is not the UUID of a GPU of which MPS gives parts", s.UUID)
	case s.MemoryMiB <= 0:
		return fmt.Errorf("a part of GPU %s has %d MiB of memory: it must be positive", s.UUID, s.MemoryMiB)
	case s.CorePercent < 0 || s.CorePercent > allCores:
		return fmt.Errorf("a part of GPU %s has %d %% of its cores: it must be 0 to %d", s.UUID, s.CorePercent, allCores)
	}
	return nil
}

// uuidPattern is also what makes a UUID the name of a folder.
var uuidPattern = regexp.MustCompile(`^GPU-[0-9A-Za-z-]+$`)

const allCores = 100

// with are limits that leave room for a share, too.
func (l limits) with(s Share) limits {
	cores := s.CorePercent
	if cores == 0 {
		cores = allCores
	}
	return limits{MemoryMiB: max(l.MemoryMiB, s.MemoryMiB), CorePercent: max(l.CorePercent, cores)}
}

// Mount is a folder of the host in a container, which cannot write to it.
type Mount struct{ Host, Container string }

// State is how one shared GPU is.
type State struct {
	UUID string
	// Ready means that clients may start; Reason says why not, "" while that is being found out.
	Ready  bool
	Reason string
}

// Enforcer enforces parts of the GPUs of this node. Its methods may be called from different goroutines.
type Enforcer struct {
	Config
	times   times
	changed chan struct{}
	// ctx ends the loops of the GPUs.
	ctx context.Context

	mu   sync.Mutex
	gpus map[string]*daemon
	// unknown are GPUs that an earlier agent has shared and of which the record cannot be read: [Enforcer.InUse] tells whether they
	// still are.
	unknown []string
	// settable are the GPUs whose mode could be set.
	settable map[string]bool

	// modesMu is held from reading the mode of a GPU to setting it, however long the driver takes: by nobody but calls that
	// have a limit.
	modesMu sync.Mutex
	// trials find out which modes can be set.
	trials watchdog.Reads[map[string]error]
}

// times are how long things may take.
type times struct {
	// answer is for an answer of a daemon, start for a daemon or a server to be there, edits for the answer of [Enforcer.Edits]:
	// the kubelet waits 30 seconds.
	answer, start, edits time.Duration
	// driver is for an answer of the driver.
	driver time.Duration
	// check is how often a daemon is looked at, poll how often while something is waited for.
	check, poll time.Duration
	// firstRetry is how long after its start a daemon is started again that has ended; it doubles up to longestRetry, and
	// begins again for one that has run for settled.
	firstRetry, longestRetry, settled time.Duration
	// logs is to how many bytes a log grows before it is emptied.
	logs int64
}

// retry is how long after its start a daemon is started again that has ended that often before.
func (t times) retry(failures int) time.Duration {
	const most = 16 // doublings, so that the time fits
	return min(t.firstRetry<<min(failures, most), t.longestRetry)
}

// longestSocket is how long the path of a socket may be (unix(7): 108 bytes with the end of the string).
const longestSocket = 107

// Start returns the enforcer of this node. It goes on with the GPUs that the agent before has shared: their daemons are
// found again, or started again. When ctx ends it leaves them alone.
func Start(ctx context.Context, config Config) (*Enforcer, error) {
	return start(ctx, config, times{
		answer: 5 * time.Second, start: 10 * time.Second, edits: 25 * time.Second, driver: 10 * time.Second, check: 10 * time.Second, poll: 50 * time.Millisecond,
		firstRetry: time.Second, longestRetry: time.Minute, settled: time.Minute, logs: 4 << 20,
	})
}

func start(ctx context.Context, config Config, times times) (*Enforcer, error) {
	root, err := filepath.Abs(config.Root)
	if err != nil {
		return nil, fmt.Errorf("directory of MPS: %w", err)
	}
	const example = "GPU-00000000-0000-0000-0000-000000000000"
	if path := filepath.Join(root, example, "pipe", "control_privileged"); len(path) > longestSocket {
		return nil, fmt.Errorf("the directory of MPS %s is too long for its sockets by %d characters: choose a shorter one", root, len(path)-longestSocket)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("directory of MPS: %w", err)
	}
	config.Root = root
	e := &Enforcer{Config: config, times: times, changed: make(chan struct{}, 1), ctx: ctx, gpus: map[string]*daemon{}, settable: map[string]bool{}}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("directory of MPS: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, entry := range entries {
		if !entry.IsDir() || !uuidPattern.MatchString(entry.Name()) {
			continue
		}
		record, err := newDaemon(e, entry.Name()).read()
		if err != nil {
			e.Log.Warn("what an earlier agent has shared is not known before the parts are that are in use", "gpu", entry.Name(), "error", err)
			e.unknown = append(e.unknown, entry.Name())
			continue
		}
		d := e.daemon(entry.Name())
		d.want = record.limits
		d.kick()
	}
	return e, nil
}

// daemon is that of a GPU, with mu held.
func (e *Enforcer) daemon(uuid string) *daemon {
	d := e.gpus[uuid]
	if d == nil {
		d = newDaemon(e, uuid)
		e.gpus[uuid] = d
		go d.run(e.ctx)
	}
	return d
}

// InUse tells which parts of GPUs pods of this node have: those of all pods that have not ended, from before their
// containers start. GPUs are shared while they are in it, and clients that start later get at most the largest part. What
// is still on a GPU that is not in it is ended. Until it is called what the agent before was told holds. Parts that are none
// are left out and returned as an error.
func (e *Enforcer) InUse(shares []Share) error {
	var faults []error
	want := map[string]limits{}
	for _, share := range shares {
		if err := share.check(); err != nil {
			faults = append(faults, err)
			continue
		}
		want[share.UUID] = want[share.UUID].with(share)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uuid := range slices.AppendSeq(e.unknown, maps.Keys(want)) {
		e.daemon(uuid)
	}
	e.unknown = nil
	for uuid, d := range e.gpus {
		if d.want != want[uuid] {
			d.want = want[uuid]
			d.kick()
		}
	}
	return errors.Join(faults...)
}

// clientFolder is where clients look for the socket of the control daemon, whatever their environment says: CUDA's default.
const clientFolder = "/tmp/nvidia-mps"

// Edits returns what a container needs for a part of a GPU, once the GPU takes clients with it: it starts what is not
// there yet. corePercent 0 is no limit. The memory is that of the process on the GPU with CUDA's and MPS' own, which is a
// few hundred MiB. A container can have parts of one GPU only: a process has one control daemon, and each GPU has its own.
func (e *Enforcer) Edits(uuid string, memoryMiB, corePercent int64) (env []string, mounts []Mount, err error) {
	share := Share{UUID: uuid, MemoryMiB: memoryMiB, CorePercent: corePercent}
	if err := share.check(); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	d := e.daemon(uuid)
	d.want = d.want.with(share)
	e.mu.Unlock()
	if err := d.ask(e.ctx); err != nil {
		return nil, nil, fmt.Errorf("a part of GPU %s cannot be enforced now: %w", uuid, err)
	}
	env = []string{pipeVariable + "=" + clientFolder, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", memoryMiB)}
	if corePercent > 0 {
		env = append(env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", corePercent))
	}
	return env, []Mount{{Host: d.clientFolder(), Container: clientFolder}}, nil
}

// Terminate ends what processes do on a GPU, as far as they belong, by PID on the host, to who is about to be stopped. A
// client that is killed in the middle of a kernel takes the others of its GPU with it; one that was terminated before does
// not. Where no daemon runs there is nothing to end.
func (e *Enforcer) Terminate(ctx context.Context, uuid string, belongs func(pid int) bool) error {
	e.mu.Lock()
	d := e.gpus[uuid]
	e.mu.Unlock()
	if d == nil {
		return nil
	}
	failed := map[client]error{}
	for { // others may start while these are ended
		clients, err := d.control.clients(ctx)
		if errors.Is(err, errNoDaemon) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end clients of GPU %s: %w", uuid, err)
		}
		more := false
		maps.DeleteFunc(failed, func(c client, err error) bool { return err != nil && !slices.Contains(clients, c) })
		for _, c := range clients {
			if c.pid <= 0 {
				return fmt.Errorf("end clients of GPU %s: the MPS control daemon does not see whose clients it has: run the agent with the PID namespace of the host", uuid)
			}
			if _, known := failed[c]; known || !belongs(c.pid) {
				continue
			}
			failed[c] = d.control.terminate(ctx, c)
			more = true
		}
		if !more {
			if err := errors.Join(slices.Collect(maps.Values(failed))...); err != nil {
				return fmt.Errorf("end clients of GPU %s: %w", uuid, err)
			}
			return nil
		}
	}
}

// States returns how the shared GPUs are, by UUID.
func (e *Enforcer) States() (states []State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uuid := range slices.Sorted(maps.Keys(e.gpus)) {
		if d := e.gpus[uuid]; d.want != (limits{}) || d.state.Reason != "" {
			states = append(states, d.state)
		}
	}
	return states
}

// Changed receives a value after a state has changed. It never closes.
func (e *Enforcer) Changed() <-chan struct{} { return e.changed }
