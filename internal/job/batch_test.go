package job

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestBatchStatus(t *testing.T) {
	condition := func(kind string) []any {
		return []any{map[string]any{"type": kind, "status": "True", "reason": "R", "message": "m"}}
	}
	for name, test := range map[string]struct {
		status        map[string]any
		phase         Phase
		runs, started bool
	}{
		"not looked at":      {phase: Pending},
		"waits for GPUs":     {status: map[string]any{"startTime": "2026-01-01T00:00:00Z", "active": int64(4), "ready": int64(0)}, phase: Created, started: true},
		"runs in part":       {status: map[string]any{"active": int64(4), "ready": int64(3)}, phase: Running},
		"runs":               {status: map[string]any{"active": int64(4), "ready": int64(4)}, phase: Running, runs: true},
		"the first are done": {status: map[string]any{"active": int64(3), "ready": int64(3), "succeeded": int64(1)}, phase: Running, runs: true},
		"suspended":          {status: map[string]any{"conditions": condition("Suspended")}, phase: Suspended},
		"is about to fail":   {status: map[string]any{"active": int64(2), "ready": int64(2), "conditions": condition("FailureTarget")}, phase: Running},
		"failed":             {status: map[string]any{"conditions": condition("Failed")}, phase: Failed},
		"done":               {status: map[string]any{"succeeded": int64(4), "conditions": condition("Complete")}, phase: Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := batchGang()
			s.Minimum = 0
			obj, err := s.Render()
			require.NoError(t, err)
			obj.Object["status"] = test.status
			status, err := StatusOf(obj)
			require.NoError(t, err)
			assert.Equal(t, test.phase, status.Phase)
			assert.Equal(t, test.runs, status.Runs(4))
			assert.Equal(t, test.started, status.Start != nil)
			assert.EqualValues(t, 4, status.Wanted)
		})
	}
}

// Nobody can change the template of a Job that has started, so a changed label stays on the Job.
func TestTemplateOfAJobThatRunsIsKept(t *testing.T) {
	labelsOf := func(obj *unstructured.Unstructured) map[string]string {
		labels, _, err := unstructured.NestedStringMap(obj.Object, "spec", "template", "metadata", "labels")
		require.NoError(t, err)
		return labels
	}
	for name, test := range map[string]struct {
		suspended, started bool
		team               string
	}{
		"runs":                     {started: true, team: "a"},
		"is about to":              {team: "a"},
		"suspended while it ran":   {suspended: true, started: true, team: "a"},
		"suspended, has no pods":   {suspended: true, team: "b"},
		"suspended, never started": {suspended: true, team: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := batch()
			s.Labels, s.Suspend = map[string]string{"team": "a"}, test.suspended
			live, err := s.Render()
			require.NoError(t, err)
			before := labelsOf(live)
			written := labelsOf(live)
			written["controller-uid"], written["batch.kubernetes.io/job-name"] = "1", s.Name
			require.NoError(t, unstructured.SetNestedStringMap(live.Object, written, "spec", "template", "metadata", "labels"))
			if test.started {
				require.NoError(t, unstructured.SetNestedField(live.Object, "2026-01-01T00:00:00Z", "status", "startTime"))
			}
			s.Labels, s.Suspend = map[string]string{"team": "b"}, false
			after, err := s.Render()
			require.NoError(t, err)
			require.NoError(t, Keep(after, live))
			assert.Equal(t, "b", after.GetLabels()["team"])
			before["team"] = test.team
			assert.Equal(t, before, labelsOf(after), "what Kubernetes writes is not taken over")
		})
	}
}

