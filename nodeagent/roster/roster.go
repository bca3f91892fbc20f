// Package roster remembers which cards a machine has. NVML leaves out a card that it
// cannot start and numbers the others anew; the roster keeps the card, as one that must
// not be used, and every card's index, so that neither records of running pods nor
// events name another card than they mean.
//
// A card is known by its UUID, so a source that tells none, such as a description file,
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

// Entry is what is known of one card.
type Entry struct {
	Card gpu.Card
	// NVLinks is the most NVLinks that the card had.
	NVLinks int
}

// Restore takes over what an earlier run of the agent had published, in place of what was
// read since: that run knew which index a card has, and how many NVLinks.
func (r *Roster) Restore(entries []Entry) {
	r.known = nil
	for _, e := range entries {
		if e.Card.UUID != "" {
			r.known = append(r.known, e)
		}
	}
}

// NVLinks returns the most NVLinks that a card had.
func (r *Roster) NVLinks(uuid string) int {
	if i := r.find(uuid); i >= 0 {
		return r.known[i].NVLinks
	}
	return 0
}

// Complete puts the cards that are missing in a reading back into it, gives all cards
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
	return slices.IndexFunc(r.known, func(e Entry) bool { return e.Card.UUID == uuid })
}

// missing returns the known cards that the reading does not have.
func (r *Roster) missing(b *builder) []gpu.Card {
	var cards []gpu.Card
	for _, e := range r.known {
		if !b.has(func(c gpu.Card) bool { return c.UUID == e.Card.UUID }) {
			cards = append(cards, e.Card)
		}
	}
	return cards
}

// recognise finds out which known card one is that does not tell its UUID: by its
// address, else by its index, else because no other is missing.
func (r *Roster) recognise(b *builder) {
	for i := range b.cards {
		slot := &b.cards[i]
		if slot.card.UUID != "" || slot.duplicate {
			continue
		}
		missing := r.missing(b)
		at := slices.IndexFunc(missing, func(c gpu.Card) bool { return slot.card.PCIBusID != "" && c.PCIBusID == slot.card.PCIBusID })
		if at < 0 && slot.card.PCIBusID == "" {
			at = slices.IndexFunc(missing, func(c gpu.Card) bool { return c.Index == slot.card.Index })
			if at < 0 && len(missing) == 1 {
				at = 0
			}
		}
		if at >= 0 {
			slot.card = missing[at]
		}
	}
}

// retire forgets known cards that were replaced: those at whose address another is now,
// and all of them when none is left.
func (r *Roster) retire(b *builder) {
	left := slices.ContainsFunc(r.known, func(e Entry) bool {
		return b.has(func(c gpu.Card) bool { return c.UUID == e.Card.UUID })
	})
	unknown := b.has(func(c gpu.Card) bool { return c.UUID != "" && r.find(c.UUID) < 0 })
	if !left && unknown {
		r.known = nil
		return
	}
	r.known = slices.DeleteFunc(r.known, func(e Entry) bool {
		return b.has(func(c gpu.Card) bool {
			return c.UUID != "" && c.UUID != e.Card.UUID && c.PCIBusID != "" && c.PCIBusID == e.Card.PCIBusID
		})
	})
}

// number gives known cards their indexes, and others one that no known card has.
func (r *Roster) number(b *builder) {
	taken := map[int]bool{}
	for _, e := range r.known {
		taken[e.Card.Index] = true
	}
	for i := range b.cards {
		slot := &b.cards[i]
		if known := r.find(slot.card.UUID); slot.card.UUID != "" && known >= 0 {
			slot.card.Index = r.known[known].Card.Index
			continue
		}
		for taken[slot.card.Index] {
			slot.card.Index++
		}
		taken[slot.card.Index] = true
	}
}

func (r *Roster) addMissing(b *builder) {
	for _, card := range r.missing(b) {
		b.add(card, "the driver does not list the card any more")
	}
}

// learn notes what the reading tells of each card.
func (r *Roster) learn(b *builder) {
	for i, slot := range b.cards {
		if slot.card.UUID == "" {
			continue
		}
		at := r.find(slot.card.UUID)
		if at < 0 {
			r.known = append(r.known, Entry{})
			at = len(r.known) - 1
		}
		entry := &r.known[at]
		entry.Card = slot.card
		up := slot.detail.NVLinks
		if slot.answers() && up < entry.NVLinks {
			b.signal(i, hardware.NVLinkDown, fmt.Sprintf("%d of %d NVLinks are down", entry.NVLinks-up, entry.NVLinks))
		}
		entry.NVLinks = max(entry.NVLinks, up)
	}
}

// builder is a reading that is being completed.
type builder struct {
	from  hardware.Reading
	cards []slot
}

// slot is one card of the reading, or one that is missing in it.
type slot struct {
	card   gpu.Card
	detail hardware.Card
	// position is the card's in the reading, -1 for one that is missing there; id is
	// what signals call it.
	position  int
	id        string
	duplicate bool
	silent    bool
	// amiss are signals of the roster's own, without the card's identity.
	amiss []hardware.Signal
}

