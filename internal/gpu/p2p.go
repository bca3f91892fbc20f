package gpu

import (
	"fmt"
	"slices"
)

// P2PStatus says whether a GPU can reach another's memory in some way, or why not.
// Names are those of `nvidia-smi topo -p2p`.
type P2PStatus uint8

// States of a pair of GPUs. [P2PChipset] and [P2PTopology] are of the path between
// them, [P2PGPU], [P2PDisabled] and [P2PNotSupported] of the GPUs and their driver.
const (
	P2PUnknown P2PStatus = iota
	P2PSelf
	P2POK
	P2PChipset
	P2PGPU
	P2PTopology
	P2PDisabled
	P2PNotSupported
)

var p2pNames = [...]string{
	P2PUnknown: "U", P2PSelf: "X", P2POK: "OK", P2PChipset: "CNS", P2PGPU: "GNS", P2PTopology: "TNS", P2PDisabled: "DR", P2PNotSupported: "NS",
}

// ParseP2PStatus reads one cell of the matrix of `nvidia-smi topo -p2p`.
func ParseP2PStatus(s string) (P2PStatus, error) {
	if i := slices.Index(p2pNames[:], s); i >= 0 {
		return P2PStatus(i), nil
	}
	return 0, fmt.Errorf("unknown peer-to-peer status %q: want one of %v", s, p2pNames)
}

// String returns the cell as [ParseP2PStatus] reads it.
func (s P2PStatus) String() string {
	if int(s) >= len(p2pNames) {
		return fmt.Sprintf("P2PStatus(%d)", uint8(s))
	}
	return p2pNames[s]
}

// MarshalText implements [encoding.TextMarshaler] with [P2PStatus.String].
func (s P2PStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseP2PStatus].
func (s *P2PStatus) UnmarshalText(text []byte) error {
	status, err := ParseP2PStatus(string(text))
	*s = status
	return err
}

// P2P says in which ways GPUs reach each other's memory, from the GPU of the row to
// that of the column, by position in [Machine.GPUs]. Nil is unknown.
type P2P struct {
	Read    [][]P2PStatus `json:"read,omitempty"`
	Write   [][]P2PStatus `json:"write,omitempty"`
	NVLink  [][]P2PStatus `json:"nvlink,omitempty"`
	Atomics [][]P2PStatus `json:"atomics,omitempty"`
}

// NoP2P is that of n GPUs whose driver refuses peer-to-peer transfers, as it does on
// consumer GPUs.
func NoP2P(n int) P2P {
	refused := func() [][]P2PStatus {
		var rows [][]P2PStatus
		for i := range n {
			row := slices.Repeat([]P2PStatus{P2PNotSupported}, n)
			row[i] = P2PSelf
			rows = append(rows, row)
		}
		return rows
	}
	return P2P{Read: refused(), Write: refused()}
}

// At is that of the GPUs at some positions; of a GPU at -1 nothing is known.
func (p P2P) At(positions []int) P2P {
	for _, matrix := range p.matrices() {
		if *matrix == nil {
			continue
		}
		rows := make([][]P2PStatus, len(positions))
		for i, from := range positions {
			rows[i] = make([]P2PStatus, len(positions))
			for k, to := range positions {
				if from >= 0 && to >= 0 {
					rows[i][k] = (*matrix)[from][to]
				}
			}
			rows[i][i] = P2PSelf
		}
		*matrix = rows
	}
	return p
}

// refused tells whether the GPUs at two positions, or their driver, refuse to read or
// write each other's memory, wherever they are: data then goes through host memory.
// What a path does not support is counted by its class.
func (p P2P) refused(i, j int) bool {
	for _, matrix := range [][][]P2PStatus{p.Read, p.Write} {
		if matrix == nil {
			continue
		}
		for _, status := range []P2PStatus{matrix[i][j], matrix[j][i]} {
			if status == P2PGPU || status == P2PDisabled || status == P2PNotSupported {
				return true
			}
		}
	}
	return false
}

// RefusesP2P tells whether no two GPUs without NVLink reach each other's memory.
func (m Machine) RefusesP2P() bool {
	refused := 0
	for i, row := range m.Links {
		for j := range i {
			switch {
			case row[j].Class == NVLink && m.Links[j][i].Class == NVLink:
			case !m.P2P.refused(i, j):
				return false
			default:
				refused++
			}
		}
	}
	return refused > 0
}

// matrices are the fields, to be changed.
func (p *P2P) matrices() map[string]*[][]P2PStatus {
	return map[string]*[][]P2PStatus{"read": &p.Read, "write": &p.Write, "nvlink": &p.NVLink, "atomics": &p.Atomics}
}

func (p P2P) validate(n int) (errs []error) {
	for _, name := range []string{"read", "write", "nvlink", "atomics"} {
		matrix := *p.matrices()[name]
		if matrix == nil {
			continue
		}
		if len(matrix) != n {
			errs = append(errs, fmt.Errorf("p2p.%s has %d rows: want one per GPU, %d", name, len(matrix), n))
			continue
		}
		for i, row := range matrix {
			if len(row) != n {
				errs = append(errs, fmt.Errorf("p2p.%s row %d has %d cells: want one per GPU, %d", name, i, len(row), n))
			}
		}
	}
	return errs
}
