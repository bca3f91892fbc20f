package inventory

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// IndexRanges are indexes of a Job's pods, as ranges from a first to a last one.
type IndexRanges [][2]int

// EndedIndexes are the indexes that a Job makes no pods for any more: those that have succeeded, and those that
// have failed as often as it lets one (batch/v1, JobSpec.backoffLimitPerIndex). What nobody can read is none.
func EndedIndexes(s batchv1.JobStatus) IndexRanges {
	return append(readIndexes(s.CompletedIndexes), failedIndexes(s)...)
}

func failedIndexes(s batchv1.JobStatus) IndexRanges {
	return readIndexes(ptr.Deref(s.FailedIndexes, ""))
}

// readIndexes reads indexes as the status of a Job has them, "0,2-4" (batch/v1, JobStatus.completedIndexes).
func readIndexes(text string) (ranges IndexRanges) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, odd := strconv.Atoi(to)
		if err == nil && odd == nil && first >= 0 && last >= first {
			ranges = append(ranges, [2]int{first, last})
		}
	}
	return ranges
}

// Has reports whether an index is among them.
func (r IndexRanges) Has(index int) bool {
	return slices.ContainsFunc(r, func(of [2]int) bool { return of[0] <= index && index <= of[1] })
}

// Count is how many there are.
func (r IndexRanges) Count() (n int) {
	for _, of := range r {
		n += of[1] - of[0] + 1
	}
	return n
}

// Ended is what a Job says of its pods that have ended for good: it makes no others for them, and they may have gone.
type Ended struct {
	// Gang is the key of their gang.
	Gang string
	job  types.UID
	// member is one of them, count how many they are. So many more of them than surplus are members that the gang
	// does without: for each of the others the Job makes one with another index.
	member         Member
	count, surplus int
	completions    int
}

// EndedOf reads a Job; ok is false when its pods are no gang, or none of them has ended for good.
func EndedOf(j *batchv1.Job) (e Ended, ok bool) {
	ended := int(j.Status.Succeeded) + failedIndexes(j.Status).Count()
	if ended == 0 {
		return Ended{}, false
	}
	pod := &corev1.Pod{ObjectMeta: *j.Spec.Template.ObjectMeta.DeepCopy(), Spec: j.Spec.Template.Spec, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
	pod.Namespace, pod.Name, pod.DeletionTimestamp = j.Namespace, j.Name, j.DeletionTimestamp
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	key, ok := GangKey(pod)
	if !ok {
		return Ended{}, false
	}
	parallelism := int(ptr.Deref(j.Spec.Parallelism, 1))
	completions := int(ptr.Deref(j.Spec.Completions, int32(parallelism)))
	return Ended{
		Gang: key, job: j.UID, member: MemberOf(pod), count: ended,
		completions: completions, surplus: max(0, completions-parallelism),
	}, true
}

// Same reports whether two say the same to a gang.
func (e Ended) Same(other Ended) bool {
	return e.Gang == other.Gang && e.job == other.job && e.count == other.count && e.completions == other.completions &&
		e.surplus == other.surplus && e.member.Pod.DeletionTimestamp.Equal(other.member.Pod.DeletionTimestamp)
}

// Succeeded makes members of those that need not run any more, beside the members that a gang has: of pods that have
// succeeded, of which nothing but the metadata is known, and of what Jobs say of pods that may have gone. Those of
// another job of the same name than the members', which is being cleaned up, are none; of a JobSet, whose own UID no
// pod has, neither are those that are being deleted.
func Succeeded(pods []*metav1.PartialObjectMetadata, jobs []Ended, members []Member) (list []Member) {
	if len(pods) == 0 && len(jobs) == 0 {
		return nil
	}
	runs, live := map[string]bool{}, map[types.UID]int{}
	for _, m := range current(members) {
		runs[runOf(m.Pod)] = true
		if m.Pod.DeletionTimestamp == nil && !m.left() {
			live[controllerOf(m.Pod)]++
		}
	}
	counts := func(p *corev1.Pod) bool { return runs[runOf(p)] && (!ofJobSet(p) || p.DeletionTimestamp == nil) }
	seen := map[types.UID][]Member{}
	for _, known := range pods {
		pod := &corev1.Pod{ObjectMeta: known.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
		if counts(pod) {
			job := controllerOf(pod)
			seen[job] = append(seen[job], Member{Pod: pod, Role: placement.Role{Name: roleName(pod)}})
		}
	}
	for _, e := range jobs {
		if counts(e.member.Pod) {
			seen[e.job] = e.among(seen[e.job], live[e.job])
		}
	}
	for _, ended := range seen {
		list = append(list, ended...)
	}
	return list
}

// among are the members of the Job that need not run any more, of which some are seen as pods that have
// succeeded. Watches of pods and Jobs come in any order: of those that live as far as is known none has ended.
func (e Ended) among(seen []Member, live int) []Member {
	ended := max(len(seen), min(e.count, e.completions-live))
	need := max(0, ended-e.surplus)
	if need < len(seen) {
		return seen[:need]
	}
	return append(seen, slices.Repeat([]Member{e.member}, need-len(seen))...)
}

// controllerOf is the UID of what has made a pod, "" for nothing.
func controllerOf(p *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return owner.UID
	}
	return ""
}