func (s slot) answers() bool { return s.position >= 0 && !s.silent }

func newBuilder(reading hardware.Reading) *builder {
	b := &builder{from: reading}
	for i, card := range reading.Machine.Cards {
		s := slot{card: card, position: i, id: hardware.ID(card)}
		if i < len(reading.Cards) {
			s.detail = reading.Cards[i]
		}
		s.silent = slices.ContainsFunc(reading.Signals, func(sig hardware.Signal) bool {
			return sig.Card == s.id && (sig.Kind == hardware.Lost || sig.Kind == hardware.NoAnswer)
		})
		b.cards = append(b.cards, s)
	}
	return b
}

func (b *builder) has(match func(gpu.Card) bool) bool {
	return slices.ContainsFunc(b.cards, func(s slot) bool { return match(s.card) })
}

// rejectDuplicates takes their identity from cards that have another's.
func (b *builder) rejectDuplicates() {
	for i := range b.cards {
		here := &b.cards[i]
		for _, other := range b.cards[:i] {
			sameUUID := here.card.UUID != "" && here.card.UUID == other.card.UUID
			sameAddress := here.card.PCIBusID != "" && here.card.PCIBusID == other.card.PCIBusID
			if !sameUUID && !sameAddress {
				continue
			}
			here.duplicate, here.id = true, ""
			here.card.UUID, here.card.PCIBusID = "", ""
			b.signal(i, hardware.Duplicate, fmt.Sprintf("the card has the identity of card %d", other.card.Index))
			break
		}
	}
}

// add adds a card that the driver does not list.
func (b *builder) add(card gpu.Card, why string) {
	b.cards = append(b.cards, slot{card: card, position: -1})
	b.signal(len(b.cards)-1, hardware.Vanished, why)
}

// addUnlisted adds the GPUs on the PCI bus that are none of the cards, unless a card
// that does not tell its address may be one of them.
func (b *builder) addUnlisted() {
	spare := 0
	for _, s := range b.cards {
		if s.card.PCIBusID == "" {
			spare++
		}
	}
	for _, address := range b.from.PCI {
		switch {
		case b.has(func(c gpu.Card) bool { return c.PCIBusID == address }):
		case spare > 0:
			spare--
		default:
			index := 0
			for b.has(func(c gpu.Card) bool { return c.Index == index }) {
				index++
			}
			b.add(gpu.Card{Index: index, PCIBusID: address, NUMANode: -1}, "the driver does not list the GPU at "+address)
		}
	}
}

// signal adds a signal of the card in a slot.
func (b *builder) signal(at int, kind hardware.Kind, detail string) {
	b.cards[at].amiss = append(b.cards[at].amiss, hardware.Signal{Kind: kind, Detail: detail})
}

// reading is the completed reading, its cards ordered by index.
func (b *builder) reading() hardware.Reading {
	out := b.from
	order := make([]int, len(b.cards))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, c int) int { return cmp.Compare(b.cards[a].card.Index, b.cards[c].card.Index) })

	out.Machine.Cards, out.Cards = nil, nil
	for _, at := range order {
		out.Machine.Cards = append(out.Machine.Cards, b.cards[at].card)
		if b.from.Cards != nil {
			out.Cards = append(out.Cards, b.cards[at].detail)
		}
	}
	out.Machine.Links = b.matrix(b.from.Machine.Links, order)
	out.Machine.PCIeLinks = b.matrix(b.from.Machine.PCIeLinks, order)
	out.Machine.NICs = slices.Clone(b.from.Machine.NICs)
	for i, nic := range out.Machine.NICs {
		out.Machine.NICs[i].Links = b.row(nic.Links, order)
	}
	out.Signals = b.renamed()
	return out
}

// matrix orders a matrix anew, with rows and columns for missing cards; nil stays nil.
func (b *builder) matrix(rows [][]gpu.Link, order []int) [][]gpu.Link {
	if rows == nil {
		return nil
	}
	out := make([][]gpu.Link, len(order))
	for i, at := range order {
		out[i] = make([]gpu.Link, len(order))
		if position := b.cards[at].position; position >= 0 {
			out[i] = b.row(rows[position], order)
		}
		out[i][i].Class = gpu.Self
	}
	return out
}

func (b *builder) row(cells []gpu.Link, order []int) []gpu.Link {
	out := make([]gpu.Link, len(order))
	for j, at := range order {
		if position := b.cards[at].position; position >= 0 {
			out[j] = cells[position]
		}
	}
	return out
}

// renamed are all signals by the identities that the cards have now.
func (b *builder) renamed() []hardware.Signal {
	names := map[string]string{}
	for _, s := range b.cards {
		if s.id != "" {
			names[s.id] = hardware.ID(s.card)
		}
	}
	var all []hardware.Signal
	for _, s := range b.from.Signals {
		if name, ok := names[s.Card]; ok {
			s.Card = name
		}
		all = append(all, s)
	}
	for _, slot := range b.cards {
		for _, s := range slot.amiss {
			s.Card = hardware.ID(slot.card)
			all = append(all, s)
		}
	}
	return all
}
