package inventory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// ReasonInvalidRoleMinimum is that what a gang says of the minimum of a role cannot be used.
const ReasonInvalidRoleMinimum = "InvalidRoleMinimum"

// part is a role of a gang with a minimum of its own.
type part struct {
	role                             string
	minimum, present, running, gated int
}

// roleName is the role of a pod, in the words of its training operator or its own.
func roleName(p *corev1.Pod) string {
	name, _ := Replica(p)
	return strings.ToLower(cmp.Or(name, p.Labels[contract.RoleLabel], defaultRole))
}

// baseName is the role of which pods of different shapes make several.
func baseName(role string) string {
	base, _, _ := strings.Cut(role, ".")
	return base
}

// declaredParts reads the minima of roles, by name: from the gang's PodGroup, else from the
// labels of the pods. Late members have none.
func declaredParts(members []Member, podGroup *unstructured.Unstructured) ([]part, []Problem) {
	minima := map[string]int{}
	var problems []Problem
	text := ""
	if podGroup != nil {
		text = podGroup.GetAnnotations()[contract.RoleMinLabel]
	}
	if text != "" {
		var given map[string]int
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			problems = append(problems, Problem{Reason: ReasonInvalidRoleMinimum, Text: fmt.Sprintf(
				"annotation %s of PodGroup %s is no JSON object of numbers by role, and is left aside", contract.RoleMinLabel, podGroup.GetName())})
			text = ""
		}
		for role, minimum := range given {
			if minimum > 0 {
				minima[strings.ToLower(role)] = minimum
			}
		}
	}
	for i := range members {
		m := &members[i]
		label, ok := m.Pod.Labels[contract.RoleMinLabel]
		if !ok || text != "" {
			continue
		}
		n, err := strconv.Atoi(label)
		if err != nil || n <= 0 {
			problems = append(problems, Problem{Reason: ReasonInvalidRoleMinimum, Text: fmt.Sprintf(
				"label %s is %q, not a positive number, and is left aside", contract.RoleMinLabel, label)})
			continue
		}
		minima[m.Role.Name] = max(minima[m.Role.Name], n)
	}
	var parts []part
	for _, role := range slices.Sorted(maps.Keys(minima)) {
		parts = append(parts, part{role: role, minimum: minima[role]})
	}
	return parts, slices.CompactFunc(problems, func(a, b Problem) bool { return a == b })
}

// masters are the roles whose one pod the others of a job meet at: in PyTorchJob and XGBoostJob,
// and in TFJob.
var masters = []string{contract.ReplicaMaster, contract.ReplicaChief}

// needMaster has a gang that needs only some of its members, as declared, need its master, unless
// it has a minimum for that role itself: workers would hold their GPUs and wait for it.
func (c *MemberCounts) needMaster(members []Member, declared int) {
	alive, present := 0, map[string]int{}
	for i := range members {
		if m := &members[i]; !m.left() || m.succeeded() {
			alive++
			present[m.Role.Name]++
		}
	}
	if declared <= 0 || declared >= alive {
		return
	}
	for _, role := range masters {
		said := slices.ContainsFunc(c.parts, func(p part) bool { return p.role == role })
		if present[role] == 1 && !said {
			c.parts = append(c.parts, part{role: role, minimum: 1})
		}
	}
}

// part returns the part that a member belongs to, nil for none.
func (c *MemberCounts) part(m *Member) *part {
	for i := range c.parts {
		if c.parts[i].role == m.Role.Name {
			return &c.parts[i]
		}
	}
	return nil
}

// reconcileParts drops the parts that need nobody any more, and has the gang need as many members
// as they do together, when it says how many it needs.
func (c *MemberCounts) reconcileParts() {
	c.parts = slices.DeleteFunc(c.parts, func(p part) bool { return p.minimum <= 0 })
	together := 0
	for _, p := range c.parts {
		together += p.minimum
	}
	if c.Minimum > 0 {
		c.Minimum = max(c.Minimum, together)
	}
}

// missing is how many members must still appear. A gang that does not say how many it needs
// starts with all that are there.
func (c *MemberCounts) missing() int {
	short := 0
	for _, p := range c.parts {
		short += max(p.minimum-p.present, 0)
	}
	least := c.Minimum - c.Present
	if c.Minimum == 0 && c.Running == 0 {
		least = c.gated
	}
	return max(least, short, 0)
}

// areGated reports whether all those that are missing, of each role, are there and cannot be placed yet.
func (c *MemberCounts) areGated(missing int) bool {
	short := func(p part) bool { return p.minimum-p.present > p.gated }
	return missing <= c.gated && !slices.ContainsFunc(c.parts, short)
}

// ofRoles says of which roles members must still appear, "" when it may be any.
func (c *MemberCounts) ofRoles() string {
	var roles []string
	for _, p := range c.parts {
		if missing := p.minimum - p.present; missing > 0 {
			roles = append(roles, fmt.Sprintf("%d of role %s", missing, p.role))
		}
	}
	if roles == nil {
		return ""
	}
	return ", " + strings.Join(roles, " and ") + ","
}

// subgroups are the parts for the planner, which knows roles by the shapes of their pods.
func subgroups(parts []part, roles []placement.Role) []placement.Subgroup {
	var list []placement.Subgroup
	for _, p := range parts {
		s := placement.Subgroup{Name: p.role, Minimum: p.minimum}
		for _, role := range roles {
			if !role.Late && baseName(role.Name) == p.role {
				s.Roles = append(s.Roles, role.Name)
			}
		}
		if len(s.Roles) > 0 {
			list = append(list, s)
		}
	}
	return list
}
