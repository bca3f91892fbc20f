package placement

import "strings"

// Delegated tells extended resources that others allocate from those that are the nodes' own.
type Delegated map[string]bool

// Unknown in a Delegated means that any resource that it does not name may be one that others allocate.
const Unknown = "*"

// Has reports whether others allocate a resource, or may. What Kubernetes itself counts, such as the disk, has no domain
// in its name, and nobody else allocates it.
func (d Delegated) Has(name string) bool {
	if has, known := d[name]; known || !d[Unknown] {
		return has
	}
	return strings.Contains(name, "/")
}
