package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

const (
	filterRack = "example.com/rack"
	csiDriver  = "csi.example.com"
	appLabel   = "app"
)

// filterWorld is a small cluster with a gang, and pods that run already, made from a seed
// for a class of filters.
type filterWorld struct {
	*rand.Rand
	t         *testing.T
	id        string
	namespace string
	nodes     []worldNode
	there     []*corev1.Pod
	// roles are the pods of the gang by role, of each alike.
	roles [][]*corev1.Pod
	// clean takes away what the world's classes have made.
	clean []func(context.Context) error
	// seen are the objects that must have been seen before pods are tried.
	seen []seenObject
}

// seenObject is an object by its resource and key.
type seenObject struct{ resource, key string }

// filterClasses make what the filters of a plugin look at.
var filterClasses = []struct {
	name string
	make func(*filterWorld)
}{
	{"NodeAffinity", (*filterWorld).nodeAffinity},
	{"NodePorts", (*filterWorld).nodePorts},
	{"TaintToleration", (*filterWorld).taints},
	{"NodeUnschedulable", (*filterWorld).cordons},
	{"NodeResourcesFit", (*filterWorld).resources},
	{"VolumeRestrictions", (*filterWorld).sharedDisk},
	{"NodeVolumeLimits", (*filterWorld).volumeLimits},
	{"VolumeBinding", (*filterWorld).boundVolumes},
	{"VolumeBinding of local volumes", (*filterWorld).localVolumes},
	{"VolumeZone", (*filterWorld).zonalVolumes},
	{"PodTopologySpread", (*filterWorld).spreads},
	{"InterPodAffinity", (*filterWorld).podAffinity},
	{"DynamicResources", (*filterWorld).devices},
	{"DynamicResources of extended resources", (*filterWorld).extendedDevices},
}

func newFilterWorld(t *testing.T, random *rand.Rand, id, namespace string) *filterWorld {
	w := &filterWorld{Rand: random, t: t, id: id, namespace: namespace}
	for i := range 2 + w.IntN(3) {
		n := passiveNode(fmt.Sprintf("%s-n%d", id, i), "pool")
		n.object.Labels[corev1.LabelTopologyZone] = "z" + strconv.Itoa(w.IntN(2))
		n.object.Labels[filterRack] = "r" + strconv.Itoa(w.IntN(3))
		if w.chance(5) {
			delete(n.object.Labels, filterRack)
		}
		w.nodes = append(w.nodes, n)
	}
	for i := range w.IntN(3) {
		w.there = append(w.there, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-there-%d", id, i), Labels: map[string]string{appLabel: w.pick(id, "web")}},
			Spec: corev1.PodSpec{
				NodeName: w.node(), TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "test"}},
			},
		})
	}
	g := worldGang{namespace: namespace, name: id}
	total := 0
	for i := range 1 + w.IntN(2) {
		members, gpus := 1+w.IntN(4), int64(1+w.IntN(4))
		total += members
		g.add([]string{contract.ReplicaWorker, contract.ReplicaMaster}[i], members, func(pod *corev1.Pod) {
			list := corev1.ResourceList{corev1.ResourceCPU: quantity(1), contract.ResourceTopologyGPU: quantity(gpus)}
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
			pod.Labels[appLabel] = id
		})
		w.roles = append(w.roles, g.pods[len(g.pods)-members:])
	}
	for _, pod := range g.pods {
		pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = id, strconv.Itoa(total)
	}
	return w
}

func (w *filterWorld) chance(n int) bool { return w.IntN(n) == 0 }

func (w *filterWorld) pick(list ...string) string { return list[w.IntN(len(list))] }

func (w *filterWorld) node() string { return w.nodes[w.IntN(len(w.nodes))].object.Name }

// pods are those of the gang.
func (w *filterWorld) pods() (all []*corev1.Pod) {
	for _, role := range w.roles {
		all = append(all, role...)
	}
	return all
}

