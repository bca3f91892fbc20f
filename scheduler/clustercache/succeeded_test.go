package clustercache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// succeeded is what the informer of succeeded pods keeps of a pod.
func succeeded(t *testing.T, p *corev1.Pod, changes ...podtest.Change) *metav1.PartialObjectMetadata {
	t.Helper()
	p = p.DeepCopy()
	for _, change := range changes {
		change(p)
	}
	kept, err := whatCounts(&metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta})
	require.NoError(t, err)
	return kept.(*metav1.PartialObjectMetadata)
}

// kube-scheduler does not show finished pods; those that have succeeded count all the same.
func TestSucceededMembersCount(t *testing.T) {
	placed := podtest.Recorded(contract.Allocation{GPUs: []int{1}})
	const missing = "1 more pod of gang ns/job must appear before it can start"
	for name, test := range map[string]struct {
		change []podtest.Change
		want   string
	}{
		"a member":                      {change: []podtest.Change{placed}},
		"a launcher":                    {want: missing},
		"a member of the job before it": {change: []podtest.Change{placed, podtest.OwnedBy("before")}, want: missing},
		"a member of another gang":      {change: []podtest.Change{placed, podtest.Label(contract.TopologyGroupLabel, "other")}, want: missing},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			pods := podtest.Workers(4, podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "4"), podtest.OwnedBy("now"))
			for _, p := range pods[:3] {
				c.SetPod(p)
			}
			require.Equal(t, missing, c.GangStatus("ns/job", "").MissingText)
			change := c.SetSucceeded(succeeded(t, pods[3], test.change...))
			assert.NotEmpty(t, change.Gang)
			assert.Equal(t, test.want, c.GangStatus("ns/job", "").MissingText)
			state, ok := c.Gang("ns/job")
			require.True(t, ok)
			assert.Equal(t, test.want, state.MissingText)
			assert.Equal(t, test.want, c.Snapshot().GangStatus("ns/job").MissingText)
			assert.Len(t, state.Pods, 3, "it has no place any more")
			c.RemoveSucceeded(pods[3].UID)
			assert.Equal(t, missing, c.GangStatus("ns/job", "").MissingText)
		})
	}
}

// The two watches of pods come in any order.
func TestSucceededMemberIsCountedOnce(t *testing.T) {
	c := newCache(t, "a")
	pods := podtest.Gang(4)
	for _, p := range pods {
		podtest.OnNode("a")(p)
		c.SetPod(p)
	}
	c.SetSucceeded(succeeded(t, pods[0], podtest.Recorded(contract.Allocation{GPUs: []int{1}})))
	c.RemovePod(pods[1].UID)
	assert.False(t, c.GangStatus("ns/job", "").Runs, "three run, and one of them is said to have succeeded")
	c.RemovePod(pods[0].UID)
	assert.False(t, c.GangStatus("ns/job", "").Runs, "one has succeeded, two run")
	c.SetPod(pods[1])
	assert.True(t, c.GangStatus("ns/job", "").Runs)
	for _, p := range pods[1:] {
		c.RemovePod(p.UID)
	}
	_, ok := c.Gang("ns/job")
	assert.False(t, ok, "nothing is left to be planned")
}

// The roles of a JobSet are Jobs of their own: one that has ended counts for the run of the others.
func TestRoleOfAJobSetThatHasSucceeded(t *testing.T) {
	const missing = "3 more pods of gang ns/job must appear before it can start"
	for name, test := range map[string]struct {
		attempt string
		leaves  bool
		gone    bool // and the Job of the role tells of its pods
		want    string
	}{
		"of this run":                     {attempt: "1"},
		"of the run before":               {attempt: "0", want: missing},
		"of one that is leaving":          {attempt: "1", leaves: true, want: missing},
		"of this run, gone":               {attempt: "1", gone: true},
		"of the run before, gone":         {attempt: "0", gone: true, want: missing},
		"of one that is leaving, as gone": {attempt: "1", gone: true, leaves: true, want: missing},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			of := func(role, attempt string) podtest.Change {
				return func(p *corev1.Pod) {
					podtest.OwnedBy(types.UID("job-" + role + attempt))(p)
					p.Labels[contract.JobSetNameLabel], p.Labels[contract.JobSetRoleLabel], p.Labels[contract.JobSetAttemptLabel] = "job", role, attempt
				}
			}
			pods := podtest.Workers(4, podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "4"))
			of("learner", "1")(pods[0])
			c.SetPod(pods[0])
			require.Equal(t, missing, c.GangStatus("ns/job", "").MissingText)
			for _, p := range pods[1:] {
				of("actor", test.attempt)(p)
				if test.leaves {
					p.DeletionTimestamp = new(metav1.Now())
				}
				if test.gone {
					job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job-actor-0", UID: "actor", DeletionTimestamp: p.DeletionTimestamp}}
					job.Spec.Parallelism, job.Spec.Completions, job.Status.Succeeded = new(int32(3)), new(int32(3)), 3
					job.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
					c.SetJob(job)
					continue
				}
				c.SetSucceeded(succeeded(t, p, podtest.Recorded(contract.Allocation{GPUs: []int{1}})))
			}
			assert.Equal(t, test.want, c.GangStatus("ns/job", "").MissingText)
		})
	}
}