// Of a Job that kubectl has made neither the template nor the policy is written again: both would be refused.
func TestTemplateOfOthersStaysTheirs(t *testing.T) {
	for name, test := range map[string]struct {
		held bool
		want map[string]any
	}{
		"runs":      {false, nil},
		"suspended": {true, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "train", contract.ManagedByLabel: contract.ManagedByValue}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := batch()
			s.Labels = map[string]string{"app": "train"}
			rendered, err := s.Render()
			require.NoError(t, err)
			unstructured.RemoveNestedField(rendered.Object, "spec", "template", "metadata", "creationTimestamp")
			for _, label := range []string{contract.JobNameLabel, contract.JobOperatorNameLabel, contract.JobReplicaTypeLabel, contract.LightGangLabel, contract.LightGangMinLabel} {
				unstructured.RemoveNestedField(rendered.Object, "spec", "template", "metadata", "labels", label)
			}
			live := rendered.DeepCopy()
			unstructured.RemoveNestedField(live.Object, "spec", "podFailurePolicy")
			unstructured.RemoveNestedField(live.Object, "spec", "template", "metadata", "labels", contract.ManagedByLabel)
			require.NoError(t, Hold(live, test.held))
			require.NoError(t, Keep(rendered, live))
			template, _, err := unstructured.NestedMap(rendered.Object, "spec", "template")
			require.NoError(t, err)
			assert.Equal(t, test.want, template)
			assert.NotContains(t, rendered.Object["spec"], "podFailurePolicy")
		})
	}
}

// Kubernetes gives a Job without labels those of its template, its own included, which are no user's.
func TestLabelsThatKubernetesWritesAreNoUsers(t *testing.T) {
	s := batch()
	obj, err := s.Render()
	require.NoError(t, err)
	labels := obj.GetLabels()
	for _, key := range batchLabels {
		labels[key] = "x"
	}
	obj.SetLabels(labels)
	again, err := Parse(obj)
	require.NoError(t, err)
	assert.Equal(t, s.Labels, again.Labels)

	s.Labels = map[string]string{"job-name": "x"}
	problems := s.Check()
	require.Len(t, problems, 1)
	assert.Equal(t, "job-name is set by Kubernetes: leave it out", problems[0].Text)
	other := plain()
	other.Labels = s.Labels
	assert.Empty(t, other.Check(), "operators set no such label")
}

