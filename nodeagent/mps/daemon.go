package mps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

// daemon is the control daemon of one GPU, which runs while the GPU is shared.
type daemon struct {
	*Enforcer
	uuid, folder string
	control      control
	asked        chan chan error
	kicked       chan struct{}

	// want is what the clients get at most, state how the GPU is, and refusal says that limits cannot be set, as the daemon
	// has answered last; Enforcer.mu guards them.
	want    limits
	state   State
	refusal string

	// What follows is of run alone.

	// exited closes when the daemon ends; nil for one of an earlier agent.
	exited chan struct{}
	// started is when the daemon was started, failures how often it has ended since it ran well, notBefore when to start it again.
	started, notBefore time.Time
	failures           int
	// attempt is how long the log was when the daemon or its server was started last.
	attempt int64
	// limited are the limits that servers have, 0 for those to come.
	limited map[int]limits
	// modeReads and modeWrites are calls of the driver.
	modeReads, modeWrites watchdog.Reads[hardware.ComputeMode]
}

func newDaemon(e *Enforcer, uuid string) *daemon {
	folder := filepath.Join(e.Root, uuid)
	return &daemon{
		Enforcer: e, uuid: uuid, folder: folder, asked: make(chan chan error), kicked: make(chan struct{}, 1), state: State{UUID: uuid},
		control: control{program: controlProgram, pipe: filepath.Join(folder, "pipe"), limit: e.times.answer},
	}
}

// clientFolder has the one socket that clients need. Beside it, a client that is root in its container could stop the
// daemon and set limits.
func (d *daemon) clientFolder() string { return filepath.Join(d.folder, "client") }

func (d *daemon) log() string { return filepath.Join(d.folder, "log", "daemon.log") }

// run brings the GPU to what is wanted until ctx ends, and keeps it there.
func (d *daemon) run(ctx context.Context) {
	timer := time.NewTimer(d.times.check)
	defer timer.Stop()
	for {
		var answer chan error
		select {
		case <-ctx.Done():
			return
		case answer = <-d.asked:
		case <-d.kicked:
		case <-d.exited:
			d.exited = nil
		case <-timer.C:
		}
		err := d.reconcile(ctx)
		if ctx.Err() != nil {
			return
		}
		d.report(err)
		if answer != nil {
			answer <- err
		}
		timer.Reset(d.pause(err))
	}
}

// pause is how long to wait when nothing happens.
func (d *daemon) pause(err error) time.Duration {
	if wait := time.Until(d.notBefore); err != nil && wait > 0 {
		return min(wait, d.times.check)
	}
	return d.times.check
}

// kick has the loop look, soon.
func (d *daemon) kick() {
	select {
	case d.kicked <- struct{}{}:
	default: // it is about to
	}
}

// ask has the loop look, and returns what it finds.
func (d *daemon) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.times.edits)
	defer cancel()
	answer := make(chan error, 1)
	select {
	case d.asked <- answer:
	case <-ctx.Done():
		return d.busy(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return d.busy(ctx)
	}
}

// busy is the error when the loop does not answer in time.
func (d *daemon) busy(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state.Reason != "" {
		return errors.New(d.state.Reason)
	}
	return fmt.Errorf("MPS is not ready: %w", ctx.Err())
}

