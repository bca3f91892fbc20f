// Package roster remembers which GPUs a machine has. NVML leaves out a GPU that it
// cannot start and numbers the others again; the roster keeps the GPU, as one that must
// not be used, and every GPU's index, so that neither records of running pods nor
// events name another GPU than they mean.
//
// A GPU is known by its UUID, so a source that tells none, such as a description file,
// is taken at its word.
package roster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// Roster is what is known of one machine. The zero value knows nothing.
type Roster struct {
	known []Entry
}

// Entry is what is known of one GPU.
type Entry struct {
	GPU gpu.GPU
	// NVLinks is the most NVLinks that the GPU had.
	NVLinks int
}

// Restore takes over what an earlier run of the agent had published, in place of what was
// read since: that run knew which index a GPU has, and how many NVLinks.
func (r *Roster) Restore(entries []Entry) {
	r.known = nil
	for _, e := range entries {
		if e.GPU.UUID != "" {
			r.known = append(r.known, e)
		}
	}
}

// NVLinks returns the most NVLinks that a GPU had.
func (r *Roster) NVLinks(uuid string) int {
	if i := r.find(uuid); i >= 0 {
		return r.known[i].NVLinks
	}
	return 0
}

// Complete puts the GPUs that are missing in a reading back into it, gives all GPUs
// their indexes, and adds signals for what is amiss. The reading is not changed.
func (r *Roster) Complete(reading hardware.Reading) hardware.Reading {
	b := newBuilder(reading)
	b.rejectDuplicates()
	r.recognise(b)
	r.retire(b)
	r.number(b)
	r.addMissing(b)
	b.addUnlisted()
	r.learn(b)
	return b.reading()
}

func (r *Roster) find(uuid string) int {
	return slices.IndexFunc(r.known, func(e Entry) bool { return e.GPU.UUID == uuid })
}

// missing returns the known GPUs that the reading does not have.
func (r *Roster) missing(b *builder) []gpu.GPU {
	var gpus []gpu.GPU
	for _, e := range r.known {
		if !b.has(func(c gpu.GPU) bool { return c.UUID == e.GPU.UUID }) {
			gpus = append(gpus, e.GPU)
		}
	}
	return gpus
}

// recognise finds out which known GPU one is that does not tell its UUID: by its
// address, else by its index, else because no other is missing. One that does, and hardly
// tells more, is what it was.
func (r *Roster) recognise(b *builder) {
	for i := range b.gpus {
		slot := &b.gpus[i]
		if known := r.find(slot.gpu.UUID); known >= 0 && slot.silent {
			address := cmp.Or(slot.gpu.PCIBusID, r.known[known].GPU.PCIBusID)
			slot.gpu = r.known[known].GPU
			slot.gpu.PCIBusID = address
		}
		if slot.gpu.UUID != "" || slot.duplicate {
			continue
		}
		missing := r.missing(b)
		at := slices.IndexFunc(missing, func(c gpu.GPU) bool { return slot.gpu.PCIBusID != "" && c.PCIBusID == slot.gpu.PCIBusID })
		if at < 0 && slot.gpu.PCIBusID == "" {
			at = slices.IndexFunc(missing, func(c gpu.GPU) bool { return c.Index == slot.gpu.Index })
			if at < 0 && len(missing) == 1 {
				at = 0
			}
		}
		if at >= 0 {
			slot.gpu = missing[at]
		}
	}
}

// retire forgets known GPUs that were replaced: those that have gone and at whose address
// another is now, and all of them when none is left.
func (r *Roster) retire(b *builder) {
	present := func(e Entry) bool { return b.has(func(c gpu.GPU) bool { return c.UUID == e.GPU.UUID }) }
	left := slices.ContainsFunc(r.known, present)
	unknown := b.has(func(c gpu.GPU) bool { return c.UUID != "" && r.find(c.UUID) < 0 })
	if !left && unknown {
		r.known = nil
		return
	}
	r.known = slices.DeleteFunc(r.known, func(e Entry) bool {
		return !present(e) && b.has(func(c gpu.GPU) bool {
			return c.UUID != "" && c.PCIBusID != "" && c.PCIBusID == e.GPU.PCIBusID
		})
	})
}

