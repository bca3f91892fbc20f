package placement

import "fmt"

// evicts says why a pod of the view cannot stay, "" when it can.
func (v *View) evicts(p *Pod) string {
	if v.pods[p.ID] == nil {
		return ""
	}
	n := v.state(p.Node)
	if n == nil {
		return fmt.Sprintf("node %s is gone", p.Node)
	}
	if why := n.evicts(p); why != "" {
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
