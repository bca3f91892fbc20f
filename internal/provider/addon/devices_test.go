package addon

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Pools that Terraform visits speak for themselves.
func TestUnpinned(t *testing.T) {
	pool := func(change func(*acs.NodePool)) acs.NodePool {
		var p acs.NodePool
		p.Info = acs.NodePoolInfo{ID: "np", Name: "fast"}
		p.ScalingGroup.InstanceTypes = []string{"ecs.gn6v-c10g1.20xlarge", "ecs.ebmgn8is.32xlarge"}
		p.Status.Total, p.Status.State = 1, acs.PoolActive
		change(&p)
		return p
	}
	mine := func(p *acs.NodePool) { p.ScalingGroup.Tags = []acs.Tag{{Key: contract.OwnerTag, Value: "me"}} }
	for name, test := range map[string]struct {
		pool             acs.NodePool
		targets, visited bool
		named            bool
	}{
		"another's":                    {pool(func(*acs.NodePool) {}), false, false, true},
		"another's, with -target":      {pool(func(*acs.NodePool) {}), true, false, true},
		"of this configuration":        {pool(mine), false, false, false},
		"of the rest, with -target":    {pool(mine), true, false, true},
		"visited, with -target":        {pool(mine), true, true, false},
		"visited, without a stamp yet": {pool(func(*acs.NodePool) {}), false, true, false},
		"that goes":                    {pool(func(p *acs.NodePool) { p.Status.State = acs.PoolDeleting }), false, false, false},
		"without nodes":                {pool(func(p *acs.NodePool) { p.Status.Total = 0 }), false, false, false},
		"that pins CPUs":               {pool(func(p *acs.NodePool) { p.KubernetesConfig.CPUPolicy = acs.CPUPolicyStatic }), false, false, false},
		"without devices":              {pool(func(p *acs.NodePool) { p.ScalingGroup.InstanceTypes = []string{"ecs.gn6v-c10g1.20xlarge"} }), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &addon[anyAddon, *anyAddon]{}
			r.Session = session.New(session.Settings{Owner: "me", ClusterID: "c", Targets: test.targets})
			if test.visited {
				r.Session.Ledger.VisitPool("c/np")
			}
			assert.Equal(t, test.named, len(r.unpinned([]acs.NodePool{test.pool})) == 1)
		})
	}
}
