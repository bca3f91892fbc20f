package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// settled bounds how long the cluster may take to come to rest; it is generous,
// because the machine that runs the tests may be busy.
const settled = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

var (
	queueGVR   = schema.GroupVersionResource{Group: contract.QueueGroup, Version: contract.QueueVersion, Resource: contract.QueueResource}
	unitGVR    = schema.GroupVersionResource{Group: contract.QueueGroup, Version: contract.QueueVersion, Resource: contract.QueueUnitResource}
	treeGVR    = schema.GroupVersionResource{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Resource: contract.QuotaTreeResource}
	pytorchGVR = schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Resource: contract.PyTorchJobResource}
	mpiGVR     = schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Resource: contract.MPIJobResource}
	jobSetGVR  = schema.GroupVersionResource{Group: contract.JobSetGroup, Version: contract.JobSetVersion, Resource: contract.JobSetResource}
	crdGVR     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	batchGVR   = batchv1.SchemeGroupVersion.WithResource("jobs")
)

// cluster is the platform that all tests share, one after the other: there is one
// quota tree and one controller.
var cluster struct {
	once       sync.Once
	err        error
	client     *kube.Client
	kubeconfig string
}

func connect(t *testing.T) *kube.Client {
	t.Helper()
	platform := localtest.Start(t)
	cluster.once.Do(func() {
		cluster.kubeconfig = platform.Kubeconfig
		objects, err := deploy.Objects(deploy.Options{Image: "test"})
		cluster.client, cluster.err = platform.Install(t, objects)
		cluster.err = errors.Join(err, cluster.err)
	})
	require.NoError(t, cluster.err)
	return cluster.client
}

// startController runs the queue controller without election, so that it works from
// its first moment on.
func startController(t *testing.T, flags ...string) *localtest.Process {
	t.Helper()
	connect(t)
	return startControllerBy(t, cluster.kubeconfig, flags...)
}

// startControllerBy is startController that reaches the API server by a kubeconfig.
func startControllerBy(t *testing.T, kubeconfig string, flags ...string) *localtest.Process {
	t.Helper()
	p, err := localtest.Launch(kubeconfig, contract.SchedulerName, append([]string{"queue", "--leader-elect=false", "--v=2"}, flags...)...)
	require.NoError(t, err)
	p.EndWith(t)
	return p
}

// testCluster is a test's namespace, with a node for its pods.
type testCluster struct {
	t         *testing.T
	client    *kube.Client
	namespace string
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	client := connect(t)
	namespace, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "queue-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s := &testCluster{t: t, client: client, namespace: namespace.Name}
	offers := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1000Gi"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	_, err = client.Typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: map[string]string{"test": s.namespace}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Status:     corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

// close takes away what the test made, and waits until the queue is empty.
func (s *testCluster) close() {
	ctx := context.Background()
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	for _, gvr := range []schema.GroupVersionResource{batchGVR, pytorchGVR, mpiGVR, unitGVR} {
		if err := s.client.Dynamic.Resource(gvr).Namespace(s.namespace).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
			s.t.Error(err)
		}
	}
	err := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace).Delete(ctx, contract.QuotaTreeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Error(err)
	}
	if err := s.client.Dynamic.Resource(queueGVR).Namespace(contract.QueueNamespace).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		s.t.Error(err)
	}
	now := int64(0)
	if err := s.client.Typed.CoreV1().Pods(s.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		s.t.Error(err)
	}
	if err := s.client.Typed.CoreV1().Nodes().Delete(ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
	}
	if err := s.client.Typed.CoreV1().Namespaces().Delete(ctx, s.namespace, options); err != nil {
		s.t.Error(err)
	}
}

// tree puts a quota tree in force. NS in the text stands for the test's namespace.
func (s *testCluster) tree(root string) {
	s.t.Helper()
	var spec map[string]any
	require.NoError(s.t, yaml.Unmarshal(bytes.ReplaceAll([]byte(root), []byte("NS"), []byte(s.namespace)), &spec))
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": spec}}}
	object.SetAPIVersion(treeGVR.GroupVersion().String())
	object.SetKind(contract.QuotaTreeKind)
	object.SetNamespace(contract.QuotaTreeNamespace)
	object.SetName(contract.QuotaTreeName)
	_, err := s.client.ApplyAs(s.t.Context(), "test", object)
	require.NoError(s.t, err)
}

