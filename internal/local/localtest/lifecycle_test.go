package localtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

func mustParse(t *testing.T, quantity string) resource.Quantity {
	t.Helper()
	q, err := resource.ParseQuantity(quantity)
	require.NoError(t, err)
	return q
}

// hasPhase complains unless the pod is in the phase.
func hasPhase(client kubernetes.Interface, name string, phase corev1.PodPhase) error {
	pod, err := client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err == nil && pod.Status.Phase != phase {
		err = fmt.Errorf("pod %s is %s, not %s", name, pod.Status.Phase, phase)
	}
	return err
}

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	assert.Contains(t, i.must("status"), "not running")
	assert.Contains(t, i.must("down"), "not running")
	output, err := i.run("env")
	require.Error(t, err)
	assert.Contains(t, output, "never started")

	output = i.must("up")
	assert.Contains(t, output, "kube-apiserver")
	first := i.status()
	require.True(t, first.Ready)
	assert.Positive(t, first.ReadySeconds)
	assert.Positive(t, first.MemoryBytes)
	assert.ElementsMatch(t, []string{"gpuplan-local", "gpuplan-joboperator"}, first.alive())
	assert.Equal(t, first.Kubeconfig, strings.TrimSpace(i.must("kubeconfig")))
	env := i.must("env")
	for _, name := range []string{"KUBECONFIG", "GPUPLAN_CS_ENDPOINT", "GPUPLAN_CLUSTER_ID", "ALIBABA_CLOUD_REGION_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"} {
		assert.Contains(t, env, "export "+name+"='")
	}
	for _, secret := range []string{"kubeconfig", "cloud/credentials.json", "clusters/main/pki/ca.key"} {
		info, err := os.Stat(filepath.Join(i.dir, secret))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, secret)
	}

	again := i.must("up")
	assert.Contains(t, again, "running already")
	assert.Contains(t, again, first.Clusters[0].URL)
	assert.Equal(t, first.Processes[0].PID, i.status().Processes[0].PID)

	client := i.client()
	simulatedNode(t, client, "n1")
	pod(t, client, "n1", "stays", nil)
	eventually(t, "the pod runs", func() error { return hasPhase(client, "stays", corev1.PodRunning) })

	i.must("down")
	assert.Empty(t, first.alive())
	assert.False(t, i.status().Running)
	assert.Equal(t, env, i.must("env"), "the environment holds while the platform is down")

	i.must("up")
	second := i.status()
	assert.Equal(t, first.Clusters, second.Clusters, "addresses stay")
	assert.Equal(t, first.Cloud, second.Cloud)
	require.NoError(t, hasPhase(client, "stays", corev1.PodRunning), "the old kubeconfig works, and the pod is there")
	pod(t, client, "n1", "new", nil)
	eventually(t, "the node is still played", func() error { return hasPhase(client, "new", corev1.PodRunning) })

	i.must("down", "--purge")
	assert.NoDirExists(t, i.dir)
	assert.Empty(t, second.alive())
}

func TestPurgeSparesForeignFolders(t *testing.T) {
	i := newInstance(t)
	require.NoError(t, os.MkdirAll(i.dir, 0o755))
	i.must("down") // leaves its own folder for process records
	require.NoError(t, os.WriteFile(filepath.Join(i.dir, "precious"), nil, 0o600))
	output, err := i.run("down", "--purge")
	require.Error(t, err)
	assert.Contains(t, output, "not deleted")
	assert.FileExists(t, filepath.Join(i.dir, "precious"))
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.must("up")
	before := i.status()
	client := i.client()
	_, err := client.CoreV1().ConfigMaps("default").Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, syscall.Kill(before.Processes[0].PID, syscall.SIGKILL))
	eventually(t, "the children die with the server", func() error {
		if alive := before.alive(); len(alive) > 0 {
			return fmt.Errorf("%v still run", alive)
		}
		return nil
	})
	assert.Contains(t, i.must("status"), "not running")
	assert.Contains(t, i.must("down"), "not running")

	i.must("up")
	_, err = client.CoreV1().ConfigMaps("default").Get(context.Background(), "kept", metav1.GetOptions{})
	require.NoError(t, err, "what was written before the kill is there")
}

