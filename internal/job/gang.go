package job

import (
	"fmt"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// PlannerGang returns the job as the planner sees it: its object is rendered,
// the pods that the operator will make of it are predicted, and they are described
// by the function that describes the real pods to the scheduler. tree gives the
// quota leaf of the namespace; it may be nil.
func (s Spec) PlannerGang(tree *quota.Tree) (placement.Gang, error) {
	obj, err := s.Render()
	if err != nil {
		return placement.Gang{}, err
	}
	pods, err := Pods(obj)
	if err != nil {
		return placement.Gang{}, err
	}
	gang, problems := inventory.Gang(pods, nil, tree)
	if len(problems) > 0 {
		return placement.Gang{}, fmt.Errorf("job %s: %s", s.ID(), problems[0].Text)
	}
	gang.ID = s.ID() // without gang labels it would be the first pod's
	return gang, nil
}
