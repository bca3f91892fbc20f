package placement

import (
	"cmp"
	"slices"
)

// shareUnit is the step, and the least, of a core percentage (Alibaba Cloud,
// "Allocate computing power by scheduling shared GPU": multiples of 5 from 5 to 100).
const shareUnit = 5

// fullCore is the core percentage of one card.
const fullCore = 100

// spread returns over how many cards a shared request is spread.
func (r *Request) spread() int { return max(r.Cards, 1) }

// perCard returns what a shared request takes of each of its cards: equal shares
// (Alibaba Cloud, "multi-card-sharing": N/M GiB on each of M cards).
func (r *Request) perCard() cardRoom {
	return cardRoom{memoryGiB: r.MemoryGiB / int64(r.spread()), corePercent: r.CorePercent}
}

// PerCard returns what a shared request takes of each of its cards.
func (r *Request) PerCard() CardShare {
	part := r.perCard()
	return CardShare{MemoryGiB: part.memoryGiB, CorePercent: part.corePercent}
}

// Shared reports whether the request is for parts of cards.
func (r *Request) Shared() bool { return r.Mode.shared() }

// holds returns how many shares of the size fit on the card.
func (room cardRoom) holds(share cardRoom) int {
	n := int64(unlimited)
	if share.memoryGiB > 0 {
		n = min(n, room.memoryGiB/share.memoryGiB)
	}
	if share.corePercent > 0 {
		n = min(n, room.corePercent/share.corePercent)
	}
	return int(n)
}

// shareSlots returns how many members with a shared request fit on the node's
// cards. A member takes one share of each of m distinct cards, so t members fit if
// and only if Σ over cards of min(shares the card holds, t) ≥ m·t.
func (c *capacity) shareSlots(r *Request) int {
	m, share := r.spread(), r.perCard()
	total := 0
	holds := make([]int, 0, len(c.shares))
	for _, room := range c.shares {
		h := room.holds(share)
		holds = append(holds, h)
		total += h
	}
	if m == 1 {
		return total
	}
	slices.Sort(holds)
	for t := total / m; t > 0; t-- {
		sum := 0
		for _, h := range holds {
			sum += min(h, t)
		}
		if sum >= m*t {
			return t
		}
	}
	return 0
}

// takeShares gives n members their shares. Cards are chosen by the node's policy;
// where that would strand a member that fits, the cards with most room come first.
func (c *capacity) takeShares(r *Request, n int, mix *Mix) [][]CardShare {
	before := slices.Clone(c.shares)
	for _, roomiest := range []bool{c.policy == Spread, true} {
		given := make([][]CardShare, 0, n)
		for range n {
			cards := c.cardsFor(r, roomiest, mix)
			if cards == nil {
				break
			}
			given = append(given, c.takeFrom(cards, r.perCard()))
		}
		if len(given) == n {
			return given
		}
		copy(c.shares, before)
	}
	return nil
}

// cardsFor chooses the cards of one member, nil when it does not fit: the tightest
// or the roomiest, or the card that fragments least.
func (c *capacity) cardsFor(r *Request, roomiest bool, mix *Mix) []int {
	share := r.perCard()
	fitting := make([]int, 0, len(c.shares))
	for i, room := range c.shares {
		if room.holds(share) > 0 {
			fitting = append(fitting, i)
		}
	}
	if len(fitting) < r.spread() {
		return nil
	}
	if mix != nil && !roomiest && r.spread() == 1 {
		return []int{mix.leastFragmenting(c, fitting, share)}
	}
	slices.SortStableFunc(fitting, func(a, b int) int {
		d := c.shares[a].compare(c.shares[b])
		if roomiest {
			return -d
		}
		return d
	})
	chosen := fitting[:r.spread()]
	slices.Sort(chosen)
	return chosen
}

// takeFrom takes a share of each of the cards.
func (c *capacity) takeFrom(cards []int, share cardRoom) []CardShare {
	shares := make([]CardShare, 0, len(cards))
	for _, i := range cards {
		c.shares[i] = c.shares[i].less(share)
		shares = append(shares, CardShare{Card: i, MemoryGiB: share.memoryGiB, CorePercent: share.corePercent})
	}
	return shares
}

func (room cardRoom) less(share cardRoom) cardRoom {
	return cardRoom{room.memoryGiB - share.memoryGiB, room.corePercent - share.corePercent}
}

// compare orders cards from the tightest to the roomiest.
func (room cardRoom) compare(other cardRoom) int {
	return cmp.Or(cmp.Compare(room.memoryGiB, other.memoryGiB), cmp.Compare(room.corePercent, other.corePercent))
}
