// Package kills ends terraform and the provider by SIGKILL, in the middle of applies and
// destroys on the local platform, and then runs terraform again: it must converge without
// an import, and leave nothing behind and nothing twice.
package kills

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

var (
	seed     = flag.Uint64("kills.seed", 1, "seed of the kill suite")
	applies  = flag.Int("kills.applies", 4, "how many applies are killed")
	destroys = flag.Int("kills.destroys", 2, "how many destroys are killed")
)

// perPhase is how many times one thing to do is killed at most before it may end.
const perPhase = 4

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// phase is something to do with terraform that takes several runs when it is killed.
type phase struct {
	name string
	args []string
	// creates means that all that it does is to create.
	creates bool
	// left is how often it is still to be killed, done how often it was.
	left, done int
	// requests and writes are how many it makes when nobody interrupts it.
	requests, writes int
}

func TestKills(t *testing.T) {
	acctest.ClearEnv(t)
	platform := localtest.Start(t)
	s := &suite{
		directory: newDirectory(t, platform), cluster: clusterOf(t, platform),
		random: rand.New(rand.NewPCG(*seed, 0)),
	}
	text, err := os.ReadFile("testdata/main.tf")
	require.NoError(t, err)
	s.Write(t, string(text))
	s.claim(t, "kills-logs")

	changed := []string{"-auto-approve", "-var=size=3", "-var=image=train:2", "-var=limit=20", `-var=more=["b","c"]`}
	create := &phase{name: "create", args: []string{"apply", "-auto-approve"}, creates: true, left: *applies - *applies/3}
	change := &phase{name: "change", args: append([]string{"apply"}, changed...), left: *applies / 3}
	destroy := &phase{name: "destroy", args: append([]string{"destroy"}, changed...), left: *destroys}
	for cycle := 0; cycle == 0 || create.left+change.left+destroy.left > 0; cycle++ {
		kill := cycle > 0 // the first cycle shows how many requests there are
		s.carryOut(t, create, kill)
		s.inPlace(t, 6, "16", "train:1", []string{"a", "b"}, create.args[2:]...)
		s.carryOut(t, change, kill)
		s.inPlace(t, 6, "20", "train:2", []string{"b", "c"}, change.args[2:]...)
		s.carryOut(t, destroy, kill)
		s.gone(t)
		t.Logf("cycle %d: %d applies and %d destroys were killed", cycle, create.done+change.done, destroy.done)
	}
	t.Logf("seed %d: %s", *seed, s.log)
}

// suite is a directory of terraform on a platform, and what has happened there.
type suite struct {
	*directory
	*cluster
	random *rand.Rand
	log    []string
}

func (s *suite) note(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

// carryOut runs a phase until it is done; unless nobody kills it, it dies a few times.
func (s *suite) carryOut(t *testing.T, p *phase, kill bool) {
	t.Helper()
	for n := 0; kill && n < perPhase && p.left > 0; n++ {
		at := s.draw(p)
		output, code, died := s.run(t, at, p.args...)
		if died == "" {
			s.note("%s ended before %s", p.name, at)
			require.Zero(t, code, "%v\n%s", s.log, output)
			return
		}
		p.left--
		p.done++
		s.note("%s died %s: %s", p.name, at, died)
		if s.putStateBack(t, p.creates) {
			s.note("terraform was writing its state, and the last one was put back")
		}
	}
	output, code, _ := s.run(t, point{}, p.args...)
	require.Zero(t, code, "%s does not converge after %q\n%s", p.name, s.log, output)
	if !kill {
		p.requests, p.writes, _ = s.gate.seen()
	}
	s.note("%s is done", p.name)
}

// draw chooses where a phase dies: at writes above all, before they are carried out and
// after, and at reads, which are what it does while it waits.
func (s *suite) draw(p *phase) point {
	at := point{writes: s.random.IntN(3) > 0, answered: s.random.IntN(2) > 0, alone: s.random.IntN(5) == 0}
	of := p.requests
	if at.writes {
		of = p.writes
	}
	at.number = 1 + s.random.IntN(of)
	return at
}
