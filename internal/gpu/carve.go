package gpu

// Carve splits a set into members of the given sizes (Σ sizes = s.Len()), in order,
// so that each member's own cards have the best ring among themselves. It returns
// nil when the sizes do not add up to the set or one is negative.
func (t *Table) Carve(s Set, sizes []int) []Set {
	s &= Full(len(t.machine.Cards))
	total := 0
	for _, k := range sizes {
		if k < 0 {
			return nil
		}
		total += k
	}
	if total != s.Len() {
		return nil
	}
	members := make([]Set, len(sizes))
	for i, k := range sizes {
		if k > 0 {
			members[i] = t.sets.best(s, k)
			s &^= members[i]
		}
	}
	return members
}