// report makes a state of what the loop has found.
func (d *daemon) report(err error) {
	now := State{UUID: d.uuid, Ready: err == nil}
	if err != nil {
		now.Reason = err.Error()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now.Ready = now.Ready && d.want != (limits{})
	if now == d.state {
		return
	}
	switch d.state = now; {
	case err != nil:
		d.Log.Warn("a shared GPU is not ready", "gpu", d.uuid, "reason", now.Reason)
	case now.Ready:
		d.Log.Info("a GPU is shared by MPS", "gpu", d.uuid)
	default:
		d.Log.Info("a GPU is no longer shared", "gpu", d.uuid)
	}
	select {
	case d.changed <- struct{}{}:
	default: // a change is already waiting to be read
	}
}

// reconcile brings the GPU to what is wanted, once.
func (d *daemon) reconcile(ctx context.Context) error {
	d.mu.Lock()
	want := d.want
	d.mu.Unlock()
	if want == (limits{}) {
		return d.stop(ctx)
	}
	if err := d.prepare(ctx, want); err != nil {
		return err
	}
	if err := d.setMode(ctx, hardware.ExclusiveProcess); err != nil {
		return err
	}
	if err := d.serve(ctx); err != nil {
		return err
	}
	// Servers that clients start, of other users, get these.
	err := d.limit(ctx, 0, want)
	d.cannotLimit(err)
	if err != nil {
		return err
	}
	servers, err := d.activeServers(ctx)
	if err != nil {
		return err
	}
	for _, server := range servers {
		if err := d.limit(ctx, server, want); err != nil {
			return err
		}
	}
	if err := d.offer(); err != nil {
		return err
	}
	if time.Since(d.started) > d.times.settled {
		d.failures = 0
	}
	return nil
}

// record is what the next agent has to know.
type record struct {
	// ComputeMode is the GPU's before it was shared.
	ComputeMode hardware.ComputeMode `json:"computeMode"`
	// Mounts is the mount namespace of the daemon that was started last, which is another than that of the next container.
	Mounts string `json:"mounts,omitempty"`
	limits
}

func (d *daemon) recordPath() string { return filepath.Join(d.folder, "record.json") }

// read reads the record; there is none of a GPU that is not shared. Where it is spoilt, the GPU was in the compute mode
// that drivers begin with.
func (d *daemon) read() (record, error) {
	data, err := os.ReadFile(d.recordPath())
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || r.ComputeMode == "" {
		return record{ComputeMode: hardware.DefaultMode}, fmt.Errorf("%s is not the record of a shared GPU: %s", d.recordPath(), short(string(data)))
	}
	return r, nil
}

// prepare makes the folders and the record of a GPU that is shared.
func (d *daemon) prepare(ctx context.Context, want limits) error {
	for _, folder := range []string{d.control.pipe, d.clientFolder(), filepath.Dir(d.log())} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("share GPU %s: %w", d.uuid, err)
		}
	}
	emptyLogs(filepath.Dir(d.log()), d.times.logs)
	r, err := d.read()
	if err == nil && r.limits == want {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if r.ComputeMode, err = d.mode(ctx); err != nil {
			return err
		}
	}
	r.limits = want
	return d.write(r)
}

// write writes the record.
func (d *daemon) write(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record of GPU %s: %w", d.uuid, err)
	}
	draft := d.recordPath() + ".new"
	if err := os.WriteFile(draft, data, 0o600); err != nil {
		return fmt.Errorf("share GPU %s: %w", d.uuid, err)
	}
	if err := os.Rename(draft, d.recordPath()); err != nil {
		return fmt.Errorf("share GPU %s: %w", d.uuid, err)
	}
	return nil
}

// emptyLogs empties logs that have grown: their folder is in memory, and daemons write a few lines for each command.
func emptyLogs(folder string, most int64) {
	entries, _ := os.ReadDir(folder) // without logs there is nothing to empty
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && info.Size() > most {
			_ = os.Truncate(filepath.Join(folder, entry.Name()), 0) // the next look tries again
		}
	}
}

// serve makes sure that the daemon answers, and can start a server. One that an agent has started in another container starts servers with
// the files of that, which go when its image does: it is replaced once it has no server, and so no client.
func (d *daemon) serve(ctx context.Context) error {
	servers, err := d.control.servers(ctx)
	if r, fault := d.read(); err == nil && len(servers) == 0 && fault == nil && r.Mounts != mounts("/proc/self") {
		if err := d.end(ctx); err != nil {
			return err
		}
		return d.start(ctx)
	}
	if !errors.Is(err, errNoDaemon) {
		return err
	}
	// Of a daemon that was killed the server follows, and its sockets stay.
	left := d.processes()
	if len(left.daemons) > 0 {
		return fmt.Errorf("the MPS control daemon, process %d, lives, but not its sockets in %s: what uses the GPU goes on, and the agent starts another one when no pod has a part of the GPU any more", left.daemons[0], d.control.pipe)
	}
	kill(left.servers, syscall.SIGKILL)
	if time.Now().Before(d.notBefore) {
		return d.hasEnded()
	}
	return d.start(ctx)
}

