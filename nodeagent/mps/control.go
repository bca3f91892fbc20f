package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Programs of the driver, and what they read from their environment.
const (
	controlProgram = "nvidia-cuda-mps-control"
	serverProgram  = "nvidia-cuda-mps-server"
	pipeVariable   = "CUDA_MPS_PIPE_DIRECTORY"
	logVariable    = "CUDA_MPS_LOG_DIRECTORY"
)

// errNoDaemon means that nobody listens in a pipe directory.
var errNoDaemon = errors.New("no MPS control daemon runs")

// control gives commands to the control daemon of a pipe directory. The program ends with 0 also when the
// daemon refuses, so that the words of each answer are read.
type control struct {
	program, pipe string
	// limit is how long a daemon may take to answer.
	limit time.Duration
}

// do gives one command and returns the answer.
func (c control) do(ctx context.Context, limit time.Duration, command string) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	program := exec.CommandContext(bounded, c.program)
	program.Env = environment(pipeVariable + "=" + c.pipe)
	program.Stdin = strings.NewReader(command + "\n")
	program.WaitDelay = time.Second
	output, err := program.CombinedOutput()
	answer := strings.TrimSpace(string(output))
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case bounded.Err() != nil:
		return "", fmt.Errorf("the MPS control daemon has not answered %q within %v", command, limit)
	case strings.Contains(answer, "Cannot find MPS control daemon process"):
		return "", errNoDaemon
	case err != nil:
		return "", fmt.Errorf("ask the MPS control daemon %q: %w: %s", command, err, short(answer))
	}
	return answer, nil
}

// environment is this process' environment without what CUDA reads, and with more.
func environment(more ...string) []string {
	return append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CUDA_") }), more...)
}

// refusal is the error of an answer that is none of those that a command has.
type refusal struct{ command, answer string }

// Error has the daemon's words.
func (r refusal) Error() string {
	return fmt.Sprintf("the MPS control daemon answers %q to %q", short(r.answer), r.command)
}

// short is the beginning of a text that may be long.
func short(text string) string {
	const most = 200
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// servers returns the PIDs of the daemon's servers.
func (c control) servers(ctx context.Context) ([]int, error) {
	const command = "get_server_list"
	answer, err := c.do(ctx, c.limit, command)
	if err != nil {
		return nil, err
	}
	pids, ok := parsePIDs(answer)
	if !ok {
		return nil, refusal{command, answer}
	}
	return pids, nil
}

// parsePIDs reads PIDs, one in a line.
func parsePIDs(answer string) (pids []int, ok bool) {
	for field := range strings.FieldsSeq(answer) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 {
			return nil, false
		}
		pids = append(pids, pid)
	}
	return pids, true
}

// Statuses of a server.
const (
	statusActive       = "ACTIVE"
	statusInitializing = "INITIALIZING"
	statusFault        = "FAULT"
)

// status returns the status of a server, "" when it has gone. A driver before 550 does not tell: what it lists
// takes clients.
func (c control) status(ctx context.Context, server int) (string, error) {
	answer, err := c.do(ctx, c.limit, fmt.Sprintf("get_server_status %d", server))
	switch {
	case err != nil:
		return "", err
	case strings.HasPrefix(answer, "Unknown command"):
		return statusActive, nil
	case strings.Contains(answer, "not found"):
		return "", nil
	}
	return answer, nil
}

// startServer starts a server of root, which takes clients of root, and waits for none to ask for it.
func (c control) startServer(ctx context.Context) error {
	const command = "start_server -uid 0"
	if answer, err := c.do(ctx, c.limit, command); err != nil {
		return err
	} else if answer != "" {
		return refusal{command, answer}
	}
	return nil
}

// limits are what the clients of a GPU get at most; none, when the GPU is not shared.
type limits struct {
	// MemoryMiB is memory of the GPU, CorePercent the part of its multiprocessors.
	MemoryMiB   int64 `json:"memoryMiB"`
	CorePercent int64 `json:"corePercent"`
}

// setLimits sets the limits of a running server, and of those to come for server 0. They are those of clients that start
// from then on.
func (c control) setLimits(ctx context.Context, server int, l limits) error {
	memory, cores := fmt.Sprintf("set_device_pinned_mem_limit %d 0 %dM", server, l.MemoryMiB), fmt.Sprintf("set_active_thread_percentage %d %d", server, l.CorePercent)
	if server == 0 {
		memory, cores = fmt.Sprintf("set_default_device_pinned_mem_limit 0 %dM", l.MemoryMiB), fmt.Sprintf("set_default_active_thread_percentage %d", l.CorePercent)
	}
	if answer, err := c.do(ctx, c.limit, memory); err != nil {
		return err
	} else if answer != "" {
		return refusal{memory, answer}
	}
	answer, err := c.do(ctx, c.limit, cores)
	if err != nil {
		return err
	}
	// A percentage that the daemon takes is the answer; else that is what holds.
	if percent, err := strconv.ParseFloat(answer, 64); err != nil || percent != float64(l.CorePercent) {
		return refusal{cores, answer}
	}
	return nil
}

// client is a process that uses the GPU through a server; its PID is 0 where the daemon does not see it.
type client struct{ pid, server int }

// clients returns the client processes.
func (c control) clients(ctx context.Context) ([]client, error) {
	const command = "ps"
	answer, err := c.do(ctx, c.limit, command)
	if err != nil {
		return nil, err
	}
	found, ok := parseClients(answer)
	if !ok {
		return nil, refusal{command, answer}
	}
	return found, nil
}

// parseClients reads the table of ps, whose columns differ between drivers. A process is in it once for each of its
// contexts. Without clients, or without a server, there is no table.
func parseClients(answer string) (found []client, ok bool) {
	lines := strings.Split(answer, "\n")
	head := strings.Fields(lines[0])
	pid, server := slices.Index(head, "PID"), slices.Index(head, "SERVER")
	if len(head) == 0 || strings.HasPrefix(answer, "Server not found") {
		return nil, true
	}
	if pid < 0 || server < 0 {
		return nil, false
	}
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		if len(cells) == 0 {
			continue
		}
		if len(cells) <= max(pid, server) {
			return nil, false
		}
		var c client
		var err [2]error
		c.pid, err[0] = strconv.Atoi(cells[pid])
		c.server, err[1] = strconv.Atoi(cells[server])
		if errors.Join(err[:]...) != nil {
			return nil, false
		}
		found = append(found, c)
	}
	return found, true
}

// terminate ends what a client does on the GPU. The client gets an error from CUDA; other clients go on.
func (c control) terminate(ctx context.Context, l client) error {
	command := fmt.Sprintf("terminate_client %d %d", l.server, l.pid)
	answer, err := c.do(ctx, c.limit, command)
	if err != nil {
		return err
	}
	if lines := strings.Fields(answer); len(lines) == 0 || lines[len(lines)-1] != "0" {
		return refusal{command, answer}
	}
	return nil
}

// quitLimit is how long a daemon that is stopped waits for its clients before it ends them, in seconds.
const quitLimit = 5

// quit stops the daemon and its servers.
func (c control) quit(ctx context.Context) error {
	_, err := c.do(ctx, c.limit+quitLimit*time.Second, fmt.Sprintf("quit -t %d", quitLimit))
	return err
}
