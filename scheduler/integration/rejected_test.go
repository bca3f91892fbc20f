package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// volumeOn makes a claim with a volume that only one node reaches, bound to each other.
func (s *testCluster) volumeOn(name, node string) {
	s.t.Helper()
	ctx := s.t.Context()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	class := ""
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name, Annotations: map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: s.namespace, Name: name},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size},
			StorageClassName: &class, VolumeName: volume.Name,
		},
	}
	created, err := api().CoreV1().PersistentVolumeClaims(s.namespace).Create(ctx, claim, metav1.CreateOptions{})
	require.NoError(s.t, err)
	volume.Spec.ClaimRef.UID = created.UID
	_, err = api().CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		// No controller of volumes runs that would end their protection.
		ctx, unprotect := context.Background(), []byte(`{"metadata": {"finalizers": null}}`)
		_, err := api().CoreV1().PersistentVolumeClaims(s.namespace).Patch(ctx, name, types.MergePatchType, unprotect, metav1.PatchOptions{})
		assert.NoError(s.t, err)
		_, err = api().CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, unprotect, metav1.PatchOptions{})
		assert.NoError(s.t, err)
		assert.NoError(s.t, api().CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{}))
	})
}

// with mounts a claim into the pods of a job.
func (j job) with(claim string) job {
	change := j.change
	j.change = func(p *corev1.Pod) {
		if change != nil {
			change(p)
		}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
	return j
}

// Nobody is evicted from a node that another plugin refuses: the nomination goes where the
// preemptor's volume is, although the other node's gang has the lower priority.
func TestNominationFollowsTheVolume(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	high, middle := s.priority("high", 100, corev1.PreemptLowerPriority), s.priority("middle", 50, corev1.PreemptLowerPriority)
	startScheduler(t)
	s.submit(topologyGang("low", 2, 4))
	low := s.awaitBound("low")[0].Spec.NodeName
	s.submit(topologyGang("middle", 2, 4).of(middle))
	other := s.awaitBound("middle")[0].Spec.NodeName
	require.NotEqual(t, low, other)

	s.volumeOn("data", other)
	s.submit(topologyGang("big", 2, 4).of(high).with("data"))
	for _, pod := range s.awaitBound("big") {
		assert.Equal(t, other, pod.Spec.NodeName)
	}
	s.awaitGone("middle")
	assert.Equal(t, 2, bound(s.list(t.Context(), "low")))
}

// When the node of its volume cannot be had, the gang waits and says so, and nobody is evicted
// for it; the same for a node on which a pod runs that keeps the gang's pods away.
func TestNobodyIsEvictedInVain(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	high, middle := s.priority("high", 100, corev1.PreemptLowerPriority), s.priority("middle", 50, corev1.PreemptLowerPriority)
	startScheduler(t)
	s.submit(topologyGang("low", 2, 4))
	low := s.awaitBound("low")[0].Spec.NodeName
	s.submit(topologyGang("top", 2, 4).of(high))
	top := s.awaitBound("top")[0].Spec.NodeName
	require.NotEqual(t, low, top)

	s.volumeOn("data", top)
	s.submit(topologyGang("big", 2, 4).of(middle).with("data"))
	t.Log(s.awaitReason("big", "1 node does not reach the volumes"))
	s.remove("big")

	hermit := job{name: "hermit", workers: 1, change: func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: low}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"noisy": "true"}},
		}}}}
	}}
	s.submit(hermit)
	s.awaitBound("hermit")
	noisy := topologyGang("noisy", 2, 4).of(middle)
	noisy.labels["noisy"] = "true"
	s.submit(noisy)
	t.Log(s.awaitReason("noisy", "1 node refused by InterPodAffinity"))
	assert.Equal(t, 2, bound(s.list(t.Context(), "low")))
	assert.Zero(t, leaving(s.list(t.Context(), "low")))
}

// No place is held for a gang that cannot take it, because another plugin refuses it on each node
// or whatever the node: those behind it run on what is free.
func TestRefusedGangHoldsNoPlace(t *testing.T) {
	for name, test := range map[string]struct {
		volume func(*testCluster)
		says   string
	}{
		"no volume on any node": {(*testCluster).localVolumeClaim, "0 of 1"},
		"no volume at all":      {func(s *testCluster) { s.unboundVolumeClaim("data") }, "unbound immediate PersistentVolumeClaims"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestCluster(t, machine{count: 1, mode: "topology"})
			test.volume(s)
			runScheduler(t, impatient)
			s.submit(topologyGang("runs", 1, 4))
			s.awaitBound("runs")
			s.submit(topologyGang("big", 1, 8).with("data"))
			s.awaitReason("big", test.says)
			for i := range 3 {
				small := fmt.Sprint("small-", i)
				s.submit(topologyGang(small, 1, 4))
				s.awaitBound(small)
				s.finish(small)
			}
		})
	}
}

// localVolumeClaim makes a claim for a volume that is bound where its pod is placed, of which there is
// none.
func (s *testCluster) localVolumeClaim() {
	s.t.Helper()
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode}
	_, err := api().StorageV1().StorageClasses().Create(s.t.Context(), class, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		assert.NoError(s.t, api().StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}))
	})
	_, err = api().CoreV1().PersistentVolumeClaims(s.namespace).Create(s.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity(1)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// A member that the API server does not let be bound to its node gets a place elsewhere. Where there is none it waits with the API
// server's word, and its gang is complete once the node takes pods again.
func TestNodeThatNobodyMayBeBoundTo(t *testing.T) {
	s := newTestCluster(t, machine{count: 3, mode: "topology"})
	allow := s.refuseBindings(s.nodes[0])
	startScheduler(t)
	s.submit(topologyGang("first", 1, 8))
	assert.NotEqual(t, s.nodes[0], s.awaitBound("first")[0].Spec.NodeName)
	s.submit(topologyGang("gang", 2, 8))
	s.await("all of the gang but one to be bound", func(ctx context.Context) (bool, string) {
		pods := s.list(ctx, "gang")
		return bound(pods) == 1 && strings.Contains(reason(pods), "1 node refused by the API server: "), reason(pods)
	})
	allow()
	s.awaitBound("gang")
}

// refuseBindings has the API server bind no pod to a node, until allow is called.
func (s *testCluster) refuseBindings(node string) (allow func()) {
	s.t.Helper()
	ctx, name := s.t.Context(), s.namespace
	policies, bindings := api().AdmissionregistrationV1().ValidatingAdmissionPolicies(), api().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("object.target.name != %q", node), Message: "it is frozen"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	_, err = bindings.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	allow = func() {
		for _, err := range []error{
			bindings.Delete(context.Background(), name, metav1.DeleteOptions{}), policies.Delete(context.Background(), name, metav1.DeleteOptions{}),
		} {
			if !apierrors.IsNotFound(err) {
				assert.NoError(s.t, err)
			}
		}
	}
	s.t.Cleanup(allow)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "frozen"},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "main", Image: "scratch"}}},
	}
	_, err = api().CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.await("the policy to be in force", func(ctx context.Context) (bool, string) {
		err := api().CoreV1().Pods(s.namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil, "it lets pods be bound"
	})
	return allow
}