// some calls a function for the roles that a class concerns: the first, and mostly the others.
func (w *filterWorld) some(f func(role []*corev1.Pod)) {
	for i, role := range w.roles {
		if i == 0 || !w.chance(4) {
			f(role)
		}
	}
}

func (w *filterWorld) nodeAffinity() {
	w.some(func(role []*corev1.Pod) {
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z0"}}}}
		if w.chance(3) {
			term = corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{w.node()}}}}
		}
		for _, pod := range role {
			if w.chance(3) { // a place of its own
				term = corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{w.node()}}}}
			}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}
		}
	})
}

func (w *filterWorld) nodePorts() {
	w.some(func(role []*corev1.Pod) {
		for _, pod := range role {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 23456, HostPort: 23456, HostIP: w.pick("", "", "", "127.0.0.1", "127.0.0.2")}}
		}
	})
	for _, pod := range w.there {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 23456, HostPort: int32(23456 + w.IntN(2)), HostIP: w.pick("", "", "127.0.0.1")}}
	}
}

func (w *filterWorld) taints() {
	for i := range w.nodes {
		if w.chance(2) {
			w.nodes[i].object.Spec.Taints = []corev1.Taint{{Key: "team", Value: w.pick("a", "b"), Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	w.some(func(role []*corev1.Pod) {
		for _, pod := range role {
			pod.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpEqual, Value: "a"}}
		}
	})
}

func (w *filterWorld) cordons() {
	for i := range w.nodes {
		w.nodes[i].object.Spec.Unschedulable = w.chance(2)
	}
}

func (w *filterWorld) resources() {
	for i := range w.nodes {
		status := &w.nodes[i].object.Status
		status.Allocatable = status.Allocatable.DeepCopy()
		status.Allocatable[corev1.ResourceEphemeralStorage] = quantity(int64(1 + w.IntN(4)))
		status.Allocatable[corev1.ResourcePods] = quantity(int64(1 + w.IntN(4)))
		status.Allocatable["example.com/dongle"] = quantity(int64(w.IntN(4)))
		status.Capacity = status.Allocatable
	}
	w.some(func(role []*corev1.Pod) {
		name := corev1.ResourceName(w.pick(string(corev1.ResourceEphemeralStorage), "example.com/dongle"))
		for _, pod := range role {
			r := &pod.Spec.Containers[0].Resources
			r.Requests[name], r.Limits[name] = quantity(1), quantity(1)
		}
	})
}

// sharedDisk gives members one disk that only one pod of a node, or of the cluster, can have.
func (w *filterWorld) sharedDisk() {
	if w.chance(4) {
		claim := w.volume("disk", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, nil)
		for _, pod := range w.roles[0] {
			mount(pod, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
		}
		return
	}
	w.some(func(role []*corev1.Pod) {
		for _, pod := range role {
			mount(pod, corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: w.id}})
		}
	})
}

// volumeLimits gives each member a volume, of which nodes can have few.
func (w *filterWorld) volumeLimits() {
	for _, n := range w.nodes {
		most := int32(1 + w.IntN(2))
		object := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.object.Name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: csiDriver, NodeID: n.object.Name, Allocatable: &storagev1.VolumeNodeResources{Count: &most},
		}}}}
		_, err := api().StorageV1().CSINodes().Create(w.t.Context(), object, metav1.CreateOptions{})
		require.NoError(w.t, err)
		w.clean = append(w.clean, func(ctx context.Context) error {
			return api().StorageV1().CSINodes().Delete(ctx, object.Name, metav1.DeleteOptions{})
		})
		w.seen = append(w.seen, seenObject{"csinodes", object.Name})
	}
	w.some(func(role []*corev1.Pod) {
		for _, pod := range role {
			claim := w.volume(pod.Name, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, func(v *corev1.PersistentVolume) {
				v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: pod.Name}}
			})
			mount(pod, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
		}
	})
}

