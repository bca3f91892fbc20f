package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

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
	// roles are the pods of the gang by role, without those that start after the others, which are late.
	roles [][]*corev1.Pod
	late  []*corev1.Pod
	// needs is how many of a role must run, and of all roles for "".
	needs map[string]int
	// clean takes away what the world's classes have made.
	clean []func(context.Context) error
	// begin is what is done once the pods are there that run.
	begin []func(context.Context) error
	// seen are the objects that must have been seen before pods are tried.
	seen []seenObject
}

// seenObject is an object by its resource and key, and the state that it must have been seen in, nil for any.
type seenObject struct {
	resource, key string
	state         metav1.Object
}

// withoutClass are the filters that cannot matter to a gang, with the reason.
var withoutClass = map[string]string{
	names.NodeName: "no scheduler is asked about a pod that names its node; it runs there",
}

// filterClass makes what the filters of a plugin look at. Its name begins with that of the plugin.
type filterClass struct {
	name string
	make func(*filterWorld)
}

func (c filterClass) plugin() string {
	name, _, _ := strings.Cut(c.name, " ")
	return name
}

var filterClasses = []filterClass{
	{"NodeAffinity", (*filterWorld).nodeAffinity},
	{"NodePorts", (*filterWorld).nodePorts},
	{"TaintToleration", (*filterWorld).taints},
	{"NodeUnschedulable", (*filterWorld).cordons},
	{"NodeResourcesFit", (*filterWorld).resources},
	{"NodeDeclaredFeatures", (*filterWorld).declaredFeatures},
	{"VolumeRestrictions", (*filterWorld).sharedDisk},
	{"NodeVolumeLimits", (*filterWorld).volumeLimits},
	{"VolumeBinding", (*filterWorld).boundVolumes},
	{"VolumeBinding of local volumes", (*filterWorld).localVolumes},
	{"VolumeZone", (*filterWorld).zonalVolumes},
	{"PodTopologySpread", (*filterWorld).spreads},
	{"InterPodAffinity", (*filterWorld).podAffinity},
	{"DynamicResources", (*filterWorld).devices},
	{"DynamicResources in use", (*filterWorld).usedDevices},
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
		pod := w.running(fmt.Sprintf("there-%d", i), w.node())
		pod.Labels = map[string]string{appLabel: w.pick(id, "web")}
		w.there = append(w.there, pod)
	}
	w.gang()
	return w
}

// filterRoles are the roles of gangs, in the order in which they have them.
var filterRoles = []string{contract.ReplicaWorker, contract.ReplicaMaster, "evaluator"}

// gang makes a gang: of up to three roles, elastic or not, with GPUs, parts of them, or members without any, and sometimes
// with a launcher.
func (w *filterWorld) gang() {
	g := worldGang{namespace: w.namespace, name: w.id}
	parts := w.chance(6)
	if parts {
		w.shareGPUs()
	}
	total, elastic, most := 0, w.chance(3), 4
	bare := !parts && !elastic && w.chance(6)
	roles := 1 + w.IntN(len(filterRoles))
	if roles == len(filterRoles) {
		most = 2
	}
	for i := range roles {
		members := 1 + w.IntN(most)
		total += members
		asks := corev1.ResourceList{corev1.ResourceCPU: quantity(1)}
		switch {
		case parts: // half of a GPU, so that whatever is left holds as much as it sums up to
			asks[contract.ResourceGPUMemory], asks[contract.ResourceCorePercent] = quantity(8), quantity(50)
		case bare:
		case elastic || i == 0 || !w.chance(4): // those without would wait for the others in an elastic gang
			asks[contract.ResourceTopologyGPU] = quantity(int64(1 + w.IntN(4)))
		}
		g.add(filterRoles[i], members, func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: asks, Limits: asks.DeepCopy()}
			pod.Labels[appLabel] = w.id
		})
		w.roles = append(w.roles, g.pods[len(g.pods)-members:])
	}
	w.needs = map[string]int{"": total}
	if elastic {
		w.stretch(total)
	}
	if !bare && w.chance(6) { // beside others without GPUs it would be one of them
		g.add(contract.ReplicaLauncher, 1)
		w.late = g.pods[total:]
	}
	for _, pod := range g.pods {
		pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = w.id, strconv.Itoa(w.needs[""])
		pod.Labels[contract.TopologyReplicasLabel] = strconv.Itoa(total)
	}
}

// stretch makes fewer members enough, and has a role need some for itself now and then. The one master there is always is.
func (w *filterWorld) stretch(total int) {
	w.needs[""] = 1 + w.IntN(total)
	together := 0
	for i, role := range w.roles {
		name, needs := filterRoles[i], 0
		switch {
		case w.chance(3):
			needs = 1 + w.IntN(len(role))
			for _, pod := range role {
				pod.Labels[contract.RoleMinLabel] = strconv.Itoa(needs)
			}
		case name == contract.ReplicaMaster && len(role) == 1:
			needs = 1
		}
		if needs > 0 {
			w.needs[name] = needs
			together += needs
		}
	}
	w.needs[""] = max(w.needs[""], together)
}

