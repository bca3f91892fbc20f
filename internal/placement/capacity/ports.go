package capacity

import "strings"

// PortTaken reports whether a host port, of one address or of all, is among those in use.
// As with kube-scheduler's NodePorts, all addresses meet every one.
func PortTaken[V any](used map[string]V, port string) bool {
	number, _, one := strings.Cut(port, "@")
	if _, taken := used[number]; taken || one {
		_, same := used[port]
		return taken || same
	}
	for other := range used {
		if strings.HasPrefix(other, number+"@") {
			return true
		}
	}
	return false
}