// boundVolumes gives roles, or each of their members, a volume that only nodes of one zone, or one
// node, reach.
func (w *filterWorld) boundVolumes() {
	owners := w.roles
	if w.chance(2) {
		owners = nil
		for _, pod := range w.pods() {
			owners = append(owners, []*corev1.Pod{pod})
		}
	}
	for i, role := range owners {
		key, value := corev1.LabelTopologyZone, "z0"
		if w.chance(3) {
			key, value = corev1.LabelHostname, w.node()
		}
		claim := w.volume(fmt.Sprint("data-", i), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity = reachedFrom(key, value)
		})
		for _, pod := range role {
			mount(pod, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
		}
	}
}

// zonalVolumes gives roles a volume with the label of its zone.
func (w *filterWorld) zonalVolumes() {
	for i, role := range w.roles {
		claim := w.volume(fmt.Sprint("zonal-", i), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, func(v *corev1.PersistentVolume) {
			v.Labels = map[string]string{corev1.LabelTopologyZone: w.pick("z0", "z1")}
		})
		for _, pod := range role {
			mount(pod, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
		}
	}
}

// localVolumes gives each member of the first role a claim for a disk of its node.
func (w *filterWorld) localVolumes() {
	ctx, mode := w.t.Context(), storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: w.id}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode}
	_, err := api().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.seen = append(w.seen, seenObject{"storageclasses", w.id})
	w.clean = append(w.clean, func(ctx context.Context) error {
		return api().StorageV1().StorageClasses().Delete(ctx, w.id, metav1.DeleteOptions{})
	})
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	for _, n := range w.nodes {
		for i := range w.IntN(3) {
			w.createVolume(&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", n.object.Name, i)},
				Spec: corev1.PersistentVolumeSpec{
					Capacity: size, AccessModes: modes, StorageClassName: w.id, NodeAffinity: reachedFrom(corev1.LabelHostname, n.object.Name),
					PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/disk"}},
				},
			})
		}
	}
	for _, pod := range w.roles[0] {
		w.createClaim(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pod.Name},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: &w.id},
		})
		mount(pod, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Name}})
	}
}

// selector selects all pods of the gang, or those of one role, and sometimes pods that run.
func (w *filterWorld) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: w.id}}
	switch w.IntN(5) {
	case 0:
		s.MatchLabels[contract.JobReplicaTypeLabel] = w.pick(contract.ReplicaWorker, contract.ReplicaMaster)
	case 1:
		s.MatchLabels = nil
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: appLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{w.id, "web"}}}
	}
	return s
}

func (w *filterWorld) domain() string {
	return w.pick(corev1.LabelHostname, corev1.LabelTopologyZone, filterRack)
}

func (w *filterWorld) spreads() {
	w.some(func(role []*corev1.Pod) {
		var list []corev1.TopologySpreadConstraint
		for range 1 + w.IntN(2) {
			c := corev1.TopologySpreadConstraint{
				TopologyKey: w.domain(), MaxSkew: int32(1 + w.IntN(2)), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: w.selector(),
			}
			if w.chance(4) {
				c.MinDomains = new(int32)
				*c.MinDomains = int32(1 + w.IntN(4))
			}
			if w.chance(3) {
				honor := corev1.NodeInclusionPolicyHonor
				c.NodeTaintsPolicy = &honor
			}
			if len(list) == 0 || list[0].TopologyKey != c.TopologyKey {
				list = append(list, c)
			}
		}
		for _, pod := range role {
			pod.Spec.TopologySpreadConstraints = list
		}
	})
}