// A gang loses a member that has succeeded with the label that made it one.
func TestSucceededMemberChangesItsGang(t *testing.T) {
	c := newCache(t, "a")
	pods := podtest.Gang(4)
	for _, p := range pods[:3] {
		podtest.OnNode("a")(p)
		c.SetPod(p)
	}
	placed := podtest.Recorded(contract.Allocation{GPUs: []int{1}})
	require.False(t, c.GangStatus("ns/job", "").Runs)
	assert.Equal(t, clusterstate.Change{Gang: "ns/job"}, c.SetSucceeded(succeeded(t, pods[3], placed)))
	require.True(t, c.GangStatus("ns/job", "").Runs)

	other := podtest.Label(contract.TopologyGroupLabel, "other")
	assert.Equal(t, clusterstate.Change{Gang: "ns/other", Left: "ns/job"}, c.SetSucceeded(succeeded(t, pods[3], placed, other)))
	assert.False(t, c.GangStatus("ns/job", "").Runs)

	none := pods[3].DeepCopy()
	none.Labels = nil
	assert.Equal(t, clusterstate.Change{Left: "ns/other"}, c.SetSucceeded(succeeded(t, none, placed)))
	assert.Equal(t, clusterstate.Change{}, c.RemoveSucceeded(pods[3].UID))
}

func TestWhatCountsOfSucceededPods(t *testing.T) {
	alone := podtest.New("alone", podtest.Label("app", "web"))
	alone.Annotations = map[string]string{"a": "b"}
	assert.Equal(t, metav1.ObjectMeta{Namespace: "ns", Name: "alone", UID: alone.UID}, succeeded(t, alone).ObjectMeta)
	assert.Equal(t, clusterstate.Change{}, New().SetSucceeded(succeeded(t, alone)))
	member := podtest.Gang(1)[0]
	kept := succeeded(t, member, podtest.Recorded(contract.Allocation{GPUs: []int{1}}))
	assert.Equal(t, member.Labels, kept.Labels)
	assert.Equal(t, map[string]string{contract.AllocationAnnotation: ""}, kept.Annotations)
}

