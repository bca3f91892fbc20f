package packing

import "slices"

// Rank returns the nodes that have room for the one member to place, by name, the best first:
// [Packer.Place] takes the first.
func (p *Packer) Rank() (names []string) {
	if p.Invalid() != nil || len(p.Classes) != 1 {
		return nil
	}
	var ranked []*bucket
	for _, d := range p.domains(nil) {
		ranked = append(ranked, p.buckets(d, []int{1})...)
	}
	slices.SortFunc(ranked, (*bucket).compare)
	for _, b := range ranked {
		for _, at := range b.nodes {
			names = append(names, p.Nodes[at].Name)
		}
	}
	return names
}
