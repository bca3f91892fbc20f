package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Problem is one broken rule of a quota tree.
type Problem struct {
	// Path names the node from the root, "root/research/vision".
	Path string
	// Field is what breaks the rule: "name", "min", "max", "maxJobs", "lendLimit",
	// "namespaces", "children".
	Field string
	// Resource is the resource concerned, "" when the rule is not about one.
	Resource string
	// Text says what is wrong and what to do, without the path.
	Text string
	// Warning marks a rule on which the vendor's documents contradict each other
	// (Σ children's min ≤ parent's min, child's max ≤ parent's max): the tree is
	// usable all the same.
	Warning bool
}

// Invalid is the error of [New].
type Invalid struct{ Problems []Problem }

func (e *Invalid) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		if !p.Warning {
			lines = append(lines, p.Path+": "+p.Text)
		}
	}
	return "quota tree is invalid: " + strings.Join(lines, "; ")
}

// Check lists every broken rule of a tree, warnings included, in tree order.
func Check(root Spec) []Problem {
	root.Name = RootName
	c := checker{names: map[string]string{}, namespaces: map[string]string{}}
	c.node(&root, RootName)
	for _, r := range named(root.Min, root.Max) {
		low, hasMin := root.Min[r]
		high, hasMax := root.Max[r]
		if low != high || hasMin != hasMax {
			c.add(RootName, "min", r, "min and max of the root must be equal, but %s has min %s and max %s",
				r, amount(low, hasMin), amount(high, hasMax))
		}
	}
	return c.problems
}

type checker struct {
	problems   []Problem
	names      map[string]string // name -> path
	namespaces map[string]string // namespace -> path
}

func (c *checker) add(path, field, resource, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: path, Field: field, Resource: resource, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(path, field, resource, format string, args ...any) {
	c.add(path, field, resource, format, args...)
	c.problems[len(c.problems)-1].Warning = true
}

func (c *checker) node(s *Spec, path string) {
	c.name(s, path)
	c.amounts(s, path)
	c.ownedNamespaces(s, path)
	c.children(s, path)
	for i := range s.Children {
		child := &s.Children[i]
		c.node(child, path+"/"+child.Name)
	}
}

func (c *checker) name(s *Spec, path string) {
	other, taken := c.names[s.Name]
	switch {
	case s.Name == "":
		c.add(path, "name", "", "the name is empty; every node of the tree needs a name of its own")
	case strings.Contains(s.Name, "/"):
		c.add(path, "name", "", "the name %q must not contain a slash, which separates names in a path", s.Name)
	case taken && other == RootName:
		c.add(path, "name", "", "the name %q belongs to the topmost node; choose another", RootName)
	case taken:
		c.add(path, "name", "", "the name %q is already used by %s; names are unique in the whole tree", s.Name, other)
	}
	if !taken {
		c.names[s.Name] = path
	}
}

func (c *checker) amounts(s *Spec, path string) {
	fields := []struct {
		name      string
		resources Resources
	}{{"min", s.Min}, {"max", s.Max}, {"lendLimit", s.LendLimit}}
	for _, f := range fields {
		for _, r := range named(f.resources) {
			if f.resources[r] < 0 {
				c.add(path, f.name, r, "%s of %s is %d; it must not be negative", f.name, r, f.resources[r])
			}
		}
	}
	if s.MaxJobs < 0 {
		c.add(path, "maxJobs", "", "the limit of jobs is %d; it must not be negative (0 means unlimited)", s.MaxJobs)
	}
	for _, r := range named(s.Min) {
		if high, ok := s.Max[r]; ok && s.Min[r] > high {
			c.add(path, "min", r, "min of %s is %d, above its max %d; lower min or raise max", r, s.Min[r], high)
		}
	}
	for _, r := range named(s.LendLimit) {
		if s.LendLimit[r] > s.Min[r] {
			c.add(path, "lendLimit", r, "lend limit of %s is %d, above min %d; only what is guaranteed can be lent", r, s.LendLimit[r], s.Min[r])
		}
	}
}

func (c *checker) ownedNamespaces(s *Spec, path string) {
	if len(s.Children) > 0 && len(s.Namespaces) > 0 {
		c.add(path, "namespaces", "", "only leaves have namespaces; move %s to a leaf below", strings.Join(s.Namespaces, ", "))
		return
	}
	for _, ns := range s.Namespaces {
		other, taken := c.namespaces[ns]
		switch {
		case ns == "":
			c.add(path, "namespaces", "", "a namespace is empty")
		case taken && other == path:
			c.add(path, "namespaces", "", "namespace %q is listed twice", ns)
		case taken:
			c.add(path, "namespaces", "", "namespace %q already belongs to %s; a namespace has one leaf", ns, other)
		default:
			c.namespaces[ns] = path
		}
	}
}

// children compares a node's amounts with those of its children. The rules are those
// of "Capacity Scheduling" (2021); a newer page prints the inequalities reversed,
// therefore they only warn.
func (c *checker) children(s *Spec, path string) {
	if len(s.Children) == 0 {
		return
	}
	sum := Resources{}
	for _, child := range s.Children {
		for r, amount := range child.Min {
			sum[r] += amount
		}
		for _, r := range named(child.Max) {
			if high, ok := s.Max[r]; ok && child.Max[r] > high {
				c.warn(path+"/"+child.Name, "max", r, "max of %s is %d, above the parent's max %d; the parent's limit binds first", r, child.Max[r], high)
			}
		}
	}
	for _, r := range named(sum) {
		if sum[r] > s.Min[r] {
			c.warn(path, "children", r, "the children's min of %s add up to %d, above the parent's min %d; not all of them can be guaranteed", r, sum[r], s.Min[r])
		}
	}
}

// named returns the names of all resources in sorted order.
func named(lists ...Resources) []string {
	all := Resources{}
	for _, r := range lists {
		maps.Copy(all, r)
	}
	return slices.Sorted(maps.Keys(all))
}

func amount(v int64, ok bool) string {
	if !ok {
		return "none"
	}
	return fmt.Sprint(v)
}
