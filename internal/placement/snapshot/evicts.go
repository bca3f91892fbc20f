package snapshot

import (
	"fmt"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Evicts says why a pod of the view cannot stay, "" when it can.
func (v *View) Evicts(p *placement.Pod) string {
	if v.pods[p.ID] == nil {
		return ""
	}
	n := v.State(p.Node)
	if n == nil {
		return fmt.Sprintf("node %s is gone", p.Node)
	}
	if why := n.Evicts(p); why != "" {
		return why
	}
	if v.quota == nil || p.Leaf == "" {
		return ""
	}
	if !v.quota.HasLeaf(p.Leaf) {
		return fmt.Sprintf("quota leaf %s is gone", p.Leaf)
	}
	if over := v.quota.Over(p.Leaf, p.Request.Charge()); over != nil {
		return over.String()
	}
	return ""
}