// setTreeStatusSchema gives the CRD of the quota tree another schema of the status, waits until it counts,
// and returns the one of before. conditions tells whether it has conditions.
func (s *testCluster) setTreeStatusSchema(conditions bool, next any) (before any) {
	s.t.Helper()
	ctx := context.Background()
	crds := s.client.Dynamic.Resource(crdGVR)
	crd, err := crds.Get(ctx, treeGVR.GroupResource().String(), metav1.GetOptions{})
	require.NoError(s.t, err)
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	properties, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties")
	before, properties["status"] = properties["status"], next
	require.NoError(s.t, unstructured.SetNestedMap(versions[0].(map[string]any), properties, "schema", "openAPIV3Schema", "properties"))
	require.NoError(s.t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	_, err = crds.Update(ctx, crd, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	trees := s.client.Dynamic.Resource(treeGVR).Namespace(contract.QuotaTreeNamespace)
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		tree, err := trees.Get(ctx, contract.QuotaTreeName, metav1.GetOptions{})
		require.NoError(c, err)
		tree.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Checked"}}}
		tree, err = trees.UpdateStatus(ctx, tree, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(c, err)
		_, has, _ := unstructured.NestedSlice(tree.Object, "status", "conditions")
		assert.Equal(c, conditions, has)
	}, settled, 100*time.Millisecond)
	return before
}

// batch describes a batch Job.
type batch struct {
	name string
	cpu  string
	// runFor is how long its pods run, "" for good.
	runFor, class string
	// nowhere keeps its pods from being scheduled, running makes it not suspended.
	nowhere, running bool
	annotations      map[string]string
	// quota is the leaf that its pods name, "" for none.
	quota string
}

// awaitController waits until a controller works on the tree, so that it sees what
// arrives from now on.
func (s *testCluster) awaitController() {
	s.t.Helper()
	s.await("the controller to work", func() (bool, string) { queues := s.queues(); return len(queues) > 1, fmt.Sprint(queues) })
}

// remove deletes a batch Job with its pods.
func (s *testCluster) remove(name string) {
	s.t.Helper()
	background := metav1.DeletePropagationBackground
	require.NoError(s.t, s.client.Typed.BatchV1().Jobs(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}))
}

func (s *testCluster) submit(b batch) *batchv1.Job {
	s.t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: b.name, Namespace: s.namespace, Annotations: b.annotations},
		Spec: batchv1.JobSpec{
			Suspend:  new(bool),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: s.podSpec(b)},
		},
	}
	*job.Spec.Suspend = !b.running
	if b.quota != "" {
		job.Spec.Template.Labels = map[string]string{contract.QuotaLabel: b.quota}
	}
	if b.runFor != "" {
		job.Spec.Template.Annotations[contract.RunForAnnotation] = b.runFor
	}
	created, err := s.client.Typed.BatchV1().Jobs(s.namespace).Create(s.t.Context(), job, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return created
}

func (s *testCluster) podSpec(b batch) corev1.PodSpec {
	if b.cpu == "" {
		b.cpu = "1"
	}
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		PriorityClassName:             b.class,
		TerminationGracePeriodSeconds: new(int64),
		NodeSelector:                  map[string]string{"test": s.namespace},
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "main", Image: "test",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(b.cpu)}},
		}},
	}
	if b.nowhere {
		spec.NodeSelector = map[string]string{"test": "none"}
	}
	return spec
}