// The name of a Job has as many characters as leave room for the hosts of its pods, whose own names are cut.
func TestNamesOfJobs(t *testing.T) {
	for name, test := range map[string]struct {
		name     string
		replicas int32
		want     []string
	}{
		"the longest":             {strings.Repeat("a", 61), 10, nil},
		"too long for its number": {strings.Repeat("a", 61), 11, []string{`the host name "` + strings.Repeat("a", 61) + `-10" would have 64 characters, at most 63 are allowed: shorten the job's name by 1`}},
		"begins with a digit":     {"2026-run", 2, nil},
		"an upper-case letter":    {"Run", 2, []string{`"Run" cannot be the name of a job: ` + validation.IsDNS1123Label("Run")[0]}},
	} {
		t.Run(name, func(t *testing.T) {
			s := batchGang()
			s.Name = test.name
			set(&s, "worker", func(r *Role) { r.Replicas = test.replicas })
			var got []string
			for _, p := range s.Check() {
				got = append(got, p.Text)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestForeign(t *testing.T) {
	of := func(change func(spec map[string]any), owner string) *unstructured.Unstructured {
		obj, err := batchGang().Render()
		require.NoError(t, err)
		change(obj.Object["spec"].(map[string]any))
		if owner != "" {
			require.NoError(t, unstructured.SetNestedSlice(obj.Object, []any{map[string]any{
				"apiVersion": "batch/v1", "kind": owner, "name": "nightly", "uid": "1", "controller": true,
			}}, "metadata", "ownerReferences"))
		}
		return obj
	}
	same := func(map[string]any) {}
	assert.Empty(t, Foreign(of(same, "")))
	assert.Contains(t, Foreign(of(same, "CronJob")), "belongs to the CronJob nightly")
	assert.Contains(t, Foreign(of(func(spec map[string]any) { spec["completionMode"] = "NonIndexed" }, "")), "completionMode is NonIndexed")
	assert.Contains(t, Foreign(of(func(spec map[string]any) { spec["parallelism"] = int64(2) }, "")), "4 completions and a parallelism of 2")
	operators, err := plain().Render()
	require.NoError(t, err)
	assert.Empty(t, Foreign(operators))
}

func TestClashes(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*Spec)
		clashes bool
	}{
		"a gang":         {func(*Spec) {}, true},
		"of topology":    {func(s *Spec) { s.Gang, s.Mode = false, Topology }, true},
		"single pods":    {func(s *Spec) { s.Gang, s.Mode = false, Default }, false},
		"of an operator": {func(s *Spec) { *s = plain() }, true},
		"of another gang": {func(s *Spec) {
			s.Gang, s.Mode, s.Labels = false, Default, map[string]string{contract.PodGroupLabel: "other"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := batchGang()
			test.change(&s)
			obj, err := s.Render()
			require.NoError(t, err)
			assert.Equal(t, test.clashes, Clashes(obj))
		})
	}
}

func TestCheckBatch(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(*Spec)
		field, text string
	}{
		"restart":   {func(s *Spec) { s.RestartPolicy = "Always" }, "restart_policy", `"Always" is not possible`},
		"pods":      {func(s *Spec) { s.CleanPodPolicy = "All" }, "clean_pod_policy", "keeps its pods"},
		"arena":     {func(s *Spec) { s.Arena = true }, "arena_compatible", "arena knows no jobs"},
		"processes": {func(s *Spec) { s.ProcessesPerNode = "8" }, "nproc_per_node", "nothing starts processes"},
		"no worker": {func(s *Spec) { s.Roles, s.Gang, s.Minimum = nil, false, 0; s.Mode = Default }, "roles", `needs the role "worker"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := batchGang()
			require.Empty(t, s.Check())
			test.change(&s)
			problems := s.Check()
			require.Len(t, problems, 1)
			assert.Equal(t, test.field, problems[0].Field)
			assert.Contains(t, problems[0].Text, test.text)
		})
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"train":                       corev1.PullAlways,
		"train:latest":                corev1.PullAlways,
		"train:1":                     corev1.PullIfNotPresent,
		"registry:5000/team/train":    corev1.PullAlways,
		"registry:5000/team/train:2":  corev1.PullIfNotPresent,
		"train@sha256:abc":            corev1.PullIfNotPresent,
		"train:latest@sha256:abc":     corev1.PullAlways,
		"registry:5000/train@sha256:": corev1.PullIfNotPresent,
	} {
		assert.Equal(t, want, pullPolicy(image), image)
	}
	s := batch()
	assert.Equal(t, corev1.PullIfNotPresent, s.Complete().ImagePullPolicy)
	assert.Empty(t, s.Complete().Brief().ImagePullPolicy)
	s.ImagePullPolicy = corev1.PullNever
	assert.Equal(t, corev1.PullNever, s.Brief().ImagePullPolicy)
}

// A Job that exists makes no pods again for indexes that have ended, and its gang does without them.
func TestGangOfAJobOfWhichPodsHaveEnded(t *testing.T) {
	for name, test := range map[string]struct {
		status  map[string]any
		minimum int32
		members []string
		needs   int
	}{
		"none":              {status: map[string]any{}, members: []string{"worker-0", "worker-1", "worker-2", "worker-3"}, needs: 4},
		"some":              {status: map[string]any{"completedIndexes": "0,2"}, members: []string{"worker-1", "worker-3"}, needs: 2},
		"failed for good":   {status: map[string]any{"completedIndexes": "0", "failedIndexes": "1-2"}, members: []string{"worker-3"}, needs: 1},
		"with a minimum":    {status: map[string]any{"completedIndexes": "0"}, minimum: 3, members: []string{"worker-1", "worker-2", "worker-3"}, needs: 2},
		"as many as needed": {status: map[string]any{"completedIndexes": "0-1"}, minimum: 2, members: []string{"worker-2", "worker-3"}, needs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			spec := batchGang()
			spec.Minimum, spec.Roles = test.minimum, map[string]Role{"worker": {Replicas: 4, GPUs: 2, Image: "train:1"}}
			obj, err := spec.Render()
			require.NoError(t, err)
			obj.Object["status"] = test.status
			spec.Ended = Ended(obj)
			sample, err := spec.Sample()
			require.NoError(t, err)
			for _, admission := range []Admission{nil, {"worker": {Predicted: sample[0], Pod: sample[0]}}} {
				gang, err := spec.AdmittedGang(nil, admission, nil)
				require.NoError(t, err)
				require.Len(t, gang.Roles, 1)
				assert.Equal(t, test.members, gang.Roles[0].Members)
				assert.Equal(t, test.needs, gang.Minimum)
			}
		})
	}
	obj, err := plain().Render()
	require.NoError(t, err)
	obj.Object["status"] = map[string]any{"completedIndexes": "0"}
	assert.Empty(t, Ended(obj), "an operator makes all replicas again that it does not find")
}
