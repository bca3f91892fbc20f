package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Surroundings are what of a cluster, beside what its nodes have left, decides where pods can run:
// which volumes claims are bound to, how many of them nodes can attach, and which running pods keep others away.
type Surroundings struct {
	bound BoundVolume
	// nodes are the labels of nodes, by name.
	nodes map[string]map[string]string
	// attachments are what nodes attach of the volumes of CSI drivers.
	attachments attachments
	// keepers are the running pods that have required anti-affinity.
	keepers []keeper
}

// keeper is a pod with the pods that it keeps out of its domains.
type keeper struct {
	pod   *corev1.Pod
	apart []placement.Neighbor
}

// NewSurroundings reads them of a cluster's objects; counts tells which pods count.
func NewSurroundings(nodes []corev1.Node, csiNodes []storagev1.CSINode, pods []corev1.Pod, bound BoundVolume, counts func(*corev1.Pod) bool) *Surroundings {
	s := &Surroundings{bound: bound, nodes: map[string]map[string]string{}}
	if bound != nil {
		s.attachments = attachmentsOf(csiNodes, pods, bound, counts)
	}
	for i := range nodes {
		s.nodes[nodes[i].Name] = nodes[i].Labels
	}
	for i := range pods {
		if p := &pods[i]; KeepsAway(p.Spec) && p.Spec.NodeName != "" && !Finished(p) && counts(p) {
			s.keep(p)
		}
	}
	return s
}

// KeepsAway reports whether a pod has anti-affinity.
func KeepsAway(spec corev1.PodSpec) bool {
	return spec.Affinity != nil && spec.Affinity.PodAntiAffinity != nil
}

func (s *Surroundings) keep(p *corev1.Pod) {
	if apart := slices.DeleteFunc(neighbors(p), func(n placement.Neighbor) bool { return !n.Apart }); len(apart) > 0 {
		s.keepers = append(s.keepers, keeper{p, apart})
	}
}

// With returns them with nodes that join, and pods that run there then.
func (s *Surroundings) With(nodes []placement.Node, pods []*corev1.Pod) *Surroundings {
	joined := &Surroundings{bound: s.bound, attachments: s.attachments, nodes: maps.Clone(s.nodes), keepers: slices.Clone(s.keepers)}
	for _, n := range nodes {
		joined.nodes[n.Name] = n.Labels
	}
	for _, p := range pods {
		joined.keep(p)
	}
	return joined
}

// Concern reports whether they may keep some pods from some nodes: pods that have volumes, or all.
func (s *Surroundings) Concern(volumes bool) bool {
	return s != nil && (len(s.keepers) > 0 || volumes && s.bound != nil)
}

// restrict leaves members the nodes on which they can run.
func (s *Surroundings) restrict(members []Member) {
	if s == nil {
		return
	}
	if s.bound != nil {
		RestrictToVolumes(members, s.bound)
	}
	for i := range members {
		m := &members[i]
		for _, k := range s.keepers {
			refuse(&m.Role, s.keptFrom(k, m.Pod))
		}
		for _, nodes := range s.attachments.full(m.Pod, s.bound) {
			refuse(&m.Role, nodes)
		}
	}
}

// refuse keeps a role from some nodes.
func refuse(role *placement.Role, nodes []string) {
	for _, node := range nodes {
		if role.NodeLimits == nil {
			role.NodeLimits = map[string]int{}
		}
		role.NodeLimits[node] = 0
	}
}

// keptFrom lists the nodes from which a running pod keeps another one.
func (s *Surroundings) keptFrom(k keeper, p *corev1.Pod) (nodes []string) {
	for _, rule := range k.apart {
		domain, ok := s.nodes[k.pod.Spec.NodeName][rule.Label]
		if !ok || !rule.Pods.Selects(p.Namespace, p.Labels) {
			continue
		}
		for name, labels := range s.nodes {
			if value, ok := labels[rule.Label]; ok && value == domain {
				nodes = append(nodes, name)
			}
		}
	}
	return nodes
}

// Restricts says in words what keeps some of the pods from some nodes, "" for nothing.
func (s *Surroundings) Restricts(pods []*corev1.Pod) string {
	if s == nil {
		return ""
	}
	var texts []string
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	for _, p := range pods {
		for _, mounted := range p.Spec.Volumes {
			if mounted.PersistentVolumeClaim == nil || s.bound == nil {
				continue
			}
			claim := mounted.PersistentVolumeClaim.ClaimName
			if volume := s.bound(p.Namespace, claim); volume != nil && reach(volume) != nil {
				add("claim %s is bound to volume %s, which not every node reaches", claim, volume.Name)
			}
		}
		full := s.attachments.full(p, s.bound)
		for _, driver := range slices.Sorted(maps.Keys(full)) {
			add("nodes that attach no more volumes of the CSI driver %s: %s", driver, strings.Join(full[driver], ", "))
		}
		for _, k := range s.keepers {
			if nodes := s.keptFrom(k, p); len(nodes) > 0 {
				add("pod %s/%s keeps them from %s by its anti-affinity", k.pod.Namespace, k.pod.Name, countNodes(len(nodes)))
			}
		}
	}
	return strings.Join(texts, "; ")
}

func countNodes(n int) string {
	if n == 1 {
		return "its node"
	}
	return fmt.Sprintf("%d nodes", n)
}