// start starts the daemon, so that it outlives the agent and its container, and waits until it answers.
func (d *daemon) start(ctx context.Context) error {
	if err := missing(); err != nil {
		return err
	}
	r, err := d.read()
	if err != nil {
		return fmt.Errorf("start the MPS control daemon: %w", err)
	}
	r.Mounts = mounts("/proc/self")
	if err := d.write(r); err != nil {
		return err
	}
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("log of the MPS control daemon: %w", err)
	}
	defer func() { _ = log.Close() }() // the daemon has its own
	command := exec.Command(controlProgram, foreground)
	command.Dir, command.Stdout, command.Stderr = d.folder, log, log // a file, since a pipe would end with the agent
	command.Env = environment("CUDA_VISIBLE_DEVICES="+d.uuid, pipeVariable+"="+d.control.pipe, logVariable+"="+filepath.Dir(d.log()))
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	d.started, d.limited, d.attempt = time.Now(), nil, d.logSize()
	d.notBefore = d.started.Add(d.times.retry(d.failures))
	d.failures++
	if err := command.Start(); err != nil {
		return fmt.Errorf("start the MPS control daemon: %w", err)
	}
	if err := outlive(d.Cgroups, command.Process.Pid); err != nil {
		d.Log.Warn("what uses a shared GPU ends with the agent's container", "gpu", d.uuid, "error", err)
	}
	exited := make(chan struct{})
	d.exited = exited
	go func() {
		defer close(exited)
		_ = command.Wait() // why it has ended is in its log
	}()
	return d.until(ctx, "the MPS control daemon does not start", func() (bool, error) {
		_, err := d.control.servers(ctx)
		if !errors.Is(err, errNoDaemon) {
			return err == nil, err
		}
		select {
		case <-exited:
			return false, d.hasEnded()
		default:
			return false, nil
		}
	})
}

// hasEnded is the error while the daemon does not run, and the same until that changes: each is an event on the Node.
func (d *daemon) hasEnded() error {
	return fmt.Errorf("the MPS control daemon has ended%s", d.lastWords())
}

// missing says which of the driver's programs is not there.
func missing() error {
	for _, program := range []string{controlProgram, serverProgram} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not on PATH: it comes with the NVIDIA driver; give the agent's container NVIDIA_DRIVER_CAPABILITIES=compute,utility", program)
		}
	}
	return nil
}

