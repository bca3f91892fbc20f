package job

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Versions of arena's charts (kubeflow/arena v0.15) whose objects ours resemble.
const (
	arenaMPIChart     = "0.28.0"
	arenaPyTorchChart = "0.5.2"
)

func (s Spec) arenaChart() string {
	if s.Framework == MPI {
		return arenaMPIChart
	}
	return arenaPyTorchChart
}

// arenaLabels are on the job and its pods; `arena list` selects by the first two.
func (s Spec) arenaLabels() map[string]string {
	if !s.Arena {
		return nil
	}
	k := s.Framework.object()
	return map[string]string{
		contract.ArenaAppLabel:       k.app,
		contract.ArenaReleaseLabel:   s.Name,
		contract.ArenaCreatedByLabel: k.kind,
		contract.ArenaChartLabel:     k.app + "-" + s.arenaChart(),
		contract.ArenaHeritageLabel:  "Helm",
	}
}

// arenaPodLabels adds the marks by which `arena get` finds the pods of an MPI job
// and its launcher; pods of a PyTorchJob carry what it looks for anyway.
func (s Spec) arenaPodLabels(role string) map[string]string {
	if !s.Arena {
		return nil
	}
	labels := s.arenaLabels()
	if s.Framework == MPI && s.Version != contract.MPIAlphaVersion { // whose operator sets them
		labels[contract.ArenaMPIGroupLabel] = contract.KubeflowGroup
		labels[contract.ArenaMPIJobLabel] = s.Name
		labels[contract.ArenaMPIRoleLabel] = role
	}
	return labels
}

// arenaAnnotations are on the job and its pods; `arena list` and `top job` read those of
// the pods, because arena itself counts nvidia.com/gpu only.
func (s Spec) arenaAnnotations() map[string]string {
	if !s.Arena {
		return nil
	}
	return map[string]string{contract.ArenaRequestGPUsAnnotation: strconv.FormatInt(s.wholeGPUs(), 10)}
}

func (s Spec) wholeGPUs() int64 {
	var n int64
	for _, r := range s.Roles {
		if s.Mode != Shared {
			n += int64(r.Replicas) * r.GPUs
		}
	}
	return n
}

// ArenaPodMarks returns the labels and annotations by which arena knows the pods of a
// role, whether or not the job has them.
func (s Spec) ArenaPodMarks(role string) (labels, annotations map[string]string) {
	s = s.Complete()
	s.Arena = true
	return s.arenaPodLabels(role), s.arenaAnnotations()
}

// ArenaName returns the name of the ConfigMap of [Spec.ArenaConfigMap].
func (s Spec) ArenaName() string { return s.Name + "-" + s.Framework.object().app }

// ArenaConfigMap returns the ConfigMap without which `arena delete` refuses a job:
// the chart's version, the values, and the objects to delete, "kind.group/name"
// per line, of which none is empty. It belongs to the job with the given UID and goes with it.
func (s Spec) ArenaConfigMap(uid types.UID) (*unstructured.Unstructured, error) {
	s = s.Complete()
	k := s.Framework.object()
	values, err := yaml.Marshal(map[string]any{
		"image":       s.Roles[contract.ReplicaWorker].Image,
		"workers":     s.Members(),
		"gpuCount":    s.Roles[contract.ReplicaWorker].GPUs,
		"gputopology": s.Mode == Topology,
		"gang":        s.Gang,
	})
	if err != nil {
		return nil, fmt.Errorf("render arena's ConfigMap of job %s: %w", s.ID(), err)
	}
	labels := map[string]string{contract.ArenaCreatedByLabel: "arena", contract.ManagedByLabel: contract.ManagedByValue}
	if s.Owner != "" {
		labels[contract.OwnerLabel] = s.Owner
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace,
			Name:      s.ArenaName(),
			Labels:    labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: s.GVK().GroupVersion().String(), Kind: k.kind, Name: s.Name, UID: uid,
			}},
		},
		Data: map[string]string{
			k.app:    s.arenaChart(),
			"values": string(values),
			"app":    k.app + "." + contract.KubeflowGroup + "/" + s.Name,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("render arena's ConfigMap of job %s: %w", s.ID(), err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}
