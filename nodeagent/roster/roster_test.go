package roster_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/roster"
)

// reading is what a driver says of a machine with these GPUs, of which it numbers those
// that it lists; every pair of GPUs has as many NVLinks as their letters are apart.
func reading(uuids ...string) hardware.Reading {
	r := hardware.Reading{Machine: gpu.Machine{NVLinkGBps: 25}}
	for i, uuid := range uuids {
		r.Machine.GPUs = append(r.Machine.GPUs, gpu.GPU{Index: i, UUID: uuid, PCIBusID: address(uuid)})
		row := make([]gpu.Link, len(uuids))
		for j, other := range uuids {
			row[j] = gpu.Link{Class: gpu.Self}
			if i != j {
				row[j] = gpu.Link{Class: gpu.NVLink, Lanes: int(max(uuid[0], other[0]) - min(uuid[0], other[0]))}
			}
		}
		r.Machine.Links = append(r.Machine.Links, row)
		r.GPUs = append(r.GPUs, hardware.GPU{NVLinks: 6})
	}
	return r
}

func address(uuid string) string { return fmt.Sprintf("0000:0%s:00.0", uuid[:1]) }

// names lists the GPUs as "index uuid".
func names(r hardware.Reading) []string {
	var all []string
	for _, c := range r.Machine.GPUs {
		all = append(all, fmt.Sprintf("%d %s", c.Index, hardware.ID(c)))
	}
	return all
}

func complete(t *testing.T, r *roster.Roster, reading hardware.Reading) hardware.Reading {
	t.Helper()
	whole := r.Complete(reading)
	require.NoError(t, whole.Machine.Validate())
	require.Len(t, whole.GPUs, len(whole.Machine.GPUs))
	return whole
}

func TestAGPUThatVanishedStaysWhereItWas(t *testing.T) {
	var r roster.Roster
	complete(t, &r, reading("A", "B", "C", "D"))

	renumbered := reading("A", "C", "D") // the driver calls D GPU 2 now
	renumbered.Machine.P2P = gpu.NoP2P(3)
	renumbered.Machine.P2P.Read[0][2] = gpu.P2POK
	renumbered.Signals = []hardware.Signal{{GPU: "D", Kind: hardware.XID, Number: 48}}
	whole := complete(t, &r, renumbered)

	assert.Equal(t, []string{"0 A", "1 B", "2 C", "3 D"}, names(whole))
	assert.Equal(t, "NV3", whole.Machine.Links[0][3].String(), "A and D")
	assert.Equal(t, gpu.None, whole.Machine.Links[0][1].Class, "nothing leads to a GPU that is gone")
	assert.Equal(t, []gpu.P2PStatus{gpu.P2PSelf, gpu.P2PUnknown, gpu.P2PNotSupported, gpu.P2POK}, whole.Machine.P2P.Read[0])
	assert.Equal(t, []hardware.Signal{
		{GPU: "D", Kind: hardware.XID, Number: 48},
		{GPU: "B", Kind: hardware.Vanished, Detail: "the driver does not list the GPU any more"},
	}, whole.Signals)

	assert.Empty(t, complete(t, &r, reading("A", "B", "C", "D")).Signals, "it is back")
}

func TestWhatAnEarlierRunKnew(t *testing.T) {
	var first, second roster.Roster
	whole := complete(t, &first, reading("A", "B", "C"))
	var entries []roster.Entry
	for _, c := range whole.Machine.GPUs {
		entries = append(entries, roster.Entry{GPU: c, NVLinks: 6})
	}
	second.Restore(entries)

	lost := reading("A", "x", "C") // a lost GPU tells nothing
	lost.Machine.GPUs[1] = gpu.GPU{Index: 1, NUMANode: -1}
	lost.Signals = []hardware.Signal{{GPU: "#1", Kind: hardware.Lost}}
	whole = complete(t, &second, lost)
	assert.Equal(t, []string{"0 A", "1 B", "2 C"}, names(whole))
	assert.Equal(t, []hardware.Signal{{GPU: "B", Kind: hardware.Lost}}, whole.Signals)

	fewer := reading("A", "B", "C")
	fewer.GPUs[2].NVLinks = 4
	assert.Equal(t, []hardware.Signal{{GPU: "C", Kind: hardware.NVLinkDown, Detail: "2 of 6 NVLinks are down"}}, complete(t, &second, fewer).Signals)
	assert.Equal(t, 6, second.NVLinks("C"))
}

