package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }

// volumeOn is a volume that only one node reaches.
func volumeOn(name, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}},
	}}
}

func bound(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: named(name), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

// unbound is a claim of a class, which may have been given a node.
func unbound(name, class, node string) Around {
	claim := bound(name, "")
	claim.Spec.StorageClassName = &class
	if node != "" {
		claim.Annotations = map[string]string{volume.AnnSelectedNode: node}
	}
	late := storagev1.VolumeBindingWaitForFirstConsumer
	return Around{
		claims: byKey([]corev1.PersistentVolumeClaim{*claim}),
		classes: byKey([]storagev1.StorageClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "early"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "late"}, VolumeBindingMode: &late},
		}),
	}
}

// unboundAmid is [unbound] with the volumes read.
func unboundAmid(class string) Around {
	around := unbound("data", class, "")
	around.volumes = byKey([]corev1.PersistentVolume{*volumeOn("other", "b")})
	return around
}

func mounts(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

func uses(claim corev1.PodResourceClaim) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{claim} }
}

func saying(text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: text}}
	}
}

// The headline says that there is room, and what refuses it all the same; that it fits, only
// when nothing does.
func TestHeadlineKnowsWhatRefuses(t *testing.T) {
	deleted := bound("data", "near")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	lost := bound("data", "near")
	lost.Status.Phase = corev1.ClaimLost
	device := "gpu-claim"
	leaving := resourcev1.ResourceClaim{ObjectMeta: named(device)}
	leaving.DeletionTimestamp = deleted.DeletionTimestamp
	for name, test := range map[string]struct {
		pod    func(*corev1.Pod)
		around Around
		state  State
		says   string
	}{
		"nothing":     {func(*corev1.Pod) {}, Around{}, Fits, "Pod ns/job fits: there is room for it."},
		"scheduler":   {func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }, Around{}, Rejected, "name the scheduler other"},
		"gate":        {func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}} }, Around{}, Rejected, "scheduling gate queue"},
		"volume":      {mounts("data"), Around{claims: byKey([]corev1.PersistentVolumeClaim{*bound("data", "near")}), volumes: byKey([]corev1.PersistentVolume{*volumeOn("near", "a")})}, Fits, "fits"},
		"far volume":  {mounts("data"), Around{claims: byKey([]corev1.PersistentVolumeClaim{*bound("data", "far")}), volumes: byKey([]corev1.PersistentVolume{*volumeOn("far", "b")})}, Waiting, "another filter"},
		"no volume":   {mounts("data"), Around{claims: byKey([]corev1.PersistentVolumeClaim{*bound("data", "")})}, Rejected, "volume claim data has no volume yet"},
		"class early": {mounts("data"), unbound("data", "early", ""), Rejected, "volume claim data has no volume yet."},
		"class late":  {mounts("data"), unbound("data", "late", ""), Fits, "fits"},
		"class gone":  {mounts("data"), unbound("data", "gone", ""), Rejected, "volume claim data has no volume yet."},
		"made now":    {mounts("data"), unbound("data", "late", "a"), Rejected, "volume claim data has no volume yet, which is to be made for node a."},
		"late, refused": {func(p *corev1.Pod) {
			mounts("data")(p)
			saying("0 of 1 members fit: … 1 node refused by VolumeRestrictions: in use.")(p)
		}, unbound("data", "late", ""), Rejected, "the scheduler says: 0 of 1 members fit: … 1 node refused by VolumeRestrictions"},
		"late, none of the volumes": {mounts("data"), unboundAmid("late"), Fits, "fits"},
		"lost volume":               {mounts("data"), Around{claims: byKey([]corev1.PersistentVolumeClaim{*lost})}, Rejected, "lost its volume"},
		"gone volume":               {mounts("data"), Around{claims: byKey([]corev1.PersistentVolumeClaim{*bound("data", "gone")}), volumes: map[string]*corev1.PersistentVolume{}}, Rejected, "volume gone of claim data does not exist"},
		"no claim":                  {mounts("data"), Around{claims: map[string]*corev1.PersistentVolumeClaim{}}, Rejected, "volume claim data does not exist"},
		"leaving":                   {mounts("data"), Around{claims: byKey([]corev1.PersistentVolumeClaim{*deleted})}, Rejected, "being deleted"},
		"no right":                  {mounts("data"), Around{}, Rejected, "you may not list persistentvolumeclaims"},
		"no devices":                {uses(corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &device}), Around{devices: byKey([]resourcev1.ResourceClaim{{ObjectMeta: named(device)}})}, Fits, "fits"},
		"no devices, refused": {func(p *corev1.Pod) {
			uses(corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &device})(p)
			saying("0 of 1 members fit: … 1 node refused by DynamicResources: cannot allocate all claims.")(p)
		}, Around{devices: byKey([]resourcev1.ResourceClaim{{ObjectMeta: named(device)}})}, Rejected, "the scheduler says: 0 of 1 members fit: … 1 node refused by DynamicResources"},
		"devices leave":    {uses(corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &device}), Around{devices: byKey([]resourcev1.ResourceClaim{leaving})}, Rejected, "resource claim gpu-claim is being deleted"},
		"no devices claim": {uses(corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &device}), Around{devices: map[string]*resourcev1.ResourceClaim{}}, Rejected, "resource claim gpu-claim does not exist"},
		"devices":          {uses(corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &device}), Around{devices: byKey([]resourcev1.ResourceClaim{{ObjectMeta: named(device), Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}}})}, Fits, "fits"},
		"claim to be":      {uses(corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &device}), Around{devices: map[string]*resourcev1.ResourceClaim{}}, Rejected, "has not been made"},
		"its filter":       {saying("0 of 1 members fit: … 1 node refused by NodeVolumeLimits: node(s) exceed max volume count."), Around{}, Rejected, "the scheduler says: 0 of 1 members fit: … 1 node refused by NodeVolumeLimits"},
		"its holds":        {saying("0 of 1 members fit. Held back by the reservation of gang ns/big."), Around{}, Rejected, "Held back"},
		"no scheduler":     {func(*corev1.Pod) {}, Around{scheduler: absent}, Rejected, "no scheduler named gpuplan-scheduler runs in the cluster"},
		"may not look":     {func(*corev1.Pod) {}, Around{scheduler: forbidden, read: time.Unix(60, 0)}, Rejected, "you may not get deployment and lease gpuplan-scheduler in namespace gpuplan-system"},
		"just created":     {func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(50, 0)) }, Around{scheduler: forbidden, read: time.Unix(60, 0)}, Fits, "fits"},
		"new, nobody":      {func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(50, 0)) }, Around{scheduler: absent, read: time.Unix(60, 0)}, Rejected, "no scheduler named gpuplan-scheduler runs in the cluster"},
		"gate, no room": {func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}}
			p.Spec.Containers[0].Resources.Requests[contract.ResourceTopologyGPU] = resource.MustParse("9")
		}, Around{}, Waiting, "Besides, pod job has the scheduling gate queue."},
	} {
		t.Run(name, func(t *testing.T) {
			cache := clustercache.New()
			offers := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80"), corev1.ResourcePods: resource.MustParse("10"), contract.ResourceTopologyGPU: resource.MustParse("8")}
			_, err := cache.SetNode(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{
					contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge", corev1.LabelHostname: "a",
				}},
				Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers},
			})
			require.NoError(t, err)
			pod := &corev1.Pod{ObjectMeta: named("job"), Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("8")}},
			}}}}
			pod.UID, pod.CreationTimestamp = "job", metav1.NewTime(time.Unix(0, 0))
			test.pod(pod)
			cache.SetPod(pod)
			answers := Find(cache.Snapshot(), test.around, "ns", "job")
			require.Len(t, answers, 1)
			assert.Equal(t, test.state, answers[0].State)
			var text strings.Builder
			require.NoError(t, answers[0].WriteFixes(&text))
			headline, _, _ := strings.Cut(text.String(), "\n")
			assert.Contains(t, headline, test.says)
			gangs := Gangs(cache.Snapshot(), test.around)
			require.Len(t, gangs, 1)
			assert.Equal(t, test.state == Fits, gangs[0].State == Fits, "the list says the same")
		})
	}
}

