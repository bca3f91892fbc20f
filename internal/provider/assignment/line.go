package assignment

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Lines says of each node in one line which members run there, as in
// "master-0 GPU 0; worker-0..2 GPU 1-3: 150 GB/s, 4 NVLink rings". Members that follow
// each other share the GPUs that are named with them evenly, in their order. A bandwidth
// is that of all members before it.
func Lines(models []Model) map[string]string {
	nodes := map[string][]Model{}
	for _, m := range models {
		nodes[m.Node] = append(nodes[m.Node], m)
	}
	lines := map[string]string{}
	for node, members := range nodes {
		slices.SortFunc(members, func(a, b Model) int {
			return cmp.Or(cmp.Compare(b.RingGBps, a.RingGBps), cmp.Compare(b.ring(), a.ring()), inOrder(a.Member, b.Member))
		})
		lines[node] = line(members)
	}
	return lines
}

// line describes members on one node, those without a ring last.
func line(members []Model) string {
	var parts []string
	for len(members) > 0 {
		n := together(members)
		first, last := members[0], members[n-1]
		text := first.Member
		if n > 1 {
			_, index := split(last.Member)
			text += ".." + strconv.Itoa(index)
		}
		var gpus []int64
		for _, m := range members[:n] {
			gpus = append(gpus, m.GPUs...)
		}
		if len(gpus) > 0 {
			text += " GPU " + Ranges(gpus)
		}
		if members = members[n:]; first.RingGBps > 0 && (len(members) == 0 || members[0].ring() != first.ring()) {
			text += ": " + first.ring()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// together counts the first members that can be told in one: indexes follow each other,
// and so do their GPUs.
func together(members []Model) int {
	n := 1
	for ; n < len(members); n++ {
		a, b := members[n-1], members[n]
		roleA, indexA := split(a.Member)
		roleB, indexB := split(b.Member)
		follows := indexA >= 0 && roleA == roleB && indexB == indexA+1
		ascending := len(a.GPUs) == 0 || len(b.GPUs) > 0 && b.GPUs[0] > a.GPUs[len(a.GPUs)-1]
		if !follows || !ascending || len(a.GPUs) != len(b.GPUs) || a.ring() != b.ring() {
			break
		}
	}
	return n
}

// ring is the bandwidth in words, "" for none.
func (m Model) ring() string {
	switch {
	case m.RingGBps == 0:
		return ""
	case len(m.GPUs) == 0:
		return decimal(m.RingGBps) + " GB/s guaranteed"
	case m.NVLinkRings == 0:
		return decimal(m.RingGBps) + " GB/s over PCIe"
	case m.NVLinkRings == 1:
		return decimal(m.RingGBps) + " GB/s, 1 NVLink ring"
	}
	return fmt.Sprintf("%s GB/s, %d NVLink rings", decimal(m.RingGBps), m.NVLinkRings)
}

func decimal(f float64) string { return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) }

// From reads a placement as [Lines] wrote it, in the order of roles and indexes.
func From(lines map[string]string) ([]Model, error) {
	var models []Model
	for _, node := range slices.Sorted(maps.Keys(lines)) {
		members, err := parse(lines[node])
		if err != nil {
			return nil, fmt.Errorf("placement on node %s: %q: %w", node, lines[node], err)
		}
		for _, m := range members {
			m.Node = node
			models = append(models, m)
		}
	}
	slices.SortFunc(models, func(a, b Model) int { return inOrder(a.Member, b.Member) })
	return models, nil
}

var part = regexp.MustCompile(`^(\S+?)(?:\.\.([0-9]{1,6}))?(?: GPU ([0-9,-]+))?(?:: ([0-9.]+) GB/s(?: guaranteed| over PCIe|, ([0-9]+) NVLink rings?))?$`)

// parse reads the line of one node.
func parse(text string) ([]Model, error) {
	var models []Model
	var ring Model
	for _, text := range slices.Backward(strings.Split(text, "; ")) {
		found := part.FindStringSubmatch(text)
		if found == nil {
			return nil, fmt.Errorf("%q is not of the form \"worker-0..3 GPU 0-3: 150 GB/s, 4 NVLink rings\"", text)
		}
		if found[4] != "" {
			var err error
			if ring.RingGBps, err = strconv.ParseFloat(found[4], 64); err != nil {
				return nil, err
			}
			ring.NVLinkRings = 0
			if found[5] != "" {
				if ring.NVLinkRings, err = strconv.ParseInt(found[5], 10, 64); err != nil {
					return nil, err
				}
			}
		}
		members, err := membersOf(found[1], found[2])
		if err != nil {
			return nil, err
		}
		gpus, err := FromRanges(found[3])
		if err != nil {
			return nil, err
		}
		each := len(gpus) / len(members)
		if each*len(members) != len(gpus) {
			return nil, fmt.Errorf("%d GPUs are not shared evenly by %d members", len(gpus), len(members))
		}
		for i, member := range members {
			models = append(models, Model{
				Member: member, GPUs: gpus[i*each : (i+1)*each : (i+1)*each], RingGBps: ring.RingGBps, NVLinkRings: ring.NVLinkRings,
			})
		}
	}
	return models, nil
}

// membersOf lists the members from the first to the index of the last, "" for one.
func membersOf(first, last string) ([]string, error) {
	if last == "" && !strings.Contains(first, "..") {
		return []string{first}, nil
	}
	role, from := split(first)
	to, err := strconv.Atoi(last)
	if err != nil || from < 0 || to < from {
		return nil, fmt.Errorf("%s..%s are no members", first, last)
	}
	var members []string
	for i := from; i <= to; i++ {
		members = append(members, fmt.Sprintf("%s-%d", role, i))
	}
	return members, nil
}
