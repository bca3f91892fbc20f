package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestTrainJobStatus(t *testing.T) {
	condition := func(kind, status string) []any {
		return []any{map[string]any{"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}}
	}
	roles := func(of string) []any {
		return []any{map[string]any{"name": "driver", of: int64(1)}, map[string]any{"name": "worker", of: int64(1)}}
	}
	for name, test := range map[string]struct {
		status               map[string]any
		held                 bool
		phase                Phase
		active               int32
		runs, started, ended bool
	}{
		"not looked at":  {phase: Pending},
		"waits for GPUs": {status: map[string]any{"jobsStatus": roles("active")}, phase: Created, started: true},
		"runs":           {status: map[string]any{"jobsStatus": roles("ready")}, phase: Running, active: 5, runs: true, started: true},
		"suspended":      {held: true, status: map[string]any{"conditions": condition("Suspended", "True")}, phase: Suspended},
		"resumed":        {status: map[string]any{"conditions": condition("Suspended", "False"), "jobsStatus": roles("active")}, phase: Created, started: true},
		"failed":         {status: map[string]any{"conditions": condition("Failed", "True")}, phase: Failed, started: true, ended: true},
		"done":           {status: map[string]any{"conditions": condition("Complete", "True"), "jobsStatus": roles("succeeded")}, phase: Succeeded, started: true, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := trainJobGang()
			s.Suspend = test.held
			obj, err := s.Render()
			require.NoError(t, err)
			obj.Object["status"] = test.status
			status, err := StatusOf(obj)
			require.NoError(t, err)
			assert.Equal(t, test.phase, status.Phase)
			assert.Equal(t, test.active, status.Active)
			assert.Equal(t, test.runs, status.Runs(4))
			assert.Equal(t, test.started, status.Start != nil)
			assert.Equal(t, test.ended, status.Completion != nil)
			assert.EqualValues(t, 5, status.Wanted)
		})
	}
}

// In the cluster a TrainJob and what its pods are are two objects, which are read as one again.
func TestTrainJobIsSplitAndJoined(t *testing.T) {
	s := trainJobGang()
	whole, err := s.Render()
	require.NoError(t, err)
	runtime, bare := Split(whole)
	assert.Equal(t, RuntimeGVK(), runtime.GroupVersionKind())
	assert.Equal(t, "research/train", runtime.GetNamespace()+"/"+runtime.GetName())
	assert.Equal(t, map[string]string{contract.ManagedByLabel: contract.ManagedByValue, contract.OwnerLabel: "vision-prod"}, runtime.GetLabels())
	assert.Equal(t, "train", RuntimeOf(bare))
	assert.NotContains(t, bare.Object, trainJobTemplate)
	assert.NotEmpty(t, Foreign(bare))

	theirs := runtime.DeepCopy()
	theirs.SetLabels(nil)
	Join(bare, theirs)
	assert.Contains(t, Foreign(bare), "said by the TrainingRuntime train")
	Join(bare, runtime)
	assert.Equal(t, whole.Object, bare.Object)
	assert.Empty(t, Foreign(bare))

	plain, err := jobSetPlain().Render()
	require.NoError(t, err)
	none, same := Split(plain)
	assert.Nil(t, none)
	assert.Same(t, plain, same)
	assert.Empty(t, RuntimeOf(plain))
	require.NoError(t, unstructured.SetNestedField(bare.Object, "ClusterTrainingRuntime", "spec", "runtimeRef", "kind"))
	assert.Empty(t, RuntimeOf(bare))
}

func TestRuntimesOfAJob(t *testing.T) {
	ours := map[string]string{contract.ManagedByLabel: contract.ManagedByValue}
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: trainerVersion.String(), Kind: kind, Name: name}}
	}
	for name, test := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		own    bool
	}{
		"the job's":            {ours, owner("TrainJob", "rl"), true},
		"left of a cut apply":  {ours, nil, true},
		"with the stamp":       {map[string]string{contract.ManagedByLabel: contract.ManagedByValue, contract.OwnerLabel: "mine"}, nil, true},
		"with another stamp":   {map[string]string{contract.ManagedByLabel: contract.ManagedByValue, contract.OwnerLabel: "theirs"}, nil, false},
		"of another job":       {ours, owner("TrainJob", "other"), false},
		"of others":            {nil, nil, false},
		"of others, the job's": {nil, owner("TrainJob", "rl"), false},
	} {
		runtime := &unstructured.Unstructured{Object: map[string]any{}}
		runtime.SetLabels(test.labels)
		runtime.SetOwnerReferences(test.owners)
		s := trainJobPlain()
		s.Owner = "mine"
		assert.Equal(t, test.own, s.OwnsRuntime(runtime), name)
	}
}

// What nobody can change of a JobSet stays in the runtime, from which that is made.
func TestRuntimeIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		suspended bool
		team      string
	}{"runs": {team: "a"}, "suspended": {suspended: true, team: "b"}} {
		t.Run(name, func(t *testing.T) {
			s := trainJobPlain()
			s.Labels, s.Suspend, s.BackoffLimit = map[string]string{"team": "a"}, test.suspended, ptr.To[int32](1)
			live, err := s.Render()
			require.NoError(t, err)
			s.Labels, s.Suspend, s.BackoffLimit = map[string]string{"team": "b"}, false, nil
			after, err := s.Render()
			require.NoError(t, err)
			require.NoError(t, Keep(after, live))
			assert.Equal(t, "b", after.GetLabels()["team"])
			runtime, bare := Split(after)
			assert.False(t, Held(bare))
			roles, _, _ := unstructured.NestedSlice(runtime.Object, "spec", "template", "spec", "replicatedJobs")
			require.Len(t, roles, 2)
			label, _, _ := unstructured.NestedString(roles[0].(map[string]any), "template", "spec", "template", "metadata", "labels", "team") //nolint:forcetypeassert // as rendered
			assert.Equal(t, test.team, label)
			limit, _, _ := unstructured.NestedFieldNoCopy(runtime.Object, "spec", "template", "spec", "failurePolicy", "maxRestarts")
			assert.EqualValues(t, 1, limit)
			_, found, _ := unstructured.NestedFieldNoCopy(runtime.Object, "spec", "template", "spec", "suspend")
			assert.False(t, found, "the TrainJob says it")
		})
	}
}

func TestCheckTrainJob(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(*Spec)
		field, text string
	}{
		"time to live": {func(s *Spec) { s.TTLSecondsAfterFinished = ptr.To[int32](60) }, "ttl_seconds_after_finished", "stays until it is deleted"},
		"pods":         {func(s *Spec) { s.CleanPodPolicy = "All" }, "clean_pod_policy", `leave clean_pod_policy out with framework "trainjob"`},
		"minimum":      {func(s *Spec) { s.Minimum = 2 }, "gang", `leave minima out with framework "trainjob"`},
		"marks":        {func(s *Spec) { s.Labels = map[string]string{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"} }, "labels", "is set by Kubeflow Trainer"},
		"arena":        {func(s *Spec) { s.Arena = true }, "arena_compatible", `arena knows no jobs of framework "trainjob"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := trainJobPlain()
			require.Empty(t, s.Check())
			test.change(&s)
			problems := s.Check()
			require.Len(t, problems, 1)
			assert.Equal(t, test.field, problems[0].Field)
			assert.Contains(t, problems[0].Text, test.text)
		})
	}
}
