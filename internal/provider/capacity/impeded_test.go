package capacity

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// What keeps GPUs from being used is no reason of a job that lacks something else: a job that
// asked for too much CPU was told who uses the GPUs.
func TestImpeded(t *testing.T) {
	yes, gpus, job := true, "0-3", "default/a"
	used := []Capacity{{Pool: "v100", Nodes: []Node{
		{Name: "n1", Held: []Held{{Job: &job, GPUs: &gpus}}}, {Name: "n2", Unschedulable: &yes, SickGPUs: map[string]string{"6": "XID 79"}}, {Name: "n3"},
	}}}
	const said = " Not all of the pools can be used: node n1 has GPU 0-3 used by default/a; node n2 is cordoned, has GPU 6 sick (XID 79)."
	for name, test := range map[string]struct {
		pools []Capacity
		codes []placement.Code
		want  string
	}{
		"too few GPUs":             {used, []placement.Code{placement.NotEnoughGPUs}, said},
		"sick GPUs":                {used, []placement.Code{placement.SickGPUs}, said},
		"parts of GPUs":            {used, []placement.Code{placement.NotEnoughShare}, said},
		"a cordoned node":          {used, []placement.Code{placement.NotEnoughCPU, placement.NodeUnschedulable}, said},
		"a taint":                  {used, []placement.Code{placement.Untolerated}, said},
		"too few GPUs, and no CPU": {used, []placement.Code{placement.NotEnoughCPU, placement.NotEnoughGPUs}, said},
		"it fits on the pools":     {used, nil, said}, // and not with what admission adds, or not on the cluster
		"another mode":             {used, []placement.Code{placement.WrongMode}, ""},
		"too little CPU":           {used, []placement.Code{placement.NotEnoughCPU}, ""},
		"no RDMA":                  {used, []placement.Code{placement.NotEnoughOther}, ""},
		"all is free":              {[]Capacity{{Nodes: []Node{{Name: "n3"}}}}, []placement.Code{placement.NotEnoughGPUs}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var reasons []placement.Reason
			for _, code := range test.codes {
				reasons = append(reasons, placement.Reason{Code: code})
			}
			assert.Equal(t, test.want, Impeded(test.pools, reasons))
		})
	}
}

// A job whose pools offer their GPUs in another mode is told which modes would do.
func TestOtherMode(t *testing.T) {
	pools := func(modes ...string) (out []Capacity) {
		for _, mode := range modes {
			out = append(out, Capacity{Mode: mode, GPUsPerNode: 8})
		}
		return out
	}
	wrong := placement.Verdict{Reasons: []placement.Reason{{Code: placement.WrongMode}}}
	for name, test := range map[string]struct {
		pools   []Capacity
		mode    string
		verdict placement.Verdict
		want    string
	}{
		"shared on topology":   {pools("topology"), "shared", wrong, ` Use mode "topology" in the job, or a pool in mode "core_mem".`},
		"topology on core_mem": {pools("core_mem"), "topology", wrong, ` Use mode "shared" in the job, or a pool in mode "topology".`},
		"on several":           {pools("share", "default", "core_mem"), "topology", wrong, ` Use mode "default" or "shared" in the job, or a pool in mode "topology".`},
		"without GPUs":         {[]Capacity{{Mode: "topology"}}, "default", wrong, ` Use a pool in mode "default".`},
		"a fix is known":       {pools("topology"), "default", placement.Verdict{Reasons: wrong.Reasons, Fixes: []placement.Fix{{}}}, ""},
		"another reason":       {pools("topology", "default"), "default", placement.Verdict{Reasons: []placement.Reason{{Code: placement.NotEnoughGPUs}, {Code: placement.WrongMode}}}, ""},
		"it fits":              {pools("topology"), "topology", placement.Verdict{Fits: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, OtherMode(test.pools, test.mode, test.verdict))
		})
	}
}
