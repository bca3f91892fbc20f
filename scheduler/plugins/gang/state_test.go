package gang

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// slowGang is what the entry of a gang means, kept as separate facts.
type slowGang struct {
	waits bool
	first types.UID
	why   string
}

func (s slowGang) entry() entry {
	switch {
	case s.waits:
		return entryWaiting
	case s.first != "":
		return entryEntered
	}
	return entryOpen
}

// mayEnter says whether a pod may enter the queue.
func (s slowGang) mayEnter(pod types.UID) bool {
	if s.waits {
		return false
	}
	return s.first == "" || s.first == pod
}

// Whatever happens to a gang, in whatever order, its entry is what the facts say, and every
// arrow of the diagram is taken.
func TestEntry(t *testing.T) {
	taken := map[string]bool{}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		g, slow := &gang{key: "ns/g", entry: entryOpen, answers: &sync.Map{}}, slowGang{}
		for step := range 100 {
			pod, before := types.UID(fmt.Sprint("pod-", random.IntN(3))), g.entry
			why := wait{text: fmt.Sprint("reason ", step)}
			var on event
			switch random.IntN(5) {
			case 0:
				if on = enters; slow.mayEnter(pod) {
					g.enter(pod)
					slow.first = pod
				}
			case 1:
				on = rejected
				g.wait(why, &inventory.GangState{}, inventory.GangStatus{})
				slow = slowGang{waits: true, why: why.text}
			case 2:
				if on = fits; slow.waits {
					g.reopen()
					slow = slowGang{}
				}
			case 3:
				on = leaves
				g.loseFirst()
				if slow.first != "" {
					slow = slowGang{}
				}
			case 4:
				on = placed
				g.place()
				slow = slowGang{}
			}
			require.Equal(t, slow.entry(), g.entry, "seed %d, step %d: %s", seed, step, on)
			require.Equal(t, slow.first, g.firstPod)
			require.Equal(t, slow.why, g.why.text)
			require.Equal(t, slow.why != "", g.waits())
			said, ok := g.answers.Load(g.key)
			require.Equal(t, slow.waits, ok, "the answer that is read without the lock")
			if ok {
				require.Equal(t, slow.why, said.(*answer).text)
			}
			for i := range 3 {
				other := types.UID(fmt.Sprint("pod-", i))
				enters := !g.waits() && (g.entry != entryEntered || g.firstPod == other)
				require.Equal(t, slow.mayEnter(other), enters, "seed %d, step %d: %s", seed, step, on)
			}
			if before != g.entry {
				taken[fmt.Sprintln(before, on, g.entry)] = true
			}
		}
	}
	arrows := 0
	for _, arrow := range entries {
		if arrow.from != arrow.to {
			arrows++
			assert.Contains(t, taken, fmt.Sprintln(arrow.from, arrow.on, arrow.to))
		}
	}
	assert.Len(t, taken, arrows)
}

// slowAttempt is what the phase of an attempt means, kept as separate facts.
type slowAttempt struct {
	passed, failed, left bool
	prepared             map[types.UID]bool
	members              int
}

func (s slowAttempt) phase() phase {
	switch {
	case s.left:
		return phaseClosing
	case s.failed:
		return phaseAborting
	case len(s.prepared) == s.members:
		return phaseBinding
	case s.passed:
		return phasePreparing
	}
	return phaseReserving
}

// Whatever happens to an attempt, in whatever order, its phase is what the facts say, it is bound once or taken back once,
// and every arrow of the diagram is taken.
func TestPhase(t *testing.T) {
	taken := map[string]bool{}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		slow := slowAttempt{members: 1 + random.IntN(3), prepared: map[types.UID]bool{}}
		r := &attempt{phase: phaseReserving, pods: map[types.UID]*assumedPod{}}
		for i := range slow.members {
			r.pods[types.UID(fmt.Sprint("pod-", i))] = &assumedPod{attempt: r}
		}
		bindings, rollbacks := 0, 0
		for step := range 40 {
			before := r.phase
			var on event
			switch random.IntN(8) {
			case 0, 1:
				on = passes
				assert.Equal(t, !slow.passed && !slow.failed, r.on(passes))
				slow.passed = slow.passed || !slow.failed
			case 2, 3, 4:
				on = prepared
				uid := types.UID(fmt.Sprint("pod-", random.IntN(slow.members)))
				if r.prepare(r.pods[uid]) {
					bindings++
				}
				if slow.passed && !slow.failed {
					slow.prepared[uid] = true
				}
			case 5:
				on = fails
				first := r.on(fails)
				if first {
					rollbacks++
				}
				if len(slow.prepared) < slow.members {
					assert.Equal(t, !slow.failed, first)
					slow.failed = true
				}
			case 6, 7:
				on = vacate
				assert.Equal(t, slow.failed && !slow.left, r.on(vacate))
				slow.left = slow.failed
			}
			require.Equal(t, slow.phase(), r.phase, "seed %d, step %d: %s", seed, step, on)
			require.Equal(t, slow.failed, r.failed())
			if before != r.phase {
				taken[fmt.Sprintln(before, on, r.phase)] = true
			}
		}
		assert.LessOrEqual(t, bindings+rollbacks, 1, "seed %d", seed)
		assert.Equal(t, r.phase == phaseBinding, bindings == 1, "seed %d", seed)
	}
	for _, arrow := range phases {
		assert.Contains(t, taken, fmt.Sprintln(arrow.from, arrow.on, arrow.to))
	}
	assert.Len(t, taken, len(phases))
}

// draw is a state machine as a Mermaid diagram.
func draw[S ~string](t transitions[S]) string {
	var b strings.Builder
	fmt.Fprintf(&b, "stateDiagram-v2\n    [*] --> %s\n", t[0].from)
	left := map[S]bool{}
	for _, arrow := range t {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", arrow.from, arrow.to, arrow.on)
		left[arrow.from] = true
	}
	for _, arrow := range t {
		if !left[arrow.to] {
			fmt.Fprintf(&b, "    %s --> [*]\n", arrow.to)
		}
	}
	return b.String()
}

// The diagrams of the design are those of the tables.
func TestDiagrams(t *testing.T) {
	design, err := os.ReadFile("../../../docs/design.md")
	require.NoError(t, err)
	assert.Contains(t, string(design), "```mermaid\n"+draw(entries)+"```\n")
	assert.Contains(t, string(design), "```mermaid\n"+draw(phases)+"```\n")
}
