package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// startScheduler runs the scheduler with the configuration that is deployed, but
// without leader election.
func startScheduler(t *testing.T) *localtest.Process {
	t.Helper()
	return runScheduler(t, nil)
}

// startStuckScheduler runs a scheduler of whose calls of a kind only so many get through: the
// others have no answer until it ends, so that it can be killed at a point that is known.
func startStuckScheduler(t *testing.T, calls int, ofKind func(*http.Request) bool) *localtest.Process {
	t.Helper()
	var made atomic.Int64
	kubeconfig := localtest.Start(t).Proxy(t, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		if ofKind(r.Out) && made.Add(1) > int64(calls) {
			<-r.In.Context().Done()
		}
	}})
	p, err := launchScheduler(t.TempDir(), kubeconfig, nil, "--leader-elect=false")
	require.NoError(t, err)
	p.EndWith(t)
	return p
}

func bindsPod(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/binding")
}

// deletesPod leaves out dry runs.
func deletesPod(r *http.Request) bool {
	if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/pods/") {
		return false
	}
	options, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(options))
	return err == nil && !bytes.Contains(options, []byte(metav1.DryRunAll))
}

// runScheduler runs the scheduler with changes to the text of its configuration, and
// with more flags.
func runScheduler(t *testing.T, changes map[string]string, flags ...string) *localtest.Process {
	t.Helper()
	p, err := launchScheduler(t.TempDir(), cluster.kubeconfig, changes, append([]string{"--leader-elect=false"}, flags...)...)
	require.NoError(t, err)
	p.EndWith(t)
	return p
}

// launchScheduler is runScheduler for callers that end it themselves; its
// configuration lies in dir.
func launchScheduler(dir, kubeconfig string, changes map[string]string, flags ...string) (*localtest.Process, error) {
	text, err := schedulerConfig()
	if err != nil {
		return nil, err
	}
	for from, to := range changes {
		if !strings.Contains(text, from) {
			return nil, fmt.Errorf("the scheduler's configuration has no %q", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	config := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return localtest.Launch(kubeconfig, contract.SchedulerName, append([]string{
		"--config=" + config, "--secure-port=0", "--v=2", "--feature-gates=NominatedNodeNameForExpectation=false"}, flags...)...)
}

// schedulerConfig is the configuration that is deployed.
func schedulerConfig() (string, error) {
	objects, err := deploy.Objects(deploy.Options{Image: "test"})
	if err != nil {
		return "", err
	}
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" {
			text, _, err := unstructured.NestedString(object.Object, "data", "scheduler.yaml")
			return text, err
		}
	}
	return "", errors.New("the scheduler's manifests have no configuration")
}
