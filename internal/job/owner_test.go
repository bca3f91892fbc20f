package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
