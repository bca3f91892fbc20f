// Package integration runs the built scheduler against the embedded platform: a real
// API server, real controllers and simulated nodes.
package integration

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	agentdeploy "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// instanceType is the type of the simulated nodes: eight V100, hybrid cube mesh.
const instanceType = "ecs.gn6v-c10g1.20xlarge"

// settled bounds how long the cluster may take to come to rest; it is generous,
// because the machine that runs the tests may be busy.
const settled = 90 * time.Second

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// cluster is the platform that all tests share. Each test has its own nodes and namespace.
var cluster struct {
	once       sync.Once
	err        error
	client     *kube.Client
	kubeconfig string
}

// connect starts the platform for the first test, and gives it the custom resources
// that the scheduler is installed with.
func connect(t *testing.T) {
	t.Helper()
	platform := localtest.Start(t)
	cluster.once.Do(func() {
		cluster.kubeconfig = platform.Kubeconfig
		objects, err := deploy.Objects(deploy.Options{Image: "test"})
		agent, agentErr := agentdeploy.Objects(agentdeploy.Options{Image: "test"})
		cluster.client, cluster.err = platform.Install(t, append(objects, agent...))
		cluster.err = errors.Join(err, agentErr, cluster.err)
	})
	require.NoError(t, cluster.err)
}

func api() kubernetes.Interface { return cluster.client.Typed }
