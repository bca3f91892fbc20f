package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// program is a running scheduler.
type program struct {
	command *exec.Cmd
	done    chan struct{}
	log     *bytes.Buffer
}

// startScheduler runs the scheduler with the configuration that is deployed, but
// without leader election, so that it works from its first moment on.
func startScheduler(t *testing.T) *program {
	t.Helper()
	return runScheduler(t, nil)
}

// startSlowScheduler runs a scheduler that makes few calls per second, so that the
// members of a gang are bound one after the other.
func startSlowScheduler(t *testing.T) *program {
	t.Helper()
	return runScheduler(t, map[string]string{"qps: 500": "qps: 20", "burst: 1000": "burst: 1"})
}

// runScheduler runs the scheduler with changes to the text of its configuration, and
// with more flags.
func runScheduler(t *testing.T, changes map[string]string, flags ...string) *program {
	t.Helper()
	objects, err := deploy.Objects(deploy.Options{Image: "test"})
	require.NoError(t, err)
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		text, _, err := unstructured.NestedString(object.Object, "data", "scheduler.yaml")
		require.NoError(t, err)
		for from, to := range changes {
			require.Contains(t, text, from)
			text = strings.Replace(text, from, to, 1)
		}
		require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	}
	p := &program{done: make(chan struct{}), log: &bytes.Buffer{}}
	path, err := localtest.Program(contract.SchedulerName)
	require.NoError(t, err)
	p.command = exec.Command(path, append([]string{
		"--config=" + config, "--secure-port=0", "--leader-elect=false", "--v=2",
		"--feature-gates=NominatedNodeNameForExpectation=false"}, flags...)...)
	p.command.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	require.NoError(t, p.command.Start())
	go func() {
		_ = p.command.Wait() // the tests kill it
		close(p.done)
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if t.Failed() {
			t.Log("scheduler:\n" + p.log.String())
		}
	})
	return p
}

// end sends the signal and waits for the process to end.
func (p *program) end(signal os.Signal) {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.command.Process.Signal(signal) // it may have ended by itself
	<-p.done
}