// A resource claim that is not allocated yet is no refusal: the answer says when it will be.
func TestUnallocatedClaims(t *testing.T) {
	cache := clustercache.New()
	given, pending, own := "given", "pending", "own"
	pod := &corev1.Pod{ObjectMeta: named("job"), Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("8")}},
	}}}}
	pod.UID = "job"
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "a", ResourceClaimName: &given}, {Name: "b", ResourceClaimName: &pending}, {Name: "c", ResourceClaimTemplateName: &own},
	}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: &own}}
	cache.SetPod(pod)
	around := Around{devices: byKey([]resourcev1.ResourceClaim{
		{ObjectMeta: named(given), Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}}, {ObjectMeta: named(pending)}, {ObjectMeta: named(own)},
	})}
	answers := Find(cache.Snapshot(), around, "ns", "job")
	require.Len(t, answers, 1)
	assert.Empty(t, answers[0].Rejections)
	assert.Equal(t, []string{own, pending}, answers[0].Unallocated)
	var text strings.Builder
	require.NoError(t, answers[0].WriteText(&text, time.Unix(0, 0)))
	assert.Contains(t, text.String(), "resource claim pending is allocated when its pod is placed")
}

// The launcher of a gang that waits carries no condition: that says nothing of the scheduler,
// which only others than itself look for.
func TestLaunchersAreNotOverlooked(t *testing.T) {
	cache := clustercache.New()
	for role, gpus := range map[string]string{"worker": "8", "launcher": "0"} {
		pod := &corev1.Pod{ObjectMeta: named("job-" + role), Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse(gpus)}},
		}}}}
		pod.UID, pod.CreationTimestamp = types.UID(role), metav1.NewTime(time.Unix(0, 0))
		pod.Labels = map[string]string{contract.LightGangLabel: "job", contract.LightGangMinLabel: "1", contract.JobReplicaTypeLabel: role}
		if role == "worker" {
			saying("0 of 1 members fit.")(pod)
		}
		cache.SetPod(pod)
	}
	client, err := kube.New(kubetest.Start(t).Config())
	require.NoError(t, err)
	around, err := ReadAround(t.Context(), client, "ns")
	require.NoError(t, err)
	for _, scheduler := range []presence{present, absent, forbidden} {
		around.scheduler = scheduler
		answers := Find(cache.Snapshot(), around, "ns", "job")
		require.Len(t, answers, 1)
		assert.Empty(t, answers[0].Rejections)
		assert.Len(t, answers[0].Roles, 2)
	}
}

