package job

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Owns reports whether an object with these owners belongs to a job of this name: an operator has made
// it for the job, or it is a pod of what the operator of MPIJobs v1alpha1, or the controller of JobSets, makes for one.
func (s Spec) Owns(owners []metav1.OwnerReference) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool {
		switch o.Kind {
		case contract.MPIJobKind, contract.PyTorchJobKind, contract.JobSetKind, contract.TrainJobKind:
			return o.Name == s.Name
		case "StatefulSet":
			return s.Framework == MPI && o.Name == WorkerSet(s.Name)
		case contract.BatchJobKind:
			return o.APIVersion == batchv1.SchemeGroupVersion.String() &&
				(s.Framework == MPI && o.Name == s.Launcher() || s.Framework == Batch && o.Name == s.Name || slices.Contains(s.Children(), o.Name))
		}
		return false
	})
}

// OwnsPod reports whether a pod belongs to a job of this name, whatever its framework and roles are: one that
// another takes the place of may have others than that.
func (s Spec) OwnsPod(pod *corev1.Pod) bool {
	if maker := metav1.GetControllerOfNoCopy(pod); maker != nil && maker.Kind == contract.BatchJobKind && pod.Labels[contract.JobSetNameLabel] == s.Name {
		return true
	}
	return slices.ContainsFunc(Frameworks(), func(framework Framework) bool {
		s.Framework = framework
		return s.Owns(pod.OwnerReferences)
	})
}

// Launcher is the name of what an operator makes for the launcher of an MPIJob.
func (s Spec) Launcher() string { return s.Name + "-" + contract.ReplicaLauncher }

// PartOf is the training job that a Job or a JobSet is a part of, which its operator has made, nil for a job on its own:
// the launcher of an MPIJob, a role of a JobSet, or the JobSet of a TrainJob.
func PartOf(object metav1.Object) *metav1.OwnerReference {
	maker := metav1.GetControllerOfNoCopy(object)
	if maker == nil {
		return nil
	}
	group, _, _ := strings.Cut(maker.APIVersion, "/")
	if !slices.Contains([]string{contract.KubeflowGroup, contract.JobSetGroup, contract.TrainerGroup}, group) {
		return nil
	}
	return maker
}

// Whose names what an object of others belongs to, as in " but of the Deployment web", "" for nothing.
func Whose(owners []metav1.OwnerReference) string {
	if len(owners) == 0 {
		return ""
	}
	return " but of the " + owners[0].Kind + " " + owners[0].Name
}
