// Package localtest gives tests a running local platform: the built gpuplan-local
// with its programs, once per test process, on a data directory of its own.
package localtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// startTimeout covers building missing programs on a slow machine as well.
const startTimeout = 15 * time.Minute

// Programs are the programs that the platform uses.
var programs = []string{"gpuplan-local", "gpuplan-joboperator", "gpuplan-scheduler", "gpuplan-node-agent"}

// EmulatedVersion is the environment variable with the older minor version of
// Kubernetes, "1.34", that the platform behaves like; without it it is the newest.
const EmulatedVersion = "GPUPLAN_TEST_EMULATED_VERSION"

// APIServer is the environment variable with the path of a kube-apiserver program that
// the platform runs in place of its own.
const APIServer = "GPUPLAN_TEST_KUBE_APISERVER"

// Platform is a running platform.
type Platform struct {
	// Dir is its data directory.
	Dir string
	// Kubeconfig is the administrator's kubeconfig.
	Kubeconfig string
	// Env is what `gpuplan-local env` exports, by name: the provider's environment.
	Env map[string]string
	// end stops it, and wait waits until it has ended.
	end, wait func()
}

// shared is the platform of this test process.
var shared struct {
	// stopped means that [Main] will stop it.
	stopped  bool
	options  []string
	once     sync.Once
	platform *Platform
	err      error
	stop     func()
}

// Main runs the tests of a package whose tests call [Start], and stops the platform
// after them. It is for TestMain: os.Exit(localtest.Main(m)). The options are those of
// `gpuplan-local up`.
func Main(m *testing.M, options ...string) int {
	shared.stopped, shared.options = true, options
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	return code
}

// Start returns the platform of this test process, which it starts at the first
// call. The package needs a TestMain with [Main]. Tests share the platform: they use
// namespaces and pools of their own, and clean up.
func Start(t testing.TB) *Platform {
	t.Helper()
	require.True(t, shared.stopped, "the package needs a TestMain that calls localtest.Main")
	shared.once.Do(func() { shared.platform, shared.err = start() })
	require.NoError(t, shared.err, "start the local platform")
	p := shared.platform
	t.Cleanup(func() {
		if t.Failed() {
			p.dumpLogs(t)
		}
	})
	return p
}

// Restart ends the platform's server by a signal, a crash with SIGKILL, and starts it
// again with the data and the addresses that it had.
func (p *Platform) Restart(signal syscall.Signal) error {
	local, err := Program("gpuplan-local")
	if err != nil {
		return err
	}
	output, err := exec.Command(local, "status", "-o", "json", "--data-dir", p.Dir).Output()
	if err != nil {
		return fmt.Errorf("gpuplan-local status: %w", err)
	}
	var status struct {
		Processes []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"processes"`
	}
	if err := json.Unmarshal(output, &status); err != nil {
		return fmt.Errorf("gpuplan-local status: %w", err)
	}
	for _, process := range status.Processes {
		if process.Name == "gpuplan-local" {
			_ = syscall.Kill(process.PID, signal) // it may have ended
		}
	}
	p.wait()
	return p.up(local)
}

// Environ is the environment of this process with that of the platform.
func (p *Platform) Environ() []string {
	env := os.Environ()
	for name, value := range p.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// Config is the administrator's access to the cluster.
func (p *Platform) Config(t testing.TB) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	return config
}

// Client is a client with that access.
func (p *Platform) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.Config(t))
	require.NoError(t, err)
	return client
}

// Program returns the path of a built program, which it builds when it is missing.
func Program(name string) (string, error) {
	path := filepath.Join(root(), "bin", name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	build := exec.Command("make", "--no-print-directory", "bin/"+name)
	build.Dir = root()
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, output)
	}
	return path, nil
}

// root is the folder of the repository, above the package under test.
func root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "GNUmakefile")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("the test does not run inside of the repository")
		}
		dir = filepath.Dir(dir)
	}
}

func start() (*Platform, error) {
	for _, name := range programs {
		if _, err := Program(name); err != nil {
			return nil, err
		}
	}
	local, err := Program("gpuplan-local")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gpuplan-test-")
	if err != nil {
		return nil, err
	}
	p := &Platform{Dir: filepath.Join(dir, "data")}
	if err := p.up(local); err != nil {
		return nil, err
	}
	shared.stop = func() {
		p.end()
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "localtest:", err)
		}
	}
	if p.Env, err = p.env(local); err != nil {
		return nil, err
	}
	p.Kubeconfig = p.Env["KUBECONFIG"]
	return p, nil
}

// env is what `gpuplan-local env` exports.
func (p *Platform) env(local string, options ...string) (map[string]string, error) {
	output, err := exec.Command(local, append([]string{"env", "--data-dir", p.Dir}, options...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("gpuplan-local env: %w", err)
	}
	env := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(output)), "\n") {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		env[name] = strings.Trim(value, "'")
	}
	return env, nil
}

// Member is what `gpuplan-local env` exports of a member cluster of a platform that is a fleet.
func (p *Platform) Member(t testing.TB, name string) map[string]string {
	t.Helper()
	local, err := Program("gpuplan-local")
	require.NoError(t, err)
	env, err := p.env(local, "--cluster", name)
	require.NoError(t, err)
	return env
}

// up starts the platform in the foreground, so that it ends with this process
// however that ends, and returns when it is ready.
func (p *Platform) up(local string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	output := &watched{mark: "Interrupt to stop it.", seen: make(chan struct{})}
	started, ended := make(chan error, 1), make(chan struct{})
	args := []string{"up", "--detach=false", "--data-dir", p.Dir, "--emulated-version", os.Getenv(EmulatedVersion)}
	if program := os.Getenv(APIServer); program != "" {
		args = append(args, "--kube-apiserver", program)
	}
	args = append(args, shared.options...)
	cmd := exec.Command(local, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	go func() {
		// The signal at this process's death comes at the end of the thread already.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // what matters of its end is in the output
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.wait = func() { <-ended }
	p.end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		p.wait()
	}
	select {
	case <-output.seen:
		return nil
	case <-ended:
		return fmt.Errorf("gpuplan-local up failed:\n%s", output)
	case <-ctx.Done():
		p.end()
		return fmt.Errorf("gpuplan-local up: %w:\n%s", ctx.Err(), output)
	}
}

// dumpLogs shows the ends of the platform's logs in a failed test's output.
func (p *Platform) dumpLogs(t testing.TB) {
	logs, _ := filepath.Glob(filepath.Join(p.Dir, "log", "*.log"))
	for _, log := range logs {
		data, err := os.ReadFile(log)
		if err != nil || len(data) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		t.Logf("end of %s:\n%s", filepath.Base(log), strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

// watched keeps what is written and tells when it has the mark.
type watched struct {
	mark string
	seen chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
	done bool
}

func (w *watched) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(data)
	if !w.done && strings.Contains(w.text.String(), w.mark) {
		w.done = true
		close(w.seen)
	}
	return len(data), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