// Who answers out of a running scheduler does not look for one.
func TestWhoLooksForTheScheduler(t *testing.T) {
	client, err := kube.New(kubetest.Start(t).Config())
	require.NoError(t, err)
	around, err := ReadAround(t.Context(), client, "")
	require.NoError(t, err)
	assert.Equal(t, present, around.scheduler)
	require.NoError(t, around.FindScheduler(t.Context(), client))
	assert.Equal(t, absent, around.scheduler)
}

// Jobs that are held have no pods, and an answer all the same.
func TestHeldJobs(t *testing.T) {
	unit := func(status contract.QueueUnitStatus) *contract.QueueUnit {
		return &contract.QueueUnit{Spec: contract.QueueUnitSpec{Queue: "root-team-1"}, Status: status}
	}
	for name, test := range map[string]struct {
		unit  *contract.QueueUnit
		state State
		says  string
	}{
		"suspended": {nil, Suspended, "PyTorchJob ns/job has no pods: it is suspended, and in no queue: it starts when someone resumes it."},
		"in line": {unit(contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 3, Message: "quota root/team is used up"}), Queued,
			"PyTorchJob ns/job is held by the job queue: position 3 in queue root/team: quota root/team is used up."},
		"sent back": {unit(contract.QueueUnitStatus{Phase: contract.UnitBackoff, Message: "its pods did not run in 5m"}), Queued, "the queue has sent it back: its pods did not run in 5m."},
		"no queue":  {unit(contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Message: "no leaf"}), Queued, "not in line yet: no leaf."},
	} {
		t.Run(name, func(t *testing.T) {
			around := Around{jobs: []heldJob{{kind: contract.PyTorchJobKind, namespace: "ns", name: "job", unit: test.unit, queue: "root/team"}}}
			snapshot := clustercache.New().Snapshot()
			answers := Find(snapshot, around, "ns", "job")
			require.Len(t, answers, 1)
			assert.Equal(t, test.state, answers[0].State)
			var text strings.Builder
			require.NoError(t, answers[0].WriteText(&text, time.Unix(0, 0)))
			assert.Contains(t, text.String(), test.says)
			assert.Equal(t, answers, Gangs(snapshot, around))
			assert.Empty(t, Find(snapshot, around, "other", "job"))
		})
	}
}
