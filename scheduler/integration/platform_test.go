// Package integration runs the built scheduler against the embedded platform: a real
// API server, real controllers and simulated nodes.
package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
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
		if cluster.client, cluster.err = kube.New(platform.Config(t)); cluster.err != nil {
			return
		}
		objects, err := deploy.Objects(deploy.Options{Image: "test"})
		objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" })
		cluster.err = errors.Join(err, cluster.client.ApplyAll(t.Context(), objects, nil))
	})
	require.NoError(t, cluster.err)
}

func api() kubernetes.Interface { return cluster.client.Typed }

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

// runScheduler runs the scheduler with changes to the text of its configuration.
func runScheduler(t *testing.T, changes map[string]string) *program {
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
	p.command = exec.Command(path,
		"--config="+config, "--secure-port=0", "--leader-elect=false", "--v=2",
		"--feature-gates=NominatedNodeNameForExpectation=false")
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

// machine describes simulated nodes.
type machine struct {
	count int
	mode  string
	// extra is added to what the node offers.
	extra  corev1.ResourceList
	taints []corev1.Taint
	labels map[string]string
}

// scene is a test's own namespace and nodes.
type scene struct {
	t         *testing.T
	namespace string
	nodes     []string
}

// newScene makes a namespace and nodes, and takes both away after the test.
func newScene(t *testing.T, machines ...machine) *scene {
	t.Helper()
	connect(t)
	ctx := t.Context()
	namespace, err := api().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s := &scene{t: t, namespace: namespace.Name}
	for _, m := range machines {
		for range m.count {
			s.addNode(m)
		}
	}
	t.Cleanup(s.close)
	return s
}

func (s *scene) addNode(m machine) string {
	s.t.Helper()
	name := fmt.Sprintf("%s-%d", s.namespace, len(s.nodes))
	offers := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("80"),
		corev1.ResourceMemory: resource.MustParse("300Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	switch m.mode {
	case "topology":
		offers[contract.ResourceTopologyCard] = resource.MustParse("8")
	case "default":
		offers[contract.ResourceDefaultCard] = resource.MustParse("8")
	}
	for name, quantity := range m.extra {
		offers[name] = quantity
	}
	labels := map[string]string{
		contract.NodeModeLabel:     m.mode,
		contract.NodePoolNameLabel: s.namespace,
		contract.InstanceTypeLabel: instanceType,
		corev1.LabelHostname:       name,
	}
	for key, value := range m.labels {
		labels[key] = value
	}
	_, err := api().CoreV1().Nodes().Create(s.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Spec:       corev1.NodeSpec{Taints: m.taints},
		Status:     corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.nodes = append(s.nodes, name)
	s.await("node "+name+" to be ready", func(ctx context.Context) (bool, string) {
		node, err := api().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		ready := false
		for _, condition := range node.Status.Conditions {
			ready = ready || condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}
		return ready && len(node.Spec.Taints) == len(m.taints), fmt.Sprint(node.Spec.Taints)
	})
	return name
}

func (s *scene) close() {
	ctx := context.Background()
	now := int64(0)
	err := api().CoreV1().Pods(s.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	if err != nil {
		s.t.Error(err)
	}
	for _, node := range s.nodes {
		if err := api().CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	}
	if err := api().CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
	}
}

// job describes the pods of a job.
type job struct {
	name    string
	workers int
	// cards is what each worker asks for, of the resource.
	cards    int
	resource string
	labels   map[string]string
	change   func(*corev1.Pod)
}

// topologyGang is the topology document's spelling of a gang.
func topologyGang(name string, workers, cards int) job {
	return job{name: name, workers: workers, cards: cards, resource: contract.ResourceTopologyCard, labels: map[string]string{
		contract.TopologyGroupLabel:    name,
		contract.TopologyReplicasLabel: strconv.Itoa(workers),
	}}
}

// pods are the pods of a job as the training operator makes them.
func (s *scene) pods(j job) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range j.workers {
		labels := map[string]string{
			contract.JobNameLabel:         j.name,
			contract.JobReplicaTypeLabel:  "worker",
			contract.JobReplicaIndexLabel: strconv.Itoa(i),
		}
		for key, value := range j.labels {
			labels[key] = value
		}
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		if j.cards > 0 {
			list[corev1.ResourceName(j.resource)] = *resource.NewQuantity(int64(j.cards), resource.DecimalSI)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("%s-worker-%d", j.name, i), Labels: labels},
			Spec: corev1.PodSpec{
				SchedulerName:                 contract.SchedulerName,
				NodeSelector:                  map[string]string{contract.NodePoolNameLabel: s.namespace},
				TerminationGracePeriodSeconds: new(int64),
				Containers: []corev1.Container{{
					Name: "main", Image: "test",
					Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
				}},
			},
		}
		if j.change != nil {
			j.change(pod)
		}
		pods = append(pods, pod)
	}
	return pods
}

