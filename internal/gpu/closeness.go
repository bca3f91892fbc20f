package gpu

import "slices"

// numaNodes counts the NUMA nodes of the GPUs of a set; unknown counts as a node of its own.
func numaNodes(m Machine, s Set) int {
	var known [MaxGPUs]int
	nodes := known[:0]
	for rest := s; rest != 0; rest &= rest - 1 {
		if node := m.GPUs[rest.lowest()].NUMANode; !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return len(nodes)
}

// nearestNIC returns for each GPU the class of the path to its nearest network device.
func nearestNIC(m Machine) []Class {
	nearest := make([]Class, len(m.GPUs))
	for _, nic := range m.NICs {
		for gpu, link := range nic.Links {
			nearest[gpu] = max(nearest[gpu], link.Class)
		}
	}
	return nearest
}

// nicCloseness sums up the class of the path to the nearest network device over the GPUs of a set.
func nicCloseness(nearest []Class, s Set) int {
	sum := 0
	for rest := s; rest != 0; rest &= rest - 1 {
		sum += int(nearest[rest.lowest()])
	}
	return sum
}
