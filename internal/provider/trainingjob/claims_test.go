package trainingjob_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A claim that waits for its first pod is bound to a volume that is there, unless its class makes one: a plan
// warns when none of them is for a node of the job's pools, where that can be told.
func TestClaimWithoutAVolume(t *testing.T) {
	const node = "cn-hangzhou.10.0.1.1"
	static, makes := "kubernetes.io/no-provisioner", "disk.csi.example.com"
	disk := func(name, on string, size string) *corev1.PersistentVolume {
		mode := corev1.PersistentVolumeFilesystem
		return &corev1.PersistentVolume{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: "local", VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{on}}}}}}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
		}
	}
	for name, test := range map[string]struct {
		provisioner string
		volumes     []*corev1.PersistentVolume
		planned     bool // the nodes are still to come
		warns       bool
	}{
		"no volume":                {static, nil, false, true},
		"one of another node":      {static, []*corev1.PersistentVolume{disk("a", "elsewhere", "1Gi")}, false, true},
		"one that is too small":    {static, []*corev1.PersistentVolume{disk("a", node, "1Mi")}, false, true},
		"one of the node":          {static, []*corev1.PersistentVolume{disk("a", "elsewhere", "1Gi"), disk("b", node, "1Gi")}, false, false},
		"a class that makes them":  {makes, nil, false, false},
		"nodes to come":            {static, []*corev1.PersistentVolume{disk("a", "elsewhere", "1Gi")}, true, false},
		"no volume, nodes to come": {static, nil, true, true},
		"too small, nodes to come": {static, []*corev1.PersistentVolume{disk("a", "elsewhere", "1Mi")}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			cli := acctest.StartCLI(t)
			withVolume := oneJob("pytorch", `volumes = { data = { claim = "loc", mount_path = "/data" } }`, "")
			if !test.planned {
				cli.Write(t, withVolume)
				cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_node_pool.v100")
			}
			later := storagev1.VolumeBindingWaitForFirstConsumer
			cloud.Put(t, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "default"}})
			cloud.Put(t, &storagev1.StorageClass{
				TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}, ObjectMeta: metav1.ObjectMeta{Name: "local"},
				Provisioner: test.provisioner, VolumeBindingMode: &later,
			})
			class := "local"
			cloud.Put(t, &corev1.PersistentVolumeClaim{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "loc"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
			})
			for _, volume := range test.volumes {
				cloud.Put(t, volume)
			}
			cli.Write(t, withVolume)
			said := acctest.Unwrapped(cli.Must(t, "plan"))
			if test.warns {
				assert.Contains(t, said, `Volume "data" of job default/j is the claim default/loc, which is bound when its first pod comes. Nobody makes volumes of its StorageClass local`)
			} else {
				assert.NotContains(t, said, "Volume claim has no volume")
			}
			assert.NotContains(t, said, "Volume claim is not bound", "it waits for a pod")
			assert.Zero(t, cloud.API.Gets()["storageclasses"], "they are listed with the rest of the cluster")
		})
	}
}

// Who may read a class and not list them, or not list nodes, is told of claims that nobody binds.
func TestClaimOfAClassThatCannotBeListed(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	immediate, class := storagev1.VolumeBindingImmediate, "shared"
	cloud.Put(t, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	cloud.Put(t, &storagev1.StorageClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}, ObjectMeta: metav1.ObjectMeta{Name: class},
		Provisioner: "nas.csi.example.com", VolumeBindingMode: &immediate,
	})
	cloud.Put(t, &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	})
	refused := ""
	cloud.Intercept(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, refused) {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	cli := acctest.StartCLI(t)
	cli.Write(t, oneJob("pytorch", `volumes = { data = { claim = "data", mount_path = "/data" } }`, ""))
	for _, refused = range []string{"/storageclasses", "/nodes"} {
		output, _ := cli.Run("plan")
		assert.Contains(t, acctest.Unwrapped(output), `Volume "data" of job default/j is the claim default/data, which is not bound`, refused)
	}
}

// A job of someone who may see the pods of one namespace and no nodes, with the check of its placement off, is refreshed and deleted as it was made;
// also once these pods may no longer be seen.
func TestJobOfWhoMayNotListNodes(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	noPods := false
	cloud.Intercept(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/api/v1/nodes" || r.URL.Path == "/api/v1/pods" || noPods && strings.HasSuffix(r.URL.Path, "/pods") && r.Method == http.MethodGet {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	cli := acctest.StartCLI(t)
	const j = `
resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 2, gpus = 1 } }
}
`
	cli.Refuses(t, strings.Replace(j, `"off"`, `"error"`, 1), acctest.Saying(`have the kubeconfig's user given this right, or set placement_check = "off".`))
	cli.Write(t, j)
	cli.Must(t, "apply", "-auto-approve")
	assert.NotContains(t, cli.Must(t, "plan", "-detailed-exitcode"), "Placement is not known")
	noPods = true
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan", "-detailed-exitcode")), "What the state says of the placement of job default/j stays as it is.")
	noPods = false
	cli.Must(t, "destroy", "-auto-approve")
}

// A node that attaches no more volumes of a driver takes no pod that brings another: the plan says so, and promises no place.
func TestVolumesBeyondWhatNodesAttach(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	withVolume := oneJob("pytorch", `volumes = { data = { claim = "data", mount_path = "/data" } }`, "")
	cli.Write(t, withVolume)
	cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_node_pool.v100")
	cloud.Put(t, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	cloud.Put(t, &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: "d-1"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "d-1"}}},
	})
	cloud.Put(t, &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "d-1", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
	limit := func(most int32) {
		cloud.Put(t, &storagev1.CSINode{
			TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSINode"}, ObjectMeta: metav1.ObjectMeta{Name: "cn-hangzhou.10.0.1.1"},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "disk.csi.example.com", NodeID: "n", Allocatable: &storagev1.VolumeNodeResources{Count: &most}}}},
		})
	}
	limit(1)
	cli.Must(t, "plan")
	limit(0)
	cli.Refuses(t, withVolume, acctest.Saying("nodes that attach no more volumes of the CSI driver disk.csi.example.com: cn-hangzhou.10.0.1.1"))
}
