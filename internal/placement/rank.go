package placement

import "slices"

// Rank returns the nodes on which a pod on its own fits, by name, the best first: [View.Place]
// takes the first. It is for those who have other reasons to choose a node, too.
func (v *View) Rank(g Gang) []string {
	p := newPlanner(v.seen(&g, nil), g)
	if p.invalid() != nil || len(p.classes) != 1 {
		return nil
	}
	var ranked []*bucket
	for _, d := range p.domains(nil) {
		ranked = append(ranked, p.buckets(d, []int{1})...)
	}
	slices.SortFunc(ranked, (*bucket).compare)
	var names []string
	for _, b := range ranked {
		for _, at := range b.nodes {
			names = append(names, p.nodes[at].Name)
		}
	}
	return names
}
