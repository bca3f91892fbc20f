package placement

import "slices"

// Selector selects pods by their namespace and labels.
type Selector struct {
	// Namespaces are those of the pods; nil selects pods of all namespaces.
	Namespaces []string
	// Requirements must all be met; none selects every pod.
	Requirements []Requirement
}

// Neighbor is a rule about the pods in a member's domain, running ones and members of
// the gang alike: Kubernetes' required affinity between pods.
type Neighbor struct {
	// Label is the node label whose values are the domains.
	Label string
	Pods  Selector
	// Apart means that none of the pods may run in the domain of a member; otherwise one
	// must, unless the member is the first of them anywhere.
	Apart bool
}

// TopologySpread is a rule about how evenly pods are spread over domains: Kubernetes' topology
// spread constraints. In no domain may there be more than MaxSkew pods more than in the
// one with the fewest.
type TopologySpread struct {
	// Label is the node label whose values are the domains.
	Label   string
	Pods    Selector
	MaxSkew int
	// MinDomains is how many domains there must be for that the fewest pods count; with
	// less it is as if one were empty. 0 sets no limit.
	MinDomains int
	// Soft makes the rule a wish: it is kept when all members get a place by it.
	Soft bool
	// AnyAffinity counts domains, too, whose nodes the role's selector and affinity rule
	// out; HonorTaints leaves out those whose nodes have a taint that it does not tolerate.
	AnyAffinity, HonorTaints bool
}

// Preference is a wish for nodes that meet all requirements: Kubernetes' preferred node
// affinity. Weights of the preferences that a node meets add up.
type Preference struct {
	Weight       int64
	Requirements []Requirement
}

// Selects reports whether a pod is one of those.
func (s *Selector) Selects(namespace string, labels map[string]string) bool {
	if s.Namespaces != nil && !slices.Contains(s.Namespaces, namespace) {
		return false
	}
	for _, r := range s.Requirements {
		if value, ok := labels[r.Key]; !r.meets(value, ok) {
			return false
		}
	}
	return true
}

// MustBeNear reports whether the role's members have to run near a pod with these labels, or near another
// one of its kind: whether all rules select it that say near which pods they run. It is false for a role
// without such a rule.
func (r *Role) MustBeNear(namespace string, labels map[string]string) bool {
	some := false
	for i := range r.Neighbors {
		if term := &r.Neighbors[i]; !term.Apart {
			if some = true; !term.Pods.Selects(namespace, labels) {
				return false
			}
		}
	}
	return some
}

// DependsOn reports whether members of the gang have to run near a pod, or near another one of its kind, of
// which the gang itself has none.
func (g *Gang) DependsOn(pod *Pod) bool {
	return slices.ContainsFunc(g.Roles, func(r Role) bool { return r.MustBeNear(pod.Namespace, pod.Labels) && !g.SufficesFor(&r) })
}

// SufficesFor reports whether members of the gang itself are pods near which those of a role have to run.
func (g *Gang) SufficesFor(r *Role) bool {
	return slices.ContainsFunc(g.Roles, func(own Role) bool { return r.MustBeNear(NamespaceOf(g.ID), own.Labels) })
}

// Neighborly reports whether the place of the role's members depends on other pods.
func (r *Role) Neighborly(soft bool) bool {
	return len(r.Neighbors) > 0 || slices.ContainsFunc(r.Spreads, func(s TopologySpread) bool { return soft || !s.Soft })
}

// Weight is how much the role wishes for a node.
func (r *Role) Weight(n *Node) (sum int64) {
	for _, wish := range r.Preferred {
		if n.meetsAll(wish.Requirements) {
			sum += wish.Weight
		}
	}
	return sum
}
