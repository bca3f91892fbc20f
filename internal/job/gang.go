package job

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// PlannerGang returns the job as the planner sees it: its object is rendered,
// the pods that the operator will make of it are predicted, and they are described
// by the function that describes the real pods to the scheduler. tree gives the
// quota leaf of the namespace; it may be nil.
func (s Spec) PlannerGang(tree *quota.Tree) (placement.Gang, error) {
	return s.AdmittedGang(tree, nil, nil)
}

// AdmittedGang is [Spec.PlannerGang] with the pods as admission makes them, within a cluster.
func (s Spec) AdmittedGang(tree *quota.Tree, admission Admission, amid *inventory.Surroundings) (placement.Gang, error) {
	pods, err := s.Pods()
	if err != nil {
		return placement.Gang{}, err
	}
	pods = admission.Admit(pods)
	for index, p := range pods {
		if s.Ended.Has(index) { // a Job has one role
			p.Status.Phase = corev1.PodSucceeded
		}
	}
	gang, problems := inventory.GangAmid(pods, nil, tree, amid)
	if len(problems) > 0 {
		return placement.Gang{}, fmt.Errorf("job %s: %s", s.ID(), problems[0].Text)
	}
	gang.ID = s.ID() // without gang labels it would be the first pod's
	return gang, nil
}

// Pods predicts the pods of the job.
func (s Spec) Pods() ([]*corev1.Pod, error) {
	obj, err := s.Render()
	if err != nil {
		return nil, err
	}
	return Pods(obj)
}
