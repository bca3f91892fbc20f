package queue

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// What a job is charged with while it waits is what its pods will be, whichever of requests and
// limits its template has, and however many it asks for.
func TestNeeds(t *testing.T) {
	gpus := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse(amount), corev1.ResourceMemory: resource.MustParse("1Gi")}
	}
	for name, test := range map[string]struct {
		resources corev1.ResourceRequirements
		count     int32
		gpus      int64
	}{
		"requests":             {corev1.ResourceRequirements{Requests: gpus("2")}, 3, 6},
		"limits":               {corev1.ResourceRequirements{Limits: gpus("2")}, 3, 6},
		"both":                 {corev1.ResourceRequirements{Requests: gpus("2"), Limits: gpus("2")}, 3, 6},
		"no pods":              {corev1.ResourceRequirements{Requests: gpus("2")}, 0, 0},
		"as many as there are": {corev1.ResourceRequirements{Limits: gpus("8")}, math.MaxInt32, 8 * math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: contract.PyTorchContainerName, Resources: test.resources}}}}
			for _, k := range kinds() {
				if k.resource == contract.TrainJobResource {
					continue // its JobSet says what it needs
				}
				j, err := newJob(k, ofKind(t, k, template, test.count), nil)
				require.NoError(t, err)
				assert.Equal(t, test.gpus, j.charge[contract.ResourceTopologyGPU], k.gvk)
				assert.True(t, j.charge["memory"] >= 0 && j.charge["memory"] <= mostCharged, k.gvk)
			}
		})
	}
}

// A gang runs when its minimum does, of whichever kind its job is. A launcher's Job has the labels of its gang, and
// is one pod; one that runs its pods in turns needs as many as it runs at a time.
func TestPodsThatMustRun(t *testing.T) {
	asks := corev1.ResourceRequirements{Limits: corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("1")}}
	gang := func(minimum string, asks corev1.ResourceRequirements) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{contract.LightGangLabel: "job", contract.LightGangMinLabel: minimum}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: contract.PyTorchContainerName, Resources: asks}}},
		}
	}
	for _, k := range kinds() {
		if k.resource == contract.TrainJobResource {
			continue // its JobSet says how many
		}
		if k.gvk.Version == contract.MPIAlphaVersion {
			continue // its launcher starts when all workers run
		}
		j, err := newJob(k, ofKind(t, k, gang("2", asks), 4), nil)
		require.NoError(t, err)
		assert.Equal(t, 2, j.pods, k.gvk)
	}
	batch := kinds()[slices.IndexFunc(kinds(), func(k kind) bool { return k.resource == "jobs" })]
	launcher, err := newJob(batch, ofKind(t, batch, gang("6", corev1.ResourceRequirements{}), 1), nil)
	require.NoError(t, err)
	assert.Equal(t, 1, launcher.pods)
	turns := ofKind(t, batch, gang("2", asks), 4)
	require.NoError(t, unstructured.SetNestedField(turns.Object, int64(3), "spec", "completions"))
	require.NoError(t, unstructured.SetNestedField(turns.Object, map[string]any{}, "spec", "template", "metadata", "labels"))
	j, err := newJob(batch, turns, nil)
	require.NoError(t, err)
	assert.Equal(t, 3, j.pods)
}

// ofKind is a job of a kind with one template.
func ofKind(t *testing.T, k kind, template corev1.PodTemplateSpec, count int32) *unstructured.Unstructured {
	t.Helper()
	batch := object("job", func(j *batchv1.Job) { j.Spec.Template, j.Spec.Parallelism = template, ptr.To(count) })
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(batch)
	require.NoError(t, err)
	u := &unstructured.Unstructured{Object: raw}
	switch k.resource {
	case "jobs":
		return u
	case contract.JobSetResource:
		job, _, err := unstructured.NestedMap(raw, "spec")
		require.NoError(t, err)
		u.Object["spec"] = map[string]any{"replicatedJobs": []any{map[string]any{"name": "worker", "template": map[string]any{"spec": job}}}}
		u.SetGroupVersionKind(k.gvk)
		return u
	}
	spec, _, err := unstructured.NestedMap(raw, "spec", "template")
	require.NoError(t, err)
	replicas := map[string]any{"Worker": map[string]any{"replicas": int64(count), "template": spec}}
	field := map[string]string{contract.PyTorchJobResource: "pytorchReplicaSpecs", contract.MPIJobResource: "mpiReplicaSpecs"}[k.resource]
	u.Object["spec"] = map[string]any{field: replicas}
	if k.gvk.Version == contract.MPIAlphaVersion {
		u.Object["spec"] = map[string]any{"replicas": int64(count), "template": spec}
	}
	u.SetGroupVersionKind(k.gvk)
	return u
}