// until waits for what a process of another's does.
func (d *daemon) until(ctx context.Context, late string, done func() (bool, error)) error {
	deadline := time.Now().Add(d.times.start)
	ticker := time.NewTicker(d.times.poll)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New(late + d.lastWords())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// logSize is how long the log is now.
func (d *daemon) logSize() int64 {
	info, err := os.Stat(d.log())
	if err != nil {
		return 0
	}
	return info.Size()
}

// serverNumber is a server with its PID, which is another one at each attempt.
var serverNumber = regexp.MustCompile(`\bServer [0-9]+ `)

// lastWords says, in parentheses, what went wrong by the daemon's log since the last attempt to start it, or a server.
func (d *daemon) lastWords() string {
	data, err := os.ReadFile(d.log())
	if err != nil {
		return ""
	}
	if int64(len(data)) >= d.attempt { // it was not emptied
		data = data[d.attempt:]
	}
	lines := strings.Split(string(data), "\n")
	for _, line := range slices.Backward(lines) {
		// A line begins with its date and who says it, in brackets. What servers say is about clients.
		by, said, dated := strings.Cut(line, "] ")
		if !dated {
			by, said = "", line
		}
		isCause := func(word string) bool { return strings.Contains(said, word) }
		if !strings.Contains(by, " Server ") && slices.ContainsFunc([]string{"exited", "xception", "rror", "ailed", "nable", "annot", "already running"}, isCause) {
			return fmt.Sprintf(" (%s: %s)", d.log(), short(serverNumber.ReplaceAllString(said, "Server ")))
		}
	}
	return fmt.Sprintf(" (see %s)", d.log())
}

// activeServers returns the servers, one at least, which take clients. Without a server a program that is no client could
// have the whole GPU.
func (d *daemon) activeServers(ctx context.Context) (servers []int, err error) {
	asked := false
	err = d.until(ctx, "the MPS server does not start: another program may use the GPU", func() (bool, error) {
		if servers, err = d.control.servers(ctx); err != nil {
			return false, err
		}
		active := len(servers) > 0
		for _, server := range servers {
			switch status, err := d.control.status(ctx, server); {
			case err != nil:
				return false, err
			case status == statusFault:
				return false, errors.New("a program has made a fatal error on the GPU: its MPS server takes no clients until those that it has have ended")
			case status != statusActive:
				active = false
			}
		}
		if len(servers) == 0 && !asked {
			asked, d.attempt = true, d.logSize()
			return false, d.control.startServer(ctx)
		}
		return active, nil
	})
	return servers, err
}

// limit gives a server its limits, unless it has them.
func (d *daemon) limit(ctx context.Context, server int, want limits) error {
	if d.limited[server] == want {
		return nil
	}
	if err := d.control.setLimits(ctx, server, want); err != nil {
		return err
	}
	if d.limited == nil {
		d.limited = map[int]limits{}
	}
	d.limited[server] = want
	return nil
}

// cannotLimit remembers that the daemon takes no limits, by the error when it was told some: drivers before CUDA 11.5 know none of
// memory, whatever the version that they say they have.
func (d *daemon) cannotLimit(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch by := (refusal{}); {
	case err == nil:
		d.refusal = ""
	case errors.As(err, &by):
		d.refusal = by.Error()
	}
}

// offer links the daemon's socket into the folder of clients, which stays the same for containers that run when the daemon
// is started again.
func (d *daemon) offer() error {
	const name = "control"
	socket, offered := filepath.Join(d.control.pipe, name), filepath.Join(d.clientFolder(), name)
	now, err := os.Stat(socket)
	if err != nil {
		return fmt.Errorf("socket of the MPS control daemon: %w", err)
	}
	if before, err := os.Stat(offered); err == nil && os.SameFile(before, now) {
		return nil
	}
	draft := offered + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("offer the socket of the MPS control daemon: %w", err)
	}
	if err := os.Link(socket, draft); err != nil {
		return fmt.Errorf("offer the socket of the MPS control daemon: %w", err)
	}
	if err := os.Rename(draft, offered); err != nil {
		return fmt.Errorf("offer the socket of the MPS control daemon: %w", err)
	}
	return nil
}

// stop ends the sharing of the GPU: no daemon, the compute mode of before, no folder.
func (d *daemon) stop(ctx context.Context) error {
	if _, err := os.Stat(d.folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d.limited, d.failures, d.notBefore = nil, 0, time.Time{}
	if err := d.end(ctx); err != nil {
		return err
	}
	if r, err := d.read(); !errors.Is(err, fs.ErrNotExist) {
		if err := d.setMode(ctx, r.ComputeMode); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(d.folder); err != nil {
		return fmt.Errorf("remove what was left of sharing GPU %s: %w", d.uuid, err)
	}
	return nil
}

// end ends the daemon and its servers.
func (d *daemon) end(ctx context.Context) error {
	err := d.control.quit(ctx)
	if err == nil {
		err = d.ended(ctx)
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err == nil {
			break
		}
		kill(d.processes().all(), signal)
		err = d.ended(ctx)
	}
	return err
}

// ended waits until nothing of the daemon runs.
func (d *daemon) ended(ctx context.Context) error {
	return d.until(ctx, "the MPS control daemon does not end", func() (bool, error) { return len(d.processes().all()) == 0, nil })
}

// processes are those of the daemon, whichever agent has started it.
func (d *daemon) processes() processes {
	r, _ := d.read() // without a record no other agent's are known
	return find(d.control.pipe, r.Mounts)
}

// kill signals processes.
func kill(pids []int, signal syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, signal) // it may have ended by itself
	}
}
