package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// TensorBoard shows what a job logs (kubeflow/arena v0.15, charts/pytorchjob/templates/tensorboard.yaml and service.yaml).
type TensorBoard struct {
	// LogDir is where the job logs: a path on one of its volumes, or a URL that TensorBoard reads.
	LogDir string `json:"logDir"`
	// Image has the program tensorboard; "" means arena's.
	Image string `json:"image,omitempty"`
	// ServiceType is the type of its Service; "" means NodePort, as arena has it.
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`
}

const (
	tensorBoardImage = "registry.cn-zhangjiakou.aliyuncs.com/acs/tensorflow:1.12.0-devel"
	tensorBoardPort  = 6006
	tensorBoardName  = "tensorboard"
)

// TensorBoardName returns the name of the Deployment and the Service of [Spec.TensorBoardObjects].
func (s Spec) TensorBoardName() string { return s.Name + "-" + tensorBoardName }

// completeTensorBoard spells out the image and the type of the service.
func (s *Spec) completeTensorBoard() {
	if s.TensorBoard == nil {
		return
	}
	t := *s.TensorBoard
	if t.Image == "" {
		t.Image = tensorBoardImage
	}
	if t.ServiceType == "" {
		t.ServiceType = corev1.ServiceTypeNodePort
	}
	s.TensorBoard = &t
}

// briefTensorBoard is the inverse.
func (s *Spec) briefTensorBoard() {
	if s.TensorBoard == nil {
		return
	}
	t := *s.TensorBoard
	if t.Image == tensorBoardImage {
		t.Image = ""
	}
	if t.ServiceType == corev1.ServiceTypeNodePort {
		t.ServiceType = ""
	}
	s.TensorBoard = &t
}

// tensorBoardAnnotations tell a refresh, and an import, of the job's TensorBoard.
func (s Spec) tensorBoardAnnotations() map[string]string {
	if s.TensorBoard == nil {
		return nil
	}
	text, err := json.Marshal(s.TensorBoard)
	if err != nil {
		panic(err) // a record of strings always encodes
	}
	return map[string]string{contract.TensorBoardAnnotation: string(text)}
}

// parseTensorBoard reads back what tensorBoardAnnotations returned; what nobody can read is none.
func parseTensorBoard(annotations map[string]string) *TensorBoard {
	var t TensorBoard
	if json.Unmarshal([]byte(annotations[contract.TensorBoardAnnotation]), &t) != nil || t.LogDir == "" {
		return nil
	}
	return &t
}

// checkTensorBoard holds the rules of TensorBoard.
func (s Spec) checkTensorBoard(add report) {
	t := s.TensorBoard
	if t == nil {
		return
	}
	for _, text := range validation.IsDNS1035Label(s.TensorBoardName()) {
		if len(s.Name) <= validation.DNS1123LabelMaxLength {
			add("", "tensorboard", "%q cannot be the name of its Service: %s", short(s.TensorBoardName()), text)
		}
	}
	if t.Image != strings.TrimSpace(t.Image) || strings.ContainsRune(t.Image, 0) {
		add("", "tensorboard", "image: %q has spaces around it, or characters that no image has", short(t.Image))
	}
	switch _, onVolume := s.logVolume(); {
	case strings.Contains(t.LogDir, "://"):
	case !strings.HasPrefix(t.LogDir, "/") || path.Clean(t.LogDir) != strings.TrimRight(t.LogDir, "/") || strings.ContainsRune(t.LogDir, 0):
		add("", "tensorboard", "log_dir: %q is neither a path in the containers, which starts with a slash, nor a URL", short(t.LogDir))
	case !onVolume:
		add("", "tensorboard", "log_dir: %s is on none of the job's volumes, and TensorBoard runs in a pod of its own, which would not see it: add a volume that both mount, or use a URL", short(t.LogDir))
	}
}

// logVolume is the name of the volume that has the log directory, the innermost one.
func (s Spec) logVolume() (name string, ok bool) {
	for _, candidate := range slices.Sorted(maps.Keys(s.Volumes)) {
		at := strings.TrimRight(s.Volumes[candidate].MountPath, "/") + "/"
		if !strings.HasPrefix(strings.TrimRight(s.TensorBoard.LogDir, "/")+"/", at) {
			continue
		}
		if !ok || len(at) > len(s.Volumes[name].MountPath) {
			name, ok = candidate, true
		}
	}
	return name, ok
}

// TensorBoardObjects returns the Deployment and the Service of the job's TensorBoard, as arena's charts have them. They
// belong to the job with the given UID and go with it. The job must have a TensorBoard.
func (s Spec) TensorBoardObjects(uid types.UID) ([]*unstructured.Unstructured, error) {
	s = s.Complete()
	// What a Deployment selects nobody can change: no more than says whose it is, whether arena knows the job or not.
	selected := map[string]string{contract.ArenaReleaseLabel: s.Name, contract.ArenaRoleLabel: tensorBoardName}
	labels := merge(s.arenaLabels(), selected, map[string]string{contract.ManagedByLabel: contract.ManagedByValue})
	if s.Owner != "" {
		labels[contract.OwnerLabel] = s.Owner
	}
	meta := metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.TensorBoardName(), Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: s.GVK().GroupVersion().String(), Kind: s.GVK().Kind, Name: s.Name, UID: uid,
		}},
	}
	port := corev1.ServicePort{Name: tensorBoardName, Port: tensorBoardPort, TargetPort: intstr.FromInt32(tensorBoardPort), Protocol: corev1.ProtocolTCP}
	var out []*unstructured.Unstructured
	for _, object := range []any{
		&appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"}, ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: selected},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: s.tensorBoardPod()},
			},
		},
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
			Spec: corev1.ServiceSpec{Type: s.TensorBoard.ServiceType, Ports: []corev1.ServicePort{port}, Selector: selected},
		},
	} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("render TensorBoard of job %s: %w", s.ID(), err)
		}
		delete(content, "status")
		out = append(out, &unstructured.Unstructured{Object: content})
	}
	return out, nil
}

// tensorBoardPod runs TensorBoard: without a GPU, by the cluster's own scheduler, and near the job's pods, where a volume
// can be mounted that one node has at a time.
func (s Spec) tensorBoardPod() corev1.PodSpec {
	container := corev1.Container{
		Name: tensorBoardName, Image: s.TensorBoard.Image,
		Command: []string{"tensorboard", "--logdir", s.TensorBoard.LogDir, "--host", "0.0.0.0"},
		Ports:   []corev1.ContainerPort{{ContainerPort: tensorBoardPort, Protocol: corev1.ProtocolTCP}},
	}
	spec := corev1.PodSpec{
		Tolerations: s.Tolerations, PriorityClassName: s.PriorityClass,
		Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: s.memberLabels()}, TopologyKey: corev1.LabelHostname},
		}}}},
	}
	if name, ok := s.logVolume(); ok {
		v := s.Volumes[name]
		spec.Volumes = []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Claim, ReadOnly: v.ReadOnly},
		}}}
		container.VolumeMounts = []corev1.VolumeMount{{Name: name, MountPath: v.MountPath, ReadOnly: true}}
	}
	for _, name := range s.ImagePullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	spec.Containers = []corev1.Container{container}
	return spec
}

// memberLabels are on all pods of the job.
func (s Spec) memberLabels() map[string]string {
	switch s.Framework {
	case Batch:
		return map[string]string{batchv1.JobNameLabel: s.Name}
	case JobSet, TrainJob:
		return map[string]string{contract.JobSetNameLabel: s.Name}
	}
	return map[string]string{contract.JobNameLabel: s.Name}
}
