package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// TestMain is the driver's programs, too, when the test binary is called by their names.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == serverProgram:
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the daemon
	case name == controlProgram && len(os.Args) > 1:
		os.Exit(fakeDaemon())
	case name == controlProgram:
		os.Exit(fakeInterface())
	case os.Getenv(agentVariable) != "":
		os.Exit(fakeAgent(os.Getenv(agentVariable)))
	default:
		var err error
		if folder, err = os.MkdirTemp("", "mps"); err != nil {
			panic(err)
		}
		code := m.Run()
		_ = os.RemoveAll(folder)
		os.Exit(code)
	}
}

// folder has a folder for each machine of the tests: the name of a test would make the paths of sockets too long.
var folder string

// knobsVariable names the folder whose files say what is wrong with the fake driver:
//
//	die      the daemon ends when it is started, with these words
//	hang     the daemon takes commands and does not answer
//	refuse   the daemon refuses commands that begin like this
//	percent  the daemon leaves percentages at this
//	garbage  the daemon answers this
//	barren   servers end when they are started
//	status   the status of servers
//	old      the daemon does not know get_server_status
//	clients  the table of ps without its head, S stands for the server
//	immortal clients that cannot be terminated, by PID
//	endless  the daemon does not end when it is told to
//
// The file commands gets a line for each command, and environment is that of the daemon.
const knobsVariable = "FAKE_MPS_KNOBS"

func knob(name string) (text string, set bool) {
	data, err := os.ReadFile(filepath.Join(os.Getenv(knobsVariable), name))
	return strings.TrimSpace(string(data)), err == nil
}

// fakeInterface gives the commands of its input to the daemon.
func fakeInterface() int {
	commands, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 2
	}
	connection, err := net.Dial("unix", filepath.Join(os.Getenv(pipeVariable), "control"))
	if err != nil {
		fmt.Println("Cannot find MPS control daemon process")
		return 1
	}
	if _, err := connection.Write(commands); err != nil {
		return 1
	}
	_, _ = io.Copy(os.Stdout, connection)
	return 0
}

// fakeServer is a server of the fake daemon.
type fakeServer struct {
	process *exec.Cmd
	memory  string
	cores   float64
	gone    chan struct{}
}

