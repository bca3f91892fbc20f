package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Why a job cannot have its planned place is said once, by the verdict where there is one.
func TestLostPlace(t *testing.T) {
	const full = "quota root: max of aliyun.com/gpu is 16, 16 is used and 2 is asked for by 1 member"
	waits := placement.Result{Verdict: placement.Verdict{Asked: 1, Reasons: []placement.Reason{{Code: placement.OverQuota, Text: full}}}}
	moves := placement.Result{Placement: &placement.Placement{}}
	assert.Equal(t, "Job default/j cannot have its planned place now. ", lostPlace("default/j", "", full, waits))
	assert.Equal(t, "Job default/j cannot have its planned place now: node n is cordoned. ", lostPlace("default/j", "", "node n is cordoned", waits))
	assert.Equal(t, "Job default/j cannot have its planned place now: "+full+". ", lostPlace("default/j", "", full, moves))
	assert.Equal(t, "A LimitRange adds CPU. So the job cannot have its planned place now. ", lostPlace("default/j", "A LimitRange adds CPU.", full, waits))
}