func (s *scene) submit(j job) {
	s.t.Helper()
	for _, pod := range s.pods(j) {
		s.create(pod)
	}
}

func (s *scene) create(pod *corev1.Pod) {
	s.t.Helper()
	_, err := api().CoreV1().Pods(s.namespace).Create(s.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// list returns the pods of a job by worker index.
func (s *scene) list(ctx context.Context, name string) []corev1.Pod {
	s.t.Helper()
	list, err := api().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name})
	require.NoError(s.t, err)
	return list.Items
}

// awaitBound waits until all pods of a job are bound, and returns them.
func (s *scene) awaitBound(name string) []corev1.Pod {
	s.t.Helper()
	s.await("job "+name+" to be bound", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, name)
		return len(pods) > 0 && bound(pods) == len(pods), fmt.Sprintf("%d of %d bound; %s", bound(pods), len(pods), reason(pods))
	})
	return s.list(s.t.Context(), name)
}

// awaitReason waits until all pods of a job are pending with one text, and returns it.
func (s *scene) awaitReason(name, part string) string {
	s.t.Helper()
	s.await("job "+name+" to wait because of "+part, func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, name)
		first := reason(pods[:1])
		for i := range pods {
			if text := reason(pods[i : i+1]); text != first || !strings.Contains(text, part) {
				return false, text
			}
		}
		return bound(pods) == 0, first
	})
	return reason(s.list(s.t.Context(), name))
}

// awaitText waits until all pods of a job are pending with exactly this text.
func (s *scene) awaitText(name, text string) {
	s.t.Helper()
	s.await("job "+name+" to say: "+text, func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, name)
		for i := range pods {
			if have := reason(pods[i : i+1]); have != text {
				return false, have
			}
		}
		return len(pods) > 0, ""
	})
}

func bound(pods []corev1.Pod) int {
	n := 0
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// reason is the message of the first pod that is not scheduled.
func reason(pods []corev1.Pod) string {
	for _, pod := range pods {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return condition.Message
			}
		}
	}
	return ""
}

// await checks whenever a pod or node of the cluster changes until the check holds.
func (s *scene) await(what string, check func(context.Context) (bool, string)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), settled)
	defer cancel()
	var changes []watch.Interface
	pods, err := api().CoreV1().Pods(s.namespace).Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	nodes, err := api().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	changes = append(changes, pods, nodes)
	for _, w := range changes {
		defer w.Stop()
	}
	for {
		done, status := check(ctx)
		if done {
			return
		}
		select {
		case <-pods.ResultChan():
		case <-nodes.ResultChan():
		case <-ctx.Done():
			require.FailNowf(s.t, "timed out", "waiting for %s: %s", what, status)
		}
	}
}

// allocation reads a pod's allocation record.
func (s *scene) allocation(pod corev1.Pod) contract.Allocation {
	s.t.Helper()
	record, ok, err := contract.AllocationFrom(pod.Annotations)
	require.NoError(s.t, err)
	require.True(s.t, ok, "pod %s has no allocation record", pod.Name)
	require.Equal(s.t, pod.Spec.NodeName, record.Node)
	return record
}

// requireNoSharedCards checks that no card of a node is in two records.
func (s *scene) requireNoSharedCards() {
	s.t.Helper()
	list, err := api().CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	owner := map[string]string{}
	for _, pod := range list.Items {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		record, _, err := contract.AllocationFrom(pod.Annotations)
		require.NoError(s.t, err)
		for _, card := range record.Cards {
			key := fmt.Sprintf("%s/%d", pod.Spec.NodeName, card)
			require.Empty(s.t, owner[key], "card %s belongs to %s and %s", key, owner[key], pod.Name)
			owner[key] = pod.Name
		}
	}
}

// finish ends a job: its pods succeed.
func (s *scene) finish(name string) {
	s.t.Helper()
	for _, pod := range s.list(s.t.Context(), name) {
		pod.Status.Phase = corev1.PodSucceeded
		_, err := api().CoreV1().Pods(s.namespace).UpdateStatus(s.t.Context(), &pod, metav1.UpdateOptions{})
		require.NoError(s.t, err)
	}
}