func TestTwoUpsAtOnce(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	var both sync.WaitGroup
	outputs := make([]string, 2)
	errs := make([]error, 2)
	for n := range outputs {
		both.Go(func() { outputs[n], errs[n] = i.run("up") })
	}
	both.Wait()
	require.NoError(t, errors.Join(errs...), "%s\n%s", outputs[0], outputs[1])
	already := 0
	for _, output := range outputs {
		assert.Contains(t, output, "Ready after")
		if strings.Contains(output, "running already") {
			already++
		}
	}
	assert.Equal(t, 1, already)
}

func TestPorts(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	port := localtest.FreePort(t)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	require.NoError(t, err)
	for option, part := range map[string]string{"--port": "kube-apiserver", "--cloud-port": "cloud API"} {
		output, err := i.run("up", option, fmt.Sprint(port))
		require.Error(t, err)
		assert.Contains(t, output, fmt.Sprintf("gpuplan-local: ports: port %d for %s", port, part))
		assert.Equal(t, 1, strings.Count(output, "address already in use"), output)
		assert.False(t, i.status().Running)
	}

	taken.Close()
	i.must("up", "--port", fmt.Sprint(port))
	assert.Equal(t, fmt.Sprintf("https://127.0.0.1:%d", port), i.status().Clusters[0].URL)
	i.must("down")

	taken, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	require.NoError(t, err)
	defer taken.Close()
	output := i.must("up")
	assert.Contains(t, output, fmt.Sprintf("port %d of kube-apiserver is taken", port))
	_, err = i.client().CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err, "the kubeconfig has the new port")
}

func TestFailures(t *testing.T) {
	t.Run("the data directory cannot be made", func(t *testing.T) {
		i := newInstance(t)
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		i.dir = filepath.Join(file, "data")
		output, err := i.run("up")
		require.Error(t, err)
		assert.Contains(t, output, "make the data directory")
		assert.Contains(t, output, "--data-dir")
	})
	t.Run("a program is missing", func(t *testing.T) {
		i := newInstance(t)
		i.programs = t.TempDir()
		output, err := i.run("up")
		require.Error(t, err)
		assert.Contains(t, output, "job operator: the program for PyTorchJobs, MPIJobs and JobSets is missing")
		assert.Contains(t, output, "make build")
		assert.False(t, i.status().Running)
	})
	t.Run("the program of fleets is missing", func(t *testing.T) {
		i := newInstance(t)
		i.programs = t.TempDir()
		output, err := i.run("up", "--members", "1")
		require.Error(t, err)
		assert.Contains(t, output, "programs: the program that brings objects to member clusters is missing")
		assert.Contains(t, output, "make fleet")
		assert.False(t, i.status().Running)
	})
	t.Run("a program does not start", func(t *testing.T) {
		i := newInstance(t)
		i.programs = t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(i.programs, "gpuplan-joboperator"), []byte("#!/bin/sh\necho no luck\nexit 4\n"), 0o700))
		output, err := i.run("up")
		require.Error(t, err)
		assert.Contains(t, output, "exits with code 4")
		assert.Contains(t, output, "no luck", "the end of its log is shown")
		assert.Contains(t, output, filepath.Join(i.dir, "log", "gpuplan-joboperator.log"))
		assert.False(t, i.status().Running)
	})
	t.Run("arguments", func(t *testing.T) {
		i := newInstance(t)
		output, err := i.run("fly")
		require.Error(t, err)
		assert.Contains(t, output, `no command "fly"`)
		output, err = i.run("status", "-o", "xml")
		require.Error(t, err)
		assert.Contains(t, output, `no output format "xml"`)
	})
}