func TestReplacedGPUs(t *testing.T) {
	var r roster.Roster
	complete(t, &r, reading("A", "B", "C"))
	assert.Equal(t, []string{"0 A", "1 B2", "2 C"}, names(complete(t, &r, reading("A", "B2", "C"))), "another GPU in its place")
	assert.Equal(t, []string{"0 X", "1 Y"}, names(complete(t, &r, reading("X", "Y"))), "another machine")
	assert.Equal(t, []string{"0 X", "1 Y", "2 Z"}, names(complete(t, &r, reading("Z", "X", "Y"))), "a new GPU goes behind the others")
}

func TestDuplicatesAreNotMistakenForEachOther(t *testing.T) {
	var r roster.Roster
	twice := reading("A", "B", "C")
	twice.Machine.GPUs[2].UUID = "B"
	whole := complete(t, &r, twice)
	assert.Equal(t, []string{"0 A", "1 B", "2 #2"}, names(whole))
	assert.Equal(t, []hardware.Signal{{GPU: "#2", Kind: hardware.Duplicate, Detail: "the GPU has the identity of GPU 1"}}, whole.Signals)
}

func TestAGPUThatOnlyPCIKnows(t *testing.T) {
	var r roster.Roster
	two := reading("A", "C")
	two.PCI = []string{address("A"), address("B"), address("C")}
	whole := complete(t, &r, two)
	assert.Equal(t, []string{"0 A", "1 C", "2 0000:0B:00.0"}, names(whole))
	assert.Equal(t, hardware.Vanished, whole.Signals[0].Kind)

	lost := reading("A", "x", "C")
	lost.Machine.GPUs[1] = gpu.GPU{Index: 1}
	lost.PCI = two.PCI
	assert.Len(t, complete(t, new(roster.Roster), lost).Machine.GPUs, 3, "the GPU that does not answer is the one on the bus")
}

func TestADescriptionFileIsTakenAtItsWord(t *testing.T) {
	var r roster.Roster
	described := func(n int) hardware.Reading {
		m := gpu.Machine{}
		for i := range n {
			m.GPUs = append(m.GPUs, gpu.GPU{Index: i})
			m.Links = append(m.Links, make([]gpu.Link, n))
			m.Links[i][i].Class = gpu.Self
		}
		return hardware.Reading{Machine: m}
	}
	r.Complete(described(8))
	assert.Equal(t, described(7), r.Complete(described(7)))
}

func TestWhatIsKnownOfAGPUThatHardlyAnswers(t *testing.T) {
	var r roster.Roster
	known := gpu.GPU{Index: 1, UUID: "B", PCIBusID: address("B"), MemoryMiB: 81920, NUMANode: 1, CPUAffinity: "20-39"}
	whole := reading("A", "B")
	whole.Machine.GPUs[1] = known
	complete(t, &r, whole)

	silent := reading("A", "B")
	silent.Machine.GPUs[1] = gpu.GPU{Index: 1, UUID: "B", NUMANode: -1}
	silent.Signals = []hardware.Signal{{GPU: "B", Kind: hardware.NoAnswer}}
	for range 2 {
		assert.Equal(t, known, complete(t, &r, silent).Machine.GPUs[1])
	}
	whole.Machine.GPUs[1].MemoryMiB = 40960
	assert.Equal(t, int64(40960), complete(t, &r, whole).Machine.GPUs[1].MemoryMiB, "it answers again")
}

func TestGPUsThatSwapSlotsKeepTheirIndexes(t *testing.T) {
	var r roster.Roster
	complete(t, &r, reading("A", "B", "C"))
	swapped := reading("B", "A", "C")
	swapped.Machine.GPUs[0].PCIBusID, swapped.Machine.GPUs[1].PCIBusID = address("A"), address("B")
	assert.Equal(t, []string{"0 A", "1 B", "2 C"}, names(complete(t, &r, swapped)))
}
