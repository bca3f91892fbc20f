package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestOwns(t *testing.T) {
	owner := func(version, kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name}}
	}
	for name, test := range map[string]struct {
		owners []metav1.OwnerReference
		of     []Framework
		whose  string
	}{
		"nobody":                  {nil, nil, ""},
		"the job":                 {owner("kubeflow.org/v1", "PyTorchJob", "j"), Frameworks(), " but of the PyTorchJob j"},
		"one of the other kind":   {owner("kubeflow.org/v1", "MPIJob", "j"), Frameworks(), " but of the MPIJob j"},
		"another job":             {owner("kubeflow.org/v1", "PyTorchJob", "k"), nil, " but of the PyTorchJob k"},
		"a kind that we have not": {owner("kubeflow.org/v1", "TFJob", "j"), nil, " but of the TFJob j"},
		"the workers of v1alpha1": {owner("apps/v1", "StatefulSet", "j-worker"), []Framework{MPI}, " but of the StatefulSet j-worker"},
		"its launcher":            {owner("batch/v1", "Job", "j-launcher"), []Framework{MPI}, " but of the Job j-launcher"},
		"a job of Kubernetes":     {owner("batch/v1", "Job", "j"), []Framework{Batch}, " but of the Job j"},
		"a set of such":           {owner("jobset.x-k8s.io/v1alpha2", "JobSet", "j"), Frameworks(), " but of the JobSet j"},
		"a role of such a set":    {owner("batch/v1", "Job", "j-worker-0"), []Framework{TrainJob, JobSet}, " but of the Job j-worker-0"},
		"another one":             {owner("batch/v1", "Job", "k"), nil, " but of the Job k"},
	} {
		t.Run(name, func(t *testing.T) {
			var of []Framework
			for _, framework := range Frameworks() {
				if (Spec{Namespace: "n", Name: "j", Framework: framework, Roles: map[string]Role{"worker": {}}}).Owns(test.owners) {
					of = append(of, framework)
				}
			}
			assert.Equal(t, test.of, of)
			assert.Equal(t, test.whose, Whose(test.owners))
		})
	}
}

// The job that another takes the place of may have had another framework, and other roles.
func TestOwnsPod(t *testing.T) {
	for name, test := range map[string]struct {
		version, kind, name string
		labels              map[string]string
		want                bool
	}{
		"nobody's":                  {},
		"of a training job":         {"kubeflow.org/v1", "PyTorchJob", "j", nil, true},
		"of a job of Kubernetes":    {"batch/v1", "Job", "j", nil, true},
		"of a launcher":             {"batch/v1", "Job", "j-launcher", nil, true},
		"of a role that it has not": {"batch/v1", "Job", "j-actor-0", map[string]string{contract.JobSetNameLabel: "j"}, true},
		"of such a role of another": {"batch/v1", "Job", "j-actor-0", map[string]string{contract.JobSetNameLabel: "j-actor"}, false},
		"of nothing that is a role": {"apps/v1", "ReplicaSet", "j", map[string]string{contract.JobSetNameLabel: "j"}, false},
		"labelled alone":            {"", "", "", map[string]string{contract.JobSetNameLabel: "j"}, false},
		"of another training job":   {"kubeflow.org/v1", "PyTorchJob", "k", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
			if test.kind != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: test.version, Kind: test.kind, Name: test.name, Controller: new(true)}}
			}
			for _, framework := range Frameworks() {
				assert.Equal(t, test.want, (Spec{Namespace: "n", Name: "j", Framework: framework, Roles: map[string]Role{"worker": {}}}).OwnsPod(pod), framework)
			}
		})
	}
}