// A Job tells of pods that have ended for good, whose successors nobody makes, when they have gone, too.
func TestJobTellsOfPodsThatHaveGone(t *testing.T) {
	missing := func(n int) string {
		if n == 1 {
			return "1 more pod of gang ns/job must appear before it can start"
		}
		return fmt.Sprintf("%d more pods of gang ns/job must appear before it can start", n)
	}
	placed := podtest.Recorded(contract.Allocation{GPUs: []int{1}})
	failed := func(indexes string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Status.FailedIndexes = &indexes }
	}
	completions := func(n int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.Completions = &n }
	}
	needing := func(label, count string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Labels[contract.LightGangLabel], p.Labels[label] = "job", count
		}
	}
	for name, test := range map[string]struct {
		labels []podtest.Change
		// pending, bound, leaving and succeeded are how many pods are seen so.
		pending, bound, leaving, succeeded int
		ended                              int32
		job                                []func(*batchv1.Job)
		missing                            int
		runs                               bool
		minimum                            int
	}{
		"none has ended":                       {pending: 2, missing: 2, minimum: 4},
		"all pods that have ended are gone":    {pending: 2, ended: 2, minimum: 2},
		"one is there still":                   {pending: 2, succeeded: 1, ended: 2, minimum: 2},
		"both are there still":                 {pending: 2, succeeded: 2, ended: 2, minimum: 2},
		"the Job does not know yet":            {pending: 2, succeeded: 2, ended: 1, minimum: 2},
		"a member is made again":               {pending: 1, bound: 1, ended: 2, minimum: 2},
		"one of the others is missing":         {bound: 1, ended: 2, missing: 1, minimum: 2},
		"the others run":                       {bound: 2, ended: 2, runs: true, minimum: 2},
		"the pods are not known to have ended": {bound: 4, ended: 1, runs: true, minimum: 4},
		"one runs on as it leaves":             {pending: 1, leaving: 1, bound: 1, ended: 2, runs: true, minimum: 2},
		"it is another Job":                    {pending: 2, ended: 2, job: []func(*batchv1.Job){func(j *batchv1.Job) { j.UID = "before" }}, missing: 2, minimum: 4},
		"it is of another gang": {pending: 2, ended: 2, job: []func(*batchv1.Job){func(j *batchv1.Job) {
			j.Spec.Template.Labels[contract.TopologyGroupLabel] = "other"
		}}, missing: 2, minimum: 4},
		"an index has failed for good":  {pending: 2, ended: 1, job: []func(*batchv1.Job){failed("3")}, minimum: 2},
		"what has failed is unreadable": {pending: 2, ended: 1, job: []func(*batchv1.Job){failed("three")}, missing: 1, minimum: 3},
		// Four of eight run at a time: the fifth follows the first, and only for the last four nobody comes.
		"others follow those that end":    {pending: 4, ended: 4, job: []func(*batchv1.Job){completions(8)}, minimum: 4},
		"they do, and the pods are there": {pending: 4, succeeded: 4, ended: 4, job: []func(*batchv1.Job){completions(8)}, minimum: 4},
		"one has not followed yet":        {pending: 3, ended: 4, job: []func(*batchv1.Job){completions(8)}, missing: 1, minimum: 4},
		"two are left":                    {pending: 2, succeeded: 1, ended: 6, job: []func(*batchv1.Job){completions(8)}, minimum: 2},
		"it needs two":                    {labels: []podtest.Change{needing(contract.LightGangMinLabel, "3")}, pending: 2, ended: 1, minimum: 2},
		"as many have ended as it needs":  {labels: []podtest.Change{needing(contract.LightGangMinLabel, "2")}, pending: 1, bound: 1, ended: 2, runs: true, minimum: 1},
		"a role needs two":                {labels: []podtest.Change{needing(contract.LightGangMinLabel, "2"), needing(contract.RoleMinLabel, "2")}, pending: 3, ended: 1, minimum: 1},
		"a pod of such a role is there":   {labels: []podtest.Change{needing(contract.LightGangMinLabel, "2"), needing(contract.RoleMinLabel, "2")}, pending: 3, succeeded: 1, minimum: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, "a")
			changes := append([]podtest.Change{
				podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "4"), podtest.OwnedBy("now"),
			}, test.labels...)
			pods := podtest.Workers(test.pending+test.bound+test.leaving+test.succeeded, changes...)
			for i, p := range pods {
				switch {
				case i < test.pending:
					c.SetPod(p)
				case i < test.pending+test.bound+test.leaving:
					podtest.OnNode("a")(p)
					if i >= test.pending+test.bound {
						p.DeletionTimestamp = new(metav1.Now())
					}
					c.SetPod(p)
				default:
					c.SetSucceeded(succeeded(t, p, placed))
				}
			}
			template := podtest.Workers(1, changes...)[0]
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "now"}}
			job.Spec.Completions, job.Spec.Parallelism = new(int32(4)), new(int32(4))
			job.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec}
			job.Status.Succeeded = test.ended
			for _, change := range test.job {
				change(job)
			}
			kept, err := whatCountsOfJob(job)
			require.NoError(t, err)
			c.SetJob(kept.(*batchv1.Job))

			want := ""
			if test.missing > 0 {
				want = missing(test.missing)
			}
			status := c.GangStatus("ns/job", "")
			assert.Equal(t, want, status.MissingText)
			assert.Equal(t, test.runs, status.Runs)
			state, ok := c.Gang("ns/job")
			require.True(t, ok)
			assert.Equal(t, test.minimum, state.Gang.Minimum)
			assert.Len(t, state.Pods, test.pending+test.bound+test.leaving)
			assert.Equal(t, want, c.Snapshot().GangStatus("ns/job").MissingText)

			c.RemoveJob("now")
			if test.ended > 0 && test.succeeded == 0 && test.job == nil && test.labels == nil && !test.runs {
				assert.NotEmpty(t, c.GangStatus("ns/job", "").MissingText, "nobody tells of them any more")
			}
		})
	}
}

// What a Job says changes a gang only where it is something else than before.
func TestJobChangesItsGang(t *testing.T) {
	c := New()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "now"}}
	assert.Equal(t, clusterstate.Change{}, c.SetJob(job), "its pods are no gang")
	of := func(gang string) {
		job = job.DeepCopy()
		job.Spec.Template.Labels = map[string]string{contract.TopologyGroupLabel: gang}
	}
	of("job")
	assert.Equal(t, clusterstate.Change{}, c.SetJob(job), "none has ended")
	job.Status.Succeeded = 1
	assert.Equal(t, clusterstate.Change{Gang: "ns/job"}, c.SetJob(job))
	job.Status.Ready = new(int32(3))
	assert.Equal(t, clusterstate.Change{}, c.SetJob(job))
	job.Status.Succeeded = 2
	assert.Equal(t, clusterstate.Change{Gang: "ns/job"}, c.SetJob(job))
	of("other")
	assert.Equal(t, clusterstate.Change{Gang: "ns/other", Left: "ns/job"}, c.SetJob(job))
	assert.Equal(t, clusterstate.Change{Gang: "ns/other"}, c.RemoveJob(job.UID))
	assert.Equal(t, clusterstate.Change{}, c.RemoveJob(job.UID))
}

func TestWhatCountsOfJobs(t *testing.T) {
	kept := func(succeeded int32, labels map[string]string) *batchv1.Job {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "now", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
		job.Spec.Template.Labels, job.Status.Succeeded = labels, succeeded
		object, err := whatCountsOfJob(job)
		require.NoError(t, err)
		return object.(*batchv1.Job)
	}
	gang := map[string]string{contract.TopologyGroupLabel: "job"}
	little := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "now", ResourceVersion: "7"}}
	assert.Equal(t, little, kept(3, nil))
	assert.Equal(t, little, kept(0, gang))
	assert.Equal(t, gang, kept(3, gang).Spec.Template.Labels)
	assert.Empty(t, kept(3, gang).ManagedFields)
}
