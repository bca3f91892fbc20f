package ledger_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// A program may go with the jobs that run by it, and of those that stay the plan says so once it knows them all.
func TestProgramGoesUnderJobs(t *testing.T) {
	remove := func(l *ledger.Ledger) []ledger.Finding {
		l.Observe(func() ledger.Live {
			return ledger.Live{View: snapshot.NewView(), Own: map[string]bool{"default/a": true, "default/b": true}}
		})
		return l.RemoveProgram("scheduler", func(stays func(job string) bool) []ledger.Finding {
			if !stays("default/b") {
				return nil
			}
			return []ledger.Finding{ledger.Orphaned("scheduler", "Scheduler is in use", "default/b", []string{"default/b"})}
		})
	}
	keep := func(job string) func(*ledger.Ledger) []ledger.Finding {
		return func(l *ledger.Ledger) []ledger.Finding { return l.KeepJob(job) }
	}
	leave := func(l *ledger.Ledger) []ledger.Finding { return l.DeleteJob("default/b") }
	for name, test := range map[string]struct {
		visits []func(*ledger.Ledger) []ledger.Finding
		said   int
	}{
		"it stays":                {[]func(*ledger.Ledger) []ledger.Finding{remove, keep("default/a"), keep("default/b")}, 1},
		"it stays, program last":  {[]func(*ledger.Ledger) []ledger.Finding{keep("default/b"), keep("default/a"), remove}, 1},
		"it leaves":               {[]func(*ledger.Ledger) []ledger.Finding{remove, leave, keep("default/a")}, 0},
		"it leaves, program last": {[]func(*ledger.Ledger) []ledger.Finding{leave, keep("default/a"), remove}, 0},
		"not all are known":       {[]func(*ledger.Ledger) []ledger.Finding{remove, keep("default/b")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			var found []ledger.Finding
			for _, visit := range test.visits {
				found = append(found, visit(l)...)
			}
			assert.Len(t, found, test.said)
		})
	}
}

// Quota may be cut under jobs that leave in the same plan, and not under those that stay,
// in whatever order Terraform visits them.
func TestQuotaIsCutUnderJobsThatLeave(t *testing.T) {
	const limit = 1 // job
	cut := func(l *ledger.Ledger) []ledger.Finding {
		return l.CutQuota(func(stays func(job string) bool) []ledger.Finding {
			var jobs []string
			for _, job := range []string{"default/a", "default/b"} {
				if stays(job) {
					jobs = append(jobs, job)
				}
			}
			if len(jobs) <= limit {
				return nil
			}
			return []ledger.Finding{ledger.Cut("max", "Quota is in use", strings.Join(jobs, ", "), jobs)}
		})
	}
	keep := func(job string) func(*ledger.Ledger) []ledger.Finding {
		return func(l *ledger.Ledger) []ledger.Finding { return l.KeepJob(job) }
	}
	leave := func(l *ledger.Ledger) []ledger.Finding { return l.DeleteJob("default/b") }
	suspend := func(l *ledger.Ledger) []ledger.Finding { return l.SuspendJob("default/b") }
	a, b := keep("default/a"), keep("default/b")
	for name, test := range map[string]struct {
		visits  []func(*ledger.Ledger) []ledger.Finding
		refused bool
	}{
		"both stay, tree first": {[]func(*ledger.Ledger) []ledger.Finding{cut, a, b}, true},
		"both stay, tree last":  {[]func(*ledger.Ledger) []ledger.Finding{b, a, cut}, true},
		"one leaves":            {[]func(*ledger.Ledger) []ledger.Finding{cut, leave, a}, false},
		"one leaves, tree last": {[]func(*ledger.Ledger) []ledger.Finding{a, leave, cut}, false},
		"one is suspended":      {[]func(*ledger.Ledger) []ledger.Finding{suspend, cut, a}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			var found []ledger.Finding
			for _, visit := range test.visits {
				found = append(found, visit(l)...)
			}
			if !test.refused {
				assert.Empty(t, found)
				return
			}
			if assert.Len(t, found, 1, "it is said once") {
				assert.True(t, found[0].Error)
				assert.Equal(t, "default/a, default/b", found[0].Detail)
			}
		})
	}
}
