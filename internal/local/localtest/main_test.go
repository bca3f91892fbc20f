package localtest_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// patience is how long anything may take.
const patience = 2 * time.Minute

// eventually waits until check finds nothing to complain about.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.NoError(t, err, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// instance is a platform of one test alone, for tests that stop and kill it.
type instance struct {
	t        *testing.T
	dir      string
	programs string
}

func newInstance(t *testing.T) instance {
	t.Helper()
	operator, err := localtest.Program("gpuplan-joboperator")
	require.NoError(t, err)
	i := instance{t: t, dir: filepath.Join(t.TempDir(), "data"), programs: filepath.Dir(operator)}
	t.Cleanup(func() { _, _ = i.run("down") })
	return i
}

// run runs gpuplan-local and returns what it printed.
func (i instance) run(args ...string) (string, error) {
	i.t.Helper()
	local, err := localtest.Program("gpuplan-local")
	require.NoError(i.t, err)
	args = append(args, "--data-dir", i.dir)
	if args[0] == "up" {
		args = append(args, "--programs", i.programs)
	}
	output, err := exec.Command(local, args...).CombinedOutput()
	return string(output), err
}

func (i instance) must(args ...string) string {
	i.t.Helper()
	output, err := i.run(args...)
	require.NoError(i.t, err, "gpuplan-local %v: %s", args, output)
	return output
}

type status struct {
	Running      bool    `json:"running"`
	Ready        bool    `json:"ready"`
	ReadySeconds float64 `json:"readySeconds"`
	MemoryBytes  int64   `json:"memoryBytes"`
	Kubeconfig   string  `json:"kubeconfig"`
	Clusters     []struct {
		URL string `json:"url"`
	} `json:"clusters"`
	Cloud struct {
		URL string `json:"url"`
	} `json:"cloud"`
	Processes []running `json:"processes"`
	Members   []struct {
		Joined bool `json:"joined"`
		Cloud  struct {
			ClusterID string `json:"clusterID"`
		} `json:"cloud"`
		Nodes *struct{} `json:"nodes"`
	} `json:"members"`
}

// running is a process of the platform.
type running struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

func (i instance) status() status {
	i.t.Helper()
	var s status
	require.NoError(i.t, json.Unmarshal([]byte(i.must("status", "-o", "json")), &s))
	return s
}

func (i instance) client() kubernetes.Interface {
	i.t.Helper()
	return clientFor(i.t, filepath.Join(i.dir, "kubeconfig"))
}

func clientFor(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func selfReview() *authenticationv1.SelfSubjectReview { return &authenticationv1.SelfSubjectReview{} }

// alive tells which of the processes run.
func (s status) alive() []string {
	var names []string
	for _, p := range s.Processes {
		if _, err := process.Identify(p.PID); err == nil {
			names = append(names, p.Name)
		}
	}
	return names
}

// simulatedNode makes a simulated node as someone with kubectl can.
func simulatedNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	resources := corev1.ResourceList{}
	for resource, quantity := range map[corev1.ResourceName]string{"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "64"} {
		resources[resource] = mustParse(t, quantity)
	}
	_, err := client.CoreV1().Nodes().Create(context.Background(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": name}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// pod makes a pod for the node of that name.
func pod(t *testing.T, client kubernetes.Interface, node, name string, annotations map[string]string) {
	t.Helper()
	_, err := client.CoreV1().Pods("default").Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{
			NodeSelector:  map[string]string{"test": node},
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "example.com/c:1"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// env is what the instance exports, of a cluster where the options name one.
func (i instance) env(options ...string) map[string]string {
	i.t.Helper()
	env := map[string]string{}
	for line := range strings.Lines(i.must(append([]string{"env"}, options...)...)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		env[name] = strings.Trim(value, "'")
	}
	return env
}

// guarded makes a running pod "guarded" on the node, which a PodDisruptionBudget
// "guard" keeps from being evicted.
func guarded(t *testing.T, client kubernetes.Interface, node string) {
	t.Helper()
	ctx := context.Background()
	labels := map[string]string{"app": "guarded"}
	one := intstr.FromInt32(1)
	_, err := client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "guarded", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "example.com/c:1"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the guarded pod runs", func() error { return hasPhase(client, "guarded", corev1.PodRunning) })
}
