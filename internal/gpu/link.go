package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// Class is the kind of path between two GPUs, from the slowest to the fastest.
// The names are those of `nvidia-smi topo -m`.
type Class uint8

// Path classes. Order matters: a higher class is a shorter path.
const (
	// None: the two GPUs cannot reach each other peer to peer, or the path is unknown.
	None Class = iota
	// SYS crosses the interconnect between NUMA nodes (QPI, UPI).
	SYS
	// NODE crosses the interconnect between PCIe host bridges within one NUMA node.
	NODE
	// PHB crosses one PCIe host bridge.
	PHB
	// PXB crosses several PCIe bridges, but no host bridge.
	PXB
	// PIX crosses at most one PCIe bridge.
	PIX
	// NVLink is a bonded set of NVLinks; [Link.Lanes] counts them.
	NVLink
	// Self is the diagonal of the matrix.
	Self
)

var classNames = [...]string{None: "N-A", SYS: "SYS", NODE: "NODE", PHB: "PHB", PXB: "PXB", PIX: "PIX", NVLink: "NV", Self: "X"}

// String returns the name that `nvidia-smi topo -m` prints; "NV" for NVLink, "N-A" for None.
func (c Class) String() string {
	if int(c) >= len(classNames) {
		return fmt.Sprintf("Class(%d)", uint8(c))
	}
	return classNames[c]
}

// Link is how two GPUs of one machine are connected.
type Link struct {
	Class Class
	// Lanes is the number of NVLinks between the two GPUs; 0 unless Class is NVLink.
	Lanes int
}

// maxLanes bounds what ParseLink takes for a count of NVLinks; the most that a
// GPU has had is 18 (NVLink 4 and 5).
const maxLanes = 64

// ParseLink reads one cell of the matrix of `nvidia-smi topo -m`: "X", "NV1" to
// "NV64", "PIX", "PXB", "PHB", "NODE", "SYS", and "N-A" or "N/A" for an unknown path.
func ParseLink(s string) (Link, error) {
	if s == "N/A" {
		return Link{}, nil
	}
	for c, name := range classNames {
		if s == name && Class(c) != NVLink {
			return Link{Class: Class(c)}, nil
		}
	}
	if digits, ok := strings.CutPrefix(s, classNames[NVLink]); ok {
		lanes, err := strconv.Atoi(digits)
		if err == nil && lanes >= 1 && lanes <= maxLanes && strconv.Itoa(lanes) == digits {
			return Link{Class: NVLink, Lanes: lanes}, nil
		}
	}
	return Link{}, fmt.Errorf("unknown link %q: want X, NV1 to NV%d, PIX, PXB, PHB, NODE, SYS or N-A", s, maxLanes)
}

// String returns the cell as [ParseLink] reads it: "NV2", "PIX", "X", "N-A".
func (l Link) String() string {
	if l.Class == NVLink {
		return classNames[NVLink] + strconv.Itoa(l.Lanes)
	}
	return l.Class.String()
}

// MarshalText implements [encoding.TextMarshaler] with [Link.String].
func (l Link) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseLink].
func (l *Link) UnmarshalText(text []byte) error {
	link, err := ParseLink(string(text))
	if err != nil {
		return err
	}
	*l = link
	return nil
}

// weaker returns the slower of two links: a driver may report the two directions
// of one path differently, and a ring needs both.
func weaker(a, b Link) Link {
	if a.Class != b.Class {
		if a.Class < b.Class {
			return a
		}
		return b
	}
	return Link{Class: a.Class, Lanes: min(a.Lanes, b.Lanes)}
}
