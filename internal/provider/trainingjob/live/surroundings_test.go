package live_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Pods that run keep others away by their anti-affinity, and a volume is where its nodes are: a plan says
// when the planned nodes are not these, and refuses what has no place.
func TestNodesThatOthersAndVolumesLeave(t *testing.T) {
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, setting{size: 2}.config())
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })
	nodes, err := client.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodePoolNameLabel + "=v100"})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 2)
	first, second := nodes.Items[0].Name, nodes.Items[1].Name

	_, err = client.Typed.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "apart"},
		Spec: corev1.PodSpec{NodeName: first, Containers: []corev1.Container{{Name: "c", Image: "c"}}, Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: contract.JobNameLabel, Operator: metav1.LabelSelectorOpExists}}}}}}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	const keeps = "pod default/apart keeps them from its node by its anti-affinity"
	cli.Write(t, setting{size: 2, gangs: gangs{"a": {16, ""}}}.config())
	said, err := cli.Run("plan")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "Gang does not fit")
	assert.Contains(t, acctest.Unwrapped(said), keeps)

	cli.Write(t, setting{size: 2, gangs: gangs{"a": {8, ""}}}.config())
	said = acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "Job will not start where it is planned")
	assert.Contains(t, said, keeps)
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
	require.NoError(t, client.Typed.CoreV1().Pods("default").Delete(t.Context(), "apart", metav1.DeleteOptions{}))
	cli.Write(t, setting{size: 2}.config())
	cli.Must(t, "apply", "-auto-approve")

	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes, class := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, ""
	_, err = client.Typed.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{second}}}}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	claims := client.Typed.CoreV1().PersistentVolumeClaims("default")
	_, err = claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: "disk", StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound
	}, time.Minute, 50*time.Millisecond)
	const mount = `volumes = { data = { claim = "data", mount_path = "/data" } }`
	const reach = "claim data is bound to volume disk, which not every node reaches"
	cli.Write(t, setting{size: 2, gangs: gangs{"a": {16, mount}}}.config())
	said, err = cli.Run("plan")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "Gang does not fit")
	assert.Contains(t, acctest.Unwrapped(said), reach)
	cli.Write(t, setting{size: 2, gangs: gangs{"a": {8, mount}}}.config())
	said = acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "Job will not start where it is planned")
	assert.Contains(t, said, reach)
}