func fakeDaemon() int {
	if words, set := knob("die"); set {
		fmt.Printf("[2026-11-28 03:47:31.942 Control  1037] %s\n", words)
		return 1
	}
	lock, err := os.OpenFile(filepath.Join(os.Getenv(pipeVariable), "control_lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil || syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Println("An instance of this daemon is already running")
		return 1
	}
	_ = os.WriteFile(filepath.Join(os.Getenv(knobsVariable), "environment"), []byte(strings.Join(os.Environ(), "\n")), 0o600)
	socket := filepath.Join(os.Getenv(pipeVariable), "control")
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	var memory string
	cores, servers := 100.0, map[int]*fakeServer{}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return 1
		}
		line, err := bufio.NewReader(connection).ReadString('\n')
		if err != nil {
			_ = connection.Close()
			continue
		}
		for {
			if _, hangs := knob("hang"); !hangs {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for pid, server := range servers {
			select {
			case <-server.gone:
				delete(servers, pid)
			default:
			}
		}
		if log, err := os.OpenFile(filepath.Join(os.Getenv(knobsVariable), "commands"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = log.WriteString(line)
			_ = log.Close()
		}
		words := strings.Fields(line)
		answer, ends := fakeAnswer(words, &memory, &cores, servers)
		_, _ = io.WriteString(connection, answer)
		_ = connection.Close()
		if ends {
			return 0
		}
	}
}

// fakeAnswer is what the daemon does and says.
func fakeAnswer(words []string, memory *string, cores *float64, servers map[int]*fakeServer) (answer string, ends bool) {
	if text, set := knob("garbage"); set {
		return text, false
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(words[i])
		return n
	}
	if prefix, set := knob("refuse"); set && strings.HasPrefix(words[0], prefix) {
		return "Insufficient privileges for UID 0.\n", false
	}
	if percent, set := knob("percent"); set && strings.HasSuffix(words[0], "percentage") {
		return percent + "\n", false
	}
	switch words[0] {
	case "get_server_list":
		for pid := range servers {
			answer += fmt.Sprintln(pid)
		}
	case "start_server":
		server := exec.Command(serverProgram)
		server.Stdout = os.Stdout
		if _, set := knob("barren"); set {
			fmt.Println("[2026-11-28 03:47:31.942 Control  1037] Server 1041 exited with status 1")
			return "", false
		}
		if _, err := server.StdinPipe(); err != nil {
			return err.Error(), false
		}
		if err := server.Start(); err != nil {
			return err.Error(), false
		}
		started := &fakeServer{process: server, memory: *memory, cores: *cores, gone: make(chan struct{})}
		servers[server.Process.Pid] = started
		go func() {
			_ = server.Wait()
			close(started.gone)
		}()
	case "get_server_status":
		status, set := knob("status")
		if _, old := knob("old"); old {
			return "Unknown command \"get_server_status\"\n", false
		}
		if set {
			return status + "\n", false
		}
		return statusActive + "\n", false
	case "set_default_device_pinned_mem_limit":
		*memory = words[2]
	case "set_default_active_thread_percentage":
		*cores = float64(number(1))
		answer = fmt.Sprintf("%.1f\n", *cores)
	case "set_device_pinned_mem_limit", "set_active_thread_percentage":
		server := servers[number(1)]
		if server == nil {
			return fmt.Sprintf("Server %s not found\n", words[1]), false
		}
		if words[0] == "set_device_pinned_mem_limit" {
			server.memory = words[3]
			break
		}
		server.cores = float64(number(2))
		answer = fmt.Sprintf("%.1f\n", server.cores)
	case "get_device_pinned_mem_limit":
		answer = servers[number(1)].memory
	case "get_active_thread_percentage":
		answer = fmt.Sprintf("%.1f\n", servers[number(1)].cores)
	case "ps":
		rows, _ := knob("clients")
		for pid := range servers {
			rows = strings.ReplaceAll(rows, "S", strconv.Itoa(pid))
		}
		if rows == "" {
			return "", false
		}
		answer = "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n" + rows + "\n"
	case "terminate_client":
		rows, _ := knob("clients")
		immortal, _ := knob("immortal")
		var left []string
		for row := range strings.SplitSeq(rows, "\n") {
			if fields := strings.Fields(row); len(fields) > 0 && fields[0] != words[2] {
				left = append(left, row)
			}
		}
		if immortal == words[2] {
			return fmt.Sprintf("Invalid process %s!\n1\n", words[2]), false
		}
		_ = os.WriteFile(filepath.Join(os.Getenv(knobsVariable), "clients"), []byte(strings.Join(left, "\n")), 0o600)
		answer = "0\n"
	case "quit":
		if _, set := knob("endless"); set {
			return "", false
		}
		return "", true
	default:
		answer = fmt.Sprintf("Unknown command %q\n", words[0])
	}
	return answer, false
}

// modes are compute modes of GPUs.
type modes struct {
	mu      sync.Mutex
	of      map[string]hardware.ComputeMode
	refused error
	sets    int
}

func (m *modes) ComputeMode(uuid string) (hardware.ComputeMode, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mode, known := m.of[uuid]
	if !known {
		return "", errors.New("no such GPU")
	}
	return mode, nil
}

func (m *modes) SetComputeMode(uuid string, mode hardware.ComputeMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets++
	if m.refused != nil {
		return m.refused
	}
	m.of[uuid] = mode
	return nil
}

// GPUs of the tests.
const (
	first  = "GPU-11111111-1111-1111-1111-111111111111"
	second = "GPU-22222222-2222-2222-2222-222222222222"
)

// machine is a machine with the fake driver.
type machine struct {
	t     *testing.T
	root  string
	knobs string
	modes *modes
	times times
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	folder := filepath.Join(folder, strconv.FormatInt(time.Now().UnixNano(), 36))
	m := &machine{
		t: t, root: filepath.Join(folder, "run"), knobs: filepath.Join(folder, "knobs"),
		modes: &modes{of: map[string]hardware.ComputeMode{first: hardware.DefaultMode, second: hardware.DefaultMode}},
		times: times{
			answer: 20 * time.Second, start: 20 * time.Second, edits: time.Minute, driver: 20 * time.Second, check: 100 * time.Millisecond, poll: 20 * time.Millisecond,
			firstRetry: time.Millisecond, longestRetry: time.Millisecond, settled: time.Minute, logs: 1 << 20,
		},
	}
	require.NoError(t, os.MkdirAll(m.knobs, 0o755))
	programs := filepath.Join(folder, "programs")
	require.NoError(t, os.MkdirAll(programs, 0o755))
	self, err := os.Executable()
	require.NoError(t, err)
	for _, program := range []string{controlProgram, serverProgram} {
		require.NoError(t, os.Symlink(self, filepath.Join(programs, program)))
	}
	t.Setenv("PATH", programs)
	t.Setenv(knobsVariable, m.knobs)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // with the race detector each program would sleep a second at its end
	t.Cleanup(func() {
		for _, uuid := range []string{first, second} {
			for _, pid := range m.processes(uuid).all() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return m
}

func (m *machine) set(name, text string) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(filepath.Join(m.knobs, name), []byte(text), 0o600))
}

func (m *machine) unset(name string) {
	m.t.Helper()
	require.NoError(m.t, os.Remove(filepath.Join(m.knobs, name)))
}

// start starts an agent's enforcer.
func (m *machine) start() (e *Enforcer, stop context.CancelFunc) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	m.t.Cleanup(cancel)
	e, err := start(ctx, Config{Root: m.root, Modes: m.modes, Log: slog.New(slog.DiscardHandler)}, m.times)
	require.NoError(m.t, err)
	return e, cancel
}

func (m *machine) processes(uuid string) processes {
	return newDaemon(&Enforcer{Config: Config{Root: m.root}}, uuid).processes()
}

// ask asks the daemon of a GPU.
func (m *machine) ask(uuid, format string, arguments ...any) string {
	m.t.Helper()
	c := control{program: controlProgram, pipe: filepath.Join(m.root, uuid, "pipe"), limit: m.times.answer}
	answer, err := c.do(m.t.Context(), c.limit, fmt.Sprintf(format, arguments...))
	require.NoError(m.t, err)
	return answer
}

func (m *machine) mode(uuid string) hardware.ComputeMode {
	mode, err := m.modes.ComputeMode(uuid)
	require.NoError(m.t, err)
	return mode
}

// becomes waits for the state of a GPU.
func (m *machine) becomes(e *Enforcer, uuid string, is func(State) bool) {
	m.t.Helper()
	var last []State
	require.Eventually(m.t, func() bool {
		last = e.States()
		for _, s := range last {
			if s.UUID == uuid && is(s) {
				return true
			}
		}
		return false
	}, 30*time.Second, 5*time.Millisecond, "%v", &last)
}

func ready(s State) bool { return s.Ready }

// says tells states with words in their reason.
func says(words string) func(State) bool {
	return func(s State) bool { return !s.Ready && strings.Contains(s.Reason, words) }
}
