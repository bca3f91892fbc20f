package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// apartFrom is a pod on a node that keeps the pods with a label out of its domain.
func apartFrom(node, topologyKey string, labels map[string]string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "apart"},
		Spec: corev1.PodSpec{NodeName: node, Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: topologyKey, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			}},
		}}},
	}
}

// What runs keeps new pods away, whichever of the two has the rule, and volumes are on some nodes only.
func TestSurroundings(t *testing.T) {
	node := func(name, zone string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, "zone": zone}}}
	}
	nodes := []corev1.Node{node("n1", "a"), node("n2", "a"), node("n3", "b")}
	team := map[string]string{"team": "a"}
	for name, test := range map[string]struct {
		running  corev1.Pod
		excluded []string
		says     string
	}{
		"by host":           {apartFrom("n1", corev1.LabelHostname, team), []string{"n1"}, "pod default/apart keeps them from its node by its anti-affinity"},
		"by zone":           {apartFrom("n1", "zone", team), []string{"n1", "n2"}, "pod default/apart keeps them from 2 nodes by its anti-affinity"},
		"of others":         {apartFrom("n1", "zone", map[string]string{"team": "b"}), nil, ""},
		"no domain":         {apartFrom("n1", "rack", team), nil, ""},
		"it waits":          {apartFrom("", "zone", team), nil, ""},
		"it is none of his": {apartFrom("n3", "zone", map[string]string{"none": "of it"}), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: team}}
			all := func(*corev1.Pod) bool { return true }
			amid := inventory.NewSurroundings(nodes, nil, []corev1.Pod{test.running}, nil, all)
			gang, problems := inventory.GangAmid([]*corev1.Pod{pod}, nil, nil, amid)
			assert.Empty(t, problems)
			limits := map[string]int{}
			for _, node := range test.excluded {
				limits[node] = 0
			}
			if len(limits) == 0 {
				limits = nil
			}
			assert.Equal(t, limits, gang.Roles[0].NodeLimits)
			assert.Equal(t, test.says, amid.Restricts([]*corev1.Pod{pod}))
			nobody := inventory.NewSurroundings(nodes, nil, []corev1.Pod{test.running}, nil, func(*corev1.Pod) bool { return false })
			assert.Empty(t, nobody.Restricts([]*corev1.Pod{pod}), "it does not count")
		})
	}

	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"},
		Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}}}},
		}}}},
	}
	bound := func(namespace, claim string) *corev1.PersistentVolume {
		return map[string]*corev1.PersistentVolume{"default/data": volume}[namespace+"/"+claim]
	}
	mounts := func(claim string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
	}
	amid := inventory.NewSurroundings(nodes, nil, nil, bound, nil)
	gang, _ := inventory.GangAmid([]*corev1.Pod{mounts("data")}, nil, nil, amid)
	assert.Equal(t, [][]placement.Requirement{{{Key: corev1.LabelHostname, Operator: "In", Values: []string{"n2"}}}}, gang.Roles[0].Volumes)
	assert.Equal(t, "claim data is bound to volume disk, which not every node reaches", amid.Restricts([]*corev1.Pod{mounts("data")}))
	gang, _ = inventory.GangAmid([]*corev1.Pod{mounts("other")}, nil, nil, amid)
	assert.Nil(t, gang.Roles[0].Volumes)
}

// A node attaches as many volumes of a CSI driver as its CSINode says, each of them once.
func TestVolumesThatNodesAttach(t *testing.T) {
	const driver = "disk.csi.example.com"
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
	csi := func(node string, most int32) storagev1.CSINode {
		return storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &most}}, {Name: "nas.csi.example.com"},
		}}}
	}
	bound := func(_, claim string) *corev1.PersistentVolume {
		of := driver
		switch claim {
		case "waits":
			return nil
		case "local":
			return &corev1.PersistentVolume{}
		case "nas":
			of = "nas.csi.example.com"
		}
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: of, VolumeHandle: claim}}}}
	}
	mounts := func(node string, claims ...string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{NodeName: node}}
		for _, claim := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
		return p
	}
	ended, leaves := mounts("n1", "a"), mounts("n1", "a")
	ended.Status.Phase = corev1.PodSucceeded
	leaves.DeletionTimestamp = new(metav1.Now())
	for name, test := range map[string]struct {
		running []corev1.Pod
		claims  []string
		full    map[string]int
	}{
		"room":                {nil, []string{"b"}, nil},
		"no room on one":      {[]corev1.Pod{mounts("n1", "a")}, []string{"b"}, map[string]int{"n1": 0}},
		"attached already":    {[]corev1.Pod{mounts("n1", "a")}, []string{"a"}, nil},
		"two of one":          {[]corev1.Pod{mounts("n2", "a"), mounts("n2", "a")}, []string{"b"}, nil},
		"two for a node":      {nil, []string{"a", "b"}, map[string]int{"n1": 0}},
		"too many for any":    {nil, []string{"a", "b", "c"}, map[string]int{"n1": 0, "n2": 0}},
		"of one that ended":   {[]corev1.Pod{ended}, []string{"b"}, nil},
		"of one that leaves":  {[]corev1.Pod{leaves}, []string{"b"}, nil},
		"no limit":            {[]corev1.Pod{mounts("n1", "a")}, []string{"nas"}, nil},
		"no driver":           {[]corev1.Pod{mounts("n1", "a")}, []string{"local"}, nil},
		"not bound":           {[]corev1.Pod{mounts("n1", "a")}, []string{"waits"}, nil},
		"of no node, waiting": {[]corev1.Pod{mounts("", "a")}, []string{"b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			amid := inventory.NewSurroundings(nodes, []storagev1.CSINode{csi("n1", 1), csi("n2", 2)}, test.running, bound, func(*corev1.Pod) bool { return true })
			pod := mounts("", test.claims...)
			gang, _ := inventory.GangAmid([]*corev1.Pod{&pod}, nil, nil, amid.With(nil, nil))
			assert.Equal(t, test.full, gang.Roles[0].NodeLimits)
			if text := amid.Restricts([]*corev1.Pod{&pod}); test.full == nil {
				assert.Empty(t, text)
			} else {
				assert.Contains(t, text, "nodes that attach no more volumes of the CSI driver disk.csi.example.com: n1")
			}
		})
	}
}
