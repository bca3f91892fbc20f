package kills

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	agent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

var treeKind = schema.GroupVersionKind{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Kind: contract.QuotaTreeKind}

// cluster is what there really is, seen without the provider.
type cluster struct {
	service   *acs.Client
	clusterID string
	client    *kube.Client
}

func clusterOf(t *testing.T, platform *localtest.Platform) *cluster {
	t.Helper()
	service, err := acs.New(acs.Config{
		Credentials: acs.Credentials{AccessKeyID: platform.Env["ALIBABA_CLOUD_ACCESS_KEY_ID"], AccessKeySecret: platform.Env["ALIBABA_CLOUD_ACCESS_KEY_SECRET"]},
		Region:      platform.Env["ALIBABA_CLOUD_REGION_ID"], Endpoint: platform.Env["GPUPLAN_CS_ENDPOINT"],
	})
	require.NoError(t, err)
	client, err := kube.New(platform.Config(t))
	require.NoError(t, err)
	return &cluster{service: service, clusterID: platform.Env["GPUPLAN_CLUSTER_ID"], client: client}
}

// inPlace checks that everything is there once, as the configuration says, and that
// terraform knows it.
func (s *suite) inPlace(t *testing.T, nodes int, limit, image string, more []string, variables ...string) {
	t.Helper()
	output, code, _ := s.run(t, point{}, append([]string{"plan", "-detailed-exitcode"}, variables...)...)
	require.Zero(t, code, "the plan is not empty after %q\n%s", s.log, output)
	listed, _, _ := s.list(t)
	assert.Len(t, strings.Fields(listed), 14, listed)

	pools, err := s.service.ListNodePools(t.Context(), s.clusterID)
	require.NoError(t, err)
	assert.Len(t, pools, 4, "%q", s.log)
	assert.Len(t, s.nodes(t), nodes, "%q", s.log)
	jobs := acctest.Jobs(t, s.client, "")
	var names []string
	for _, j := range jobs {
		spec, err := job.Parse(&j)
		require.NoError(t, err)
		names = append(names, spec.Name)
		if spec.Framework == job.MPI || spec.Framework == job.JobSet {
			for role, r := range spec.Roles {
				assert.Equal(t, image, r.Image, "%s of %s: %q", role, spec.Name, s.log)
			}
		}
	}
	wanted := []string{"kills-mpi", "kills-pytorch", "kills-jobset", "kills-batch"}
	for _, name := range more {
		wanted = append(wanted, "kills-each-"+name)
	}
	assert.ElementsMatch(t, wanted, names, "%q", s.log)
	s.ownPods(t, jobs, 16)
	assert.Equal(t, 1, s.boards(t), "%q", s.log)
	tree, err := s.client.Get(t.Context(), treeKind, contract.QuotaTreeNamespace, contract.QuotaTreeName)
	require.NoError(t, err)
	children, _, _ := unstructured.NestedSlice(tree.Object, "spec", "root", "children")
	require.Len(t, children, 1)
	assert.Equal(t, map[string]any{"name": "vision", "max": map[string]any{contract.ResourceTopologyGPU: limit}}, children[0], "%q", s.log)
}

// claim makes a volume claim, which jobs log to.
func (s *suite) claim(t *testing.T, name string) {
	t.Helper()
	_, err := s.client.Typed.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// boards is how many TensorBoards there are: a Deployment and a Service each.
func (s *suite) boards(t *testing.T) int {
	t.Helper()
	deployments, err := s.client.Typed.AppsV1().Deployments("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	services, err := s.client.Typed.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.ManagedByLabel})
	require.NoError(t, err)
	assert.Len(t, services.Items, len(deployments.Items), "%q", s.log)
	return len(deployments.Items)
}

func (s *suite) list(t *testing.T) (string, int, string) {
	t.Helper()
	return s.run(t, point{}, "state", "list")
}

// ownPods checks that all pods of jobs belong to these jobs, and that there are so many.
func (s *suite) ownPods(t *testing.T, jobs []unstructured.Unstructured, count int) {
	t.Helper()
	owners := map[types.UID]bool{}
	for _, j := range jobs {
		owners[j.GetUID()] = true
	}
	// An MPIJob v1alpha1 has its workers from a StatefulSet and its launcher from a batch Job.
	sets, err := s.client.Typed.AppsV1().StatefulSets("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	launchers, err := s.client.Typed.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var between []metav1.Object
	for i := range sets.Items {
		between = append(between, &sets.Items[i])
	}
	for i := range launchers.Items {
		between = append(between, &launchers.Items[i])
	}
	for _, object := range between {
		if owners[object.GetUID()] {
			continue // a job of batch
		}
		if owner := metav1.GetControllerOf(object); assert.True(t, owner != nil && owners[owner.UID], "%s is of another job: %q", object.GetName(), s.log) {
			owners[object.GetUID()] = true
		}
	}
	pods, err := s.client.Typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel})
	require.NoError(t, err)
	assert.Len(t, pods.Items, count, "%q", s.log)
	for i := range pods.Items {
		owner := metav1.GetControllerOf(&pods.Items[i])
		assert.True(t, owner != nil && owners[owner.UID], "pod %s is of another job: %q", pods.Items[i].Name, s.log)
	}
}

func (s *suite) nodes(t *testing.T) []corev1.Node {
	t.Helper()
	nodes, err := s.client.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodePoolIDLabel})
	require.NoError(t, err)
	return nodes.Items
}

// gone checks that nothing is left of anything.
func (s *suite) gone(t *testing.T) {
	t.Helper()
	listed, _, _ := s.list(t)
	assert.Empty(t, listed)
	pools, err := s.service.ListNodePools(t.Context(), s.clusterID)
	require.NoError(t, err)
	assert.Empty(t, pools, "%q", s.log)
	assert.Empty(t, s.nodes(t), "%q", s.log)
	assert.Empty(t, acctest.Jobs(t, s.client, ""), "%q", s.log)
	s.ownPods(t, nil, 0)
	assert.Zero(t, s.boards(t), "%q", s.log)
	configMaps, err := s.client.Typed.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, c := range configMaps.Items {
		assert.Equal(t, "kube-root-ca.crt", c.Name, "%q", s.log)
	}
	programs, err := scheduler.Objects(scheduler.Options{Image: "x"})
	require.NoError(t, err)
	more, err := agent.Objects(agent.Options{Image: "x"})
	require.NoError(t, err)
	for _, obj := range append(programs, more...) {
		_, err := s.client.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		assert.True(t, kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed), "%s %s is left: %q", obj.GetKind(), obj.GetName(), s.log)
	}
	require.False(t, t.Failed(), "something is left")
}