// shareGPUs has all nodes offer parts of GPUs.
func (w *filterWorld) shareGPUs() {
	for i := range w.nodes {
		n := w.nodes[i].object
		n.Labels[contract.NodeModeLabel] = "core_mem"
		n.Status.Allocatable = n.Status.Allocatable.DeepCopy()
		delete(n.Status.Allocatable, contract.ResourceTopologyGPU)
		n.Status.Allocatable[contract.ResourceGPUCount] = quantity(8)
		n.Status.Allocatable[contract.ResourceGPUMemory], n.Status.Allocatable[contract.ResourceCorePercent] = quantity(8*16), quantity(8*100)
		n.Status.Capacity = n.Status.Allocatable
	}
}

// enough reports whether so many of the gang's pods have a place that it runs.
func (w *filterWorld) enough(placed []*corev1.Pod) bool {
	have := map[string]int{}
	for _, pod := range placed {
		if role := pod.Labels[contract.JobReplicaTypeLabel]; role != contract.ReplicaLauncher {
			have[role]++
			have[""]++
		}
	}
	for role, needs := range w.needs {
		if have[role] < needs {
			return false
		}
	}
	return true
}

func (w *filterWorld) chance(n int) bool { return w.IntN(n) == 0 }

func (w *filterWorld) pick(list ...string) string { return list[w.IntN(len(list))] }

func (w *filterWorld) node() string { return w.nodes[w.IntN(len(w.nodes))].object.Name }

// running is a pod that runs on a node.
func (w *filterWorld) running(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.id + "-" + name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "test"}},
		},
	}
}

// pods are those of the gang that are to run together.
func (w *filterWorld) pods() []*corev1.Pod { return slices.Concat(w.roles...) }

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
			term = onNode(w.node())
		}
		for _, pod := range role {
			if w.chance(3) { // a place of its own
				term = onNode(w.node())
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

// declaredFeatures has members ask for what only the kubelets of some nodes say that they can do.
func (w *filterWorld) declaredFeatures() {
	const feature = "RestartAllContainersOnContainerExits"
	for i := range w.nodes {
		if w.chance(2) {
			w.nodes[i].object.Status.DeclaredFeatures = []string{feature}
		}
	}
	w.some(func(role []*corev1.Pod) {
		for _, pod := range role {
			if w.chance(4) {
				continue
			}
			never := corev1.ContainerRestartPolicyNever
			pod.Spec.Containers[0].RestartPolicy = &never
			pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
	})
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
		w.seen = append(w.seen, seenObject{"csinodes", object.Name, nil})
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
	w.seen = append(w.seen, seenObject{"storageclasses", w.id, nil})
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
	w.offerDevices(nil)
	for _, pod := range w.roles[0] {
		claimDevice(pod, w.resourceClaim(pod.Name).Name)
	}
}

// usedDevices gives members claims of which most have been given the device of a node, for a pod that runs there. Some share one of
// these.
func (w *filterWorld) usedDevices() {
	w.offerDevices(nil)
	w.some(func(role []*corev1.Pod) {
		claim, used := "", false
		for _, pod := range role {
			if !used || !w.chance(3) {
				claim = w.resourceClaim(pod.Name).Name
				if used = !w.chance(4); used {
					w.useDevice(claim)
				}
			}
			claimDevice(pod, claim)
		}
	})
}

// useDevice has a pod run for which a claim has been given the device of its node.
func (w *filterWorld) useDevice(claim string) {
	user := w.running(fmt.Sprintf("uses-%d", len(w.there)), w.node())
	claimDevice(user, claim)
	w.there = append(w.there, user)
	w.begin = append(w.begin, func(ctx context.Context) error {
		pod, err := api().CoreV1().Pods(w.namespace).Get(ctx, user.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claims := api().ResourceV1().ResourceClaims(w.namespace)
		object, err := claims.Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node := pod.Spec.NodeName
		object.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
		now := metav1.Now()
		object.Status.Allocation = &resourcev1.AllocationResult{
			AllocationTimestamp: &now,
			NodeSelector:        &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{onNode(node)}},
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "device", Driver: w.id + ".example.com", Pool: node, Device: "used-by-" + pod.Name,
			}}},
		}
		object, err = claims.UpdateStatus(ctx, object, metav1.UpdateOptions{})
		w.seen = append(w.seen, seenObject{"resourceclaims", w.namespace + "/" + claim, object})
		return err
	})
}

// resourceClaim makes a claim for a device.
func (w *filterWorld) resourceClaim(name string) *resourcev1.ResourceClaim {
	claim, err := api().ResourceV1().ResourceClaims(w.namespace).Create(w.t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: w.id, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.seen = append(w.seen, seenObject{"resourceclaims", w.namespace + "/" + name, nil})
	w.clean = append(w.clean, func(ctx context.Context) error {
		return removeUnprotected(ctx, resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), w.namespace, name)
	})
	return claim
}

// claimDevice has a pod use the device of a claim.
func claimDevice(pod *corev1.Pod, claim string) {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
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
	w.seen = append(w.seen, seenObject{"deviceclasses", w.id, nil})
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
		w.seen = append(w.seen, seenObject{"resourceslices", name, nil})
		w.clean = append(w.clean, func(ctx context.Context) error {
			return api().ResourceV1().ResourceSlices().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
}

func mount(pod *corev1.Pod, source corev1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", len(pod.Spec.Volumes)), VolumeSource: source})
}

// onNode selects a node.
func onNode(name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
}

// reachedFrom are the nodes that reach a volume.
func reachedFrom(key, value string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
	}}}}
}