func (w *filterWorld) podAffinity() {
	term := func() []corev1.PodAffinityTerm {
		t := corev1.PodAffinityTerm{TopologyKey: w.domain(), LabelSelector: w.selector()}
		if w.chance(5) {
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
		}
		return []corev1.PodAffinityTerm{t}
	}
	w.some(func(role []*corev1.Pod) {
		affinity := &corev1.Affinity{}
		if w.chance(2) {
			affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term()}
		}
		if affinity.PodAffinity == nil || w.chance(4) {
			affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term()}
		}
		for _, pod := range role {
			pod.Spec.Affinity = affinity
		}
	})
	for _, pod := range w.there {
		if w.chance(3) {
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term()}}
		}
	}
}

// devices gives each member of the first role a claim for a device of its node.
func (w *filterWorld) devices() {
	ctx := w.t.Context()
	w.offerDevices(nil)
	for _, pod := range w.roles[0] {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pod.Name}, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: w.id, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			}}},
		}}
		_, err := api().ResourceV1().ResourceClaims(w.namespace).Create(ctx, claim, metav1.CreateOptions{})
		require.NoError(w.t, err)
		w.seen = append(w.seen, seenObject{"resourceclaims", w.namespace + "/" + pod.Name})
		w.clean = append(w.clean, func(ctx context.Context) error {
			return removeUnprotected(ctx, resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), w.namespace, claim.Name)
		})
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim.Name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	}
}

// extendedDevices has members ask for devices by an extended resource: the one that their class names, or the one that
// every class has. Some nodes offer it themselves.
func (w *filterWorld) extendedDevices() {
	explicit := w.id + ".example.com/device"
	w.clean = append(w.clean, func(ctx context.Context) error { return removeMadeClaims(ctx, w.namespace) })
	w.offerDevices(&explicit)
	name := corev1.ResourceName(w.pick(explicit, resourcev1.ResourceDeviceClassPrefix+w.id))
	for i := range w.nodes {
		if w.chance(3) {
			status := &w.nodes[i].object.Status
			status.Allocatable = status.Allocatable.DeepCopy()
			status.Allocatable[name] = quantity(int64(w.IntN(3)))
			status.Capacity = status.Allocatable
		}
	}
	w.some(func(role []*corev1.Pod) {
		for _, pod := range role {
			r := &pod.Spec.Containers[0].Resources
			r.Requests[name], r.Limits[name] = quantity(1), quantity(1)
		}
	})
}

// removeMadeClaims takes away the claims that schedulers have made for pods that ask for devices by extended resources.
func removeMadeClaims(ctx context.Context, namespace string) error {
	claims, err := api().ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, claim := range claims.Items {
		if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "" {
			continue
		}
		err := removeUnprotected(ctx, resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), namespace, claim.Name)
		if err != nil && !apierrors.IsNotFound(err) { // its pod may have taken it along
			return err
		}
	}
	return nil
}

// offerDevices makes a class of devices, and up to two devices of it on each node.
func (w *filterWorld) offerDevices(extended *string) {
	ctx := w.t.Context()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: w.id}, Spec: resourcev1.DeviceClassSpec{
		ExtendedResourceName: extended,
		Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == '%s.example.com'", w.id)},
		}},
	}}
	_, err := api().ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.seen = append(w.seen, seenObject{"deviceclasses", w.id})
	w.clean = append(w.clean, func(ctx context.Context) error {
		return api().ResourceV1().DeviceClasses().Delete(ctx, w.id, metav1.DeleteOptions{})
	})
	for _, n := range w.nodes {
		name := n.object.Name
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: w.id + ".example.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, ResourceSliceCount: 1},
		}}
		for i := range w.IntN(3) {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("device-", i)})
		}
		_, err := api().ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		require.NoError(w.t, err)
		w.seen = append(w.seen, seenObject{"resourceslices", name})
		w.clean = append(w.clean, func(ctx context.Context) error {
			return api().ResourceV1().ResourceSlices().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
}

func mount(pod *corev1.Pod, source corev1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", len(pod.Spec.Volumes)), VolumeSource: source})
}

// reachedFrom are the nodes that reach a volume.
func reachedFrom(key, value string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
	}}}}
}