// number gives known GPUs their indexes, and others one that no known GPU has.
func (r *Roster) number(b *builder) {
	taken := map[int]bool{}
	for _, e := range r.known {
		taken[e.GPU.Index] = true
	}
	for i := range b.gpus {
		slot := &b.gpus[i]
		if known := r.find(slot.gpu.UUID); slot.gpu.UUID != "" && known >= 0 {
			slot.gpu.Index = r.known[known].GPU.Index
			continue
		}
		for taken[slot.gpu.Index] {
			slot.gpu.Index++
		}
		taken[slot.gpu.Index] = true
	}
}

func (r *Roster) addMissing(b *builder) {
	for _, device := range r.missing(b) {
		b.add(device, "the driver does not list the GPU any more")
	}
}

// learn notes what the reading tells of each GPU.
func (r *Roster) learn(b *builder) {
	for i, slot := range b.gpus {
		if slot.gpu.UUID == "" {
			continue
		}
		at := r.find(slot.gpu.UUID)
		if at < 0 {
			r.known = append(r.known, Entry{})
			at = len(r.known) - 1
		}
		entry := &r.known[at]
		entry.GPU = slot.gpu
		up := slot.detail.NVLinks
		if slot.answers() && up < entry.NVLinks {
			b.signal(i, hardware.NVLinkDown, fmt.Sprintf("%d of %d NVLinks are down", entry.NVLinks-up, entry.NVLinks))
		}
		entry.NVLinks = max(entry.NVLinks, up)
	}
}

// builder is a reading that is being completed.
type builder struct {
	from hardware.Reading
	gpus []slot
}

// slot is one GPU of the reading, or one that is missing in it.
type slot struct {
	gpu    gpu.GPU
	detail hardware.GPU
	// position is the GPU's in the reading, -1 for one that is missing there; id is
	// what signals call it.
	position  int
	id        string
	duplicate bool
	silent    bool
	// amiss are signals of the roster's own, without the GPU's identity.
	amiss []hardware.Signal
}

func (s slot) answers() bool { return s.position >= 0 && !s.silent }

func newBuilder(reading hardware.Reading) *builder {
	b := &builder{from: reading}
	for i, device := range reading.Machine.GPUs {
		s := slot{gpu: device, position: i, id: hardware.ID(device)}
		if i < len(reading.GPUs) {
			s.detail = reading.GPUs[i]
		}
		s.silent = slices.ContainsFunc(reading.Signals, func(sig hardware.Signal) bool {
			return sig.GPU == s.id && (sig.Kind == hardware.Lost || sig.Kind == hardware.NoAnswer)
		})
		b.gpus = append(b.gpus, s)
	}
	return b
}

func (b *builder) has(match func(gpu.GPU) bool) bool {
	return slices.ContainsFunc(b.gpus, func(s slot) bool { return match(s.gpu) })
}

// rejectDuplicates takes their identity from GPUs that have another's.
func (b *builder) rejectDuplicates() {
	for i := range b.gpus {
		here := &b.gpus[i]
		for _, other := range b.gpus[:i] {
			sameUUID := here.gpu.UUID != "" && here.gpu.UUID == other.gpu.UUID
			sameAddress := here.gpu.PCIBusID != "" && here.gpu.PCIBusID == other.gpu.PCIBusID
			if !sameUUID && !sameAddress {
				continue
			}
			here.duplicate, here.id = true, ""
			here.gpu.UUID, here.gpu.PCIBusID = "", ""
			b.signal(i, hardware.Duplicate, fmt.Sprintf("the GPU has the identity of GPU %d", other.gpu.Index))
			break
		}
	}
}

