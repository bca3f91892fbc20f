package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A TrainJob is queued once it is a JobSet, which says what it needs. It is that which is suspended and released: the
// JobSet and its Jobs are its parts.
func TestTrainJobIsQueuedByItsJobSet(t *testing.T) {
	s := world(t)
	sets, trainer := kinds()[5], kinds()[6]
	require.Equal(t, contract.TrainJobKind, trainer.gvk.Kind)
	owner := func(gvk kind, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "train", UID: uid}, gvk.gvk)}
	}
	made := func(k kind, uid types.UID, version string, spec map[string]any) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		obj.SetGroupVersionKind(k.gvk)
		obj.SetNamespace("team")
		obj.SetName("train")
		obj.SetUID(uid)
		obj.SetResourceVersion(version)
		return obj
	}
	job := made(trainer, "job", "5", map[string]any{"suspend": true, "runtimeRef": map[string]any{"kind": "ClusterTrainingRuntime", "name": "torch-distributed"}})
	require.NoError(t, s.setJob(trainer, job))
	p := s.plan(patient, now, nil)
	assert.Empty(t, p.names(), "nobody knows what it needs")

	set := made(sets, "set", "6", map[string]any{"suspend": true, "replicatedJobs": []any{map[string]any{
		"name": "node", "replicas": int64(1), "template": map[string]any{"spec": map[string]any{
			"parallelism": int64(2), "completions": int64(2),
			"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
				"name": "node", "image": "train:1", "resources": map[string]any{"requests": map[string]any{"cpu": "3"}},
			}}}},
		}},
	}}})
	set.SetOwnerReferences(owner(trainer, "job"))
	require.NoError(t, s.setJob(sets, set))
	part := object("train-node-0", nil)
	part.OwnerReferences = owner(sets, "set")
	s.put(t, part)
	assert.Equal(t, types.UID("job"), s.whole("train-node-0"))
	p = s.plan(patient, now, nil)
	require.Equal(t, "enqueue train", p.names())
	e := p.enqueue[0]
	assert.Equal(t, contract.TrainJobKind, e.job.kind.gvk.Kind)
	assert.EqualValues(t, 6000, e.job.charge["cpu"])
	assert.Equal(t, 2, e.job.pods)

	job = job.DeepCopy()
	job.SetResourceVersion("9")
	job.SetGeneration(2)
	require.NoError(t, unstructured.SetNestedField(job.Object, false, "spec", "suspend"))
	require.NoError(t, s.setJob(trainer, job))
	assert.EqualValues(t, 6000, s.jobs["job"].charge["cpu"], "it needs what it has needed")
	s.removeJob("set")
	job = job.DeepCopy()
	job.SetResourceVersion("10")
	job.SetGeneration(3)
	require.NoError(t, s.setJob(trainer, job))
	assert.EqualValues(t, 6000, s.jobs["job"].charge["cpu"], "its JobSet will be made again")
}

// Owners that lead back to a job lead nowhere.
func TestJobThatIsPartOfItself(t *testing.T) {
	s := world(t)
	circle := object("circle", nil)
	circle.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "circle", UID: "circle"}, kinds()[5].gvk)}
	s.put(t, circle)
	assert.Equal(t, types.UID("circle"), s.whole("circle"))
}