// training makes a PyTorchJob or MPIJob with one role, whose pods run as b says.
func (s *testCluster) training(kind, role string, replicas int64, b batch) {
	s.t.Helper()
	spec := s.podSpec(b)
	spec.Containers[0].Name = map[string]string{contract.PyTorchJobKind: contract.PyTorchContainerName, contract.MPIJobKind: contract.MPIContainerName}[kind]
	template := corev1.PodTemplateSpec{Spec: spec}
	if b.runFor != "" {
		template.Annotations = map[string]string{contract.RunForAnnotation: b.runFor}
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
	require.NoError(s.t, err)
	gvr, specs := pytorchGVR, "pytorchReplicaSpecs"
	if kind == contract.MPIJobKind {
		gvr, specs = mpiGVR, "mpiReplicaSpecs"
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"runPolicy": map[string]any{"suspend": !b.running},
		specs:       map[string]any{role: map[string]any{"replicas": replicas, "restartPolicy": "Never", "template": raw}},
	}}}
	object.SetAPIVersion(gvr.GroupVersion().String())
	object.SetKind(kind)
	object.SetName(b.name)
	object.SetAnnotations(b.annotations)
	_, err = s.client.Dynamic.Resource(gvr).Namespace(s.namespace).Create(s.t.Context(), object, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// alpha makes an MPIJob v1alpha1 of a launcher and two workers with a CPU each, as the provider does.
func (s *testCluster) alpha(name string) {
	s.t.Helper()
	object, err := trainingjob.Spec{
		Namespace: s.namespace, Name: name, Framework: trainingjob.MPI, Version: contract.MPIAlphaVersion, Queue: true,
		SchedulerName: corev1.DefaultSchedulerName, NodeSelector: map[string]string{"test": s.namespace},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Roles: map[string]trainingjob.Role{
			contract.ReplicaLauncher: {Replicas: 1, Image: "test"},
			contract.ReplicaWorker:   {Replicas: 2, Image: "test", CPU: resource.MustParse("1")},
		},
	}.Render()
	require.NoError(s.t, err)
	_, err = s.client.Apply(s.t.Context(), object)
	require.NoError(s.t, err)
}

// jobSet makes a JobSet of a driver and two workers with a CPU each, as the provider does.
func (s *testCluster) jobSet(name string) {
	s.t.Helper()
	one := resource.MustParse("1")
	object, err := trainingjob.Spec{
		Namespace: s.namespace, Name: name, Framework: trainingjob.JobSet, Queue: true,
		SchedulerName: corev1.DefaultSchedulerName, NodeSelector: map[string]string{"test": s.namespace},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Roles:       map[string]trainingjob.Role{"driver": {Replicas: 1, Image: "test", CPU: one}, "worker": {Replicas: 2, Image: "test", CPU: one}},
	}.Render()
	require.NoError(s.t, err)
	_, err = s.client.Apply(s.t.Context(), object)
	require.NoError(s.t, err)
}

// unit returns a unit, with an empty phase when there is none.
func (s *testCluster) unit(name string) contract.QueueUnit {
	s.t.Helper()
	var u contract.QueueUnit
	object, err := s.client.Dynamic.Resource(unitGVR).Namespace(s.namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return u
	}
	require.NoError(s.t, err)
	require.NoError(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &u))
	return u
}

// queues returns the Queues by the path of their node.
func (s *testCluster) queues() map[string]contract.Queue {
	s.t.Helper()
	list, err := s.client.Dynamic.Resource(queueGVR).Namespace(contract.QueueNamespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(s.t, err)
	queues := map[string]contract.Queue{}
	for _, item := range list.Items {
		var q contract.Queue
		require.NoError(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &q))
		path := q.Annotations[contract.QueuePathAnnotation]
		require.NotContains(s.t, queues, path, "two Queues for one node")
		queues[path] = q
	}
	return queues
}

// phase returns the condition that a unit is in a phase, or already in one that comes after it.
func (s *testCluster) phase(name string, phase contract.QueueUnitPhase, later ...contract.QueueUnitPhase) func() (bool, string) {
	return func() (bool, string) {
		u := s.unit(name)
		return u.Status.Phase == phase || slices.Contains(later, u.Status.Phase), fmt.Sprintf("%s is %s: %s", name, u.Status.Phase, u.Status.Message)
	}
}

// awaitEvents waits until the controller's events on a job include the given ones, as
// "Reason: note".
func (s *testCluster) awaitEvents(job string, want ...string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		list, err := s.client.Typed.CoreV1().Events(s.namespace).List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + job})
		require.NoError(c, err)
		var have []string
		for _, event := range list.Items {
			if event.Source.Component == contract.QueueControllerName {
				have = append(have, event.Reason+": "+event.Message)
			}
		}
		assert.Subset(c, have, want)
	}, settled, 100*time.Millisecond)
}

// await checks whenever something of the queue changes until the check holds.
func (s *testCluster) await(what string, check func() (bool, string)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), settled)
	defer cancel()
	changes := make(chan watch.Event)
	for gvr, namespace := range map[schema.GroupVersionResource]string{
		batchGVR: s.namespace, pytorchGVR: s.namespace, mpiGVR: s.namespace, jobSetGVR: s.namespace, unitGVR: s.namespace,
		queueGVR: contract.QueueNamespace, treeGVR: contract.QuotaTreeNamespace,
	} {
		w, err := s.client.Dynamic.Resource(gvr).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
		require.NoError(s.t, err)
		defer w.Stop()
		go func() {
			for event := range w.ResultChan() {
				select {
				case changes <- event:
				case <-ctx.Done():
				}
			}
		}()
	}
	for {
		done, status := check()
		if done {
			return
		}
		select {
		case <-changes:
		case <-ctx.Done():
			require.FailNowf(s.t, "timed out", "waiting for %s: %s", what, status)
		}
	}
}