// add adds a GPU that the driver does not list.
func (b *builder) add(device gpu.GPU, why string) {
	b.gpus = append(b.gpus, slot{gpu: device, position: -1})
	b.signal(len(b.gpus)-1, hardware.Vanished, why)
}

// addUnlisted adds the GPUs on the PCI bus that are none of the GPUs, unless a GPU
// that does not tell its address may be one of them.
func (b *builder) addUnlisted() {
	spare := 0
	for _, s := range b.gpus {
		if s.gpu.PCIBusID == "" {
			spare++
		}
	}
	for _, address := range b.from.PCI {
		switch {
		case b.has(func(c gpu.GPU) bool { return c.PCIBusID == address }):
		case spare > 0:
			spare--
		default:
			index := 0
			for b.has(func(c gpu.GPU) bool { return c.Index == index }) {
				index++
			}
			b.add(gpu.GPU{Index: index, PCIBusID: address, NUMANode: -1}, "the driver does not list the GPU at "+address)
		}
	}
}

// signal adds a signal of the GPU in a slot.
func (b *builder) signal(at int, kind hardware.Kind, detail string) {
	b.gpus[at].amiss = append(b.gpus[at].amiss, hardware.Signal{Kind: kind, Detail: detail})
}

// reading is the completed reading, its GPUs ordered by index.
func (b *builder) reading() hardware.Reading {
	out := b.from
	order := make([]int, len(b.gpus))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, c int) int { return cmp.Compare(b.gpus[a].gpu.Index, b.gpus[c].gpu.Index) })

	out.Machine.GPUs, out.GPUs = nil, nil
	for _, at := range order {
		out.Machine.GPUs = append(out.Machine.GPUs, b.gpus[at].gpu)
		if b.from.GPUs != nil {
			out.GPUs = append(out.GPUs, b.gpus[at].detail)
		}
	}
	out.Machine.Links = b.matrix(b.from.Machine.Links, order)
	out.Machine.PCIeLinks = b.matrix(b.from.Machine.PCIeLinks, order)
	out.Machine.P2P = b.from.Machine.P2P.At(b.positions(order))
	out.Machine.NICs = slices.Clone(b.from.Machine.NICs)
	for i, nic := range out.Machine.NICs {
		out.Machine.NICs[i].Links = b.row(nic.Links, order)
	}
	out.Signals = b.renamed()
	return out
}

// positions are where the GPUs of an order are in the reading, -1 for those that are missing there.
func (b *builder) positions(order []int) []int {
	out := make([]int, len(order))
	for i, at := range order {
		out[i] = b.gpus[at].position
	}
	return out
}

// matrix orders a matrix again, with rows and columns for missing GPUs; nil stays nil.
func (b *builder) matrix(rows [][]gpu.Link, order []int) [][]gpu.Link {
	if rows == nil {
		return nil
	}
	out := make([][]gpu.Link, len(order))
	for i, at := range order {
		out[i] = make([]gpu.Link, len(order))
		if position := b.gpus[at].position; position >= 0 {
			out[i] = b.row(rows[position], order)
		}
		out[i][i].Class = gpu.Self
	}
	return out
}

func (b *builder) row(cells []gpu.Link, order []int) []gpu.Link {
	out := make([]gpu.Link, len(order))
	for j, at := range order {
		if position := b.gpus[at].position; position >= 0 {
			out[j] = cells[position]
		}
	}
	return out
}

// renamed are all signals by the identities that the GPUs have now.
func (b *builder) renamed() []hardware.Signal {
	names := map[string]string{}
	for _, s := range b.gpus {
		if s.id != "" {
			names[s.id] = hardware.ID(s.gpu)
		}
	}
	var all []hardware.Signal
	for _, s := range b.from.Signals {
		if name, ok := names[s.GPU]; ok {
			s.GPU = name
		}
		all = append(all, s)
	}
	for _, slot := range b.gpus {
		for _, s := range slot.amiss {
			s.GPU = hardware.ID(slot.gpu)
			all = append(all, s)
		}
	}
	return all
}
