package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// What a plan knows of the jobs on nodes that go: which leave, and of which nobody can say it, since all visits wait.
func TestFatesOfJobsOnNodesThatGo(t *testing.T) {
	for name, test := range map[string]struct {
		visit    func(*ledger.Ledger)
		atATime  int
		patience time.Duration
		leaving  []string
		open     []string
	}{
		"visited before":            {func(l *ledger.Ledger) { l.DeleteJob("default/a") }, 1, time.Hour, []string{"default/a"}, nil},
		"one at a time":             {nil, 1, time.Hour, nil, []string{"default/a"}},
		"nobody comes":              {nil, 10, time.Millisecond, nil, nil},
		"nobody knows how many":     {nil, 0, time.Millisecond, nil, nil},
		"it stays":                  {func(l *ledger.Ledger) { l.KeepJob("default/a") }, 1, time.Hour, nil, nil},
		"it is suspended later":     {func(l *ledger.Ledger) { l.SuspendJob("default/a") }, 1, time.Hour, nil, nil},
		"it is replaced by another": {func(l *ledger.Ledger) { l.ReplaceJob("default/a", "default/b") }, 1, time.Hour, []string{"default/a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			if test.visit != nil {
				test.visit(l)
			}
			leaving, open := l.AwaitFates(t.Context(), []string{"default/a"}, test.atATime, test.patience)
			assert.Equal(t, test.leaving, leaving)
			assert.Equal(t, test.open, open)
		})
	}
	t.Run("visited meanwhile", func(t *testing.T) {
		l := ledger.New()
		done := make(chan []string)
		go func() {
			leaving, _ := l.AwaitFates(context.Background(), []string{"default/a"}, 2, time.Hour)
			done <- leaving
		}()
		require.Eventually(t, func() bool { return ledger.Listens(l) }, time.Minute, time.Millisecond)
		l.DeleteJob("default/a")
		assert.Equal(t, []string{"default/a"}, <-done)
	})
}

// A deletion that begins or ends wakes whoever waits for it.
func TestDeletionsOfAnApply(t *testing.T) {
	l := ledger.New()
	l.StartApplying()
	l.ExpectDeletions([]string{"default/a"})
	assert.True(t, l.ExpectsDeletion("default/a"))
	assert.False(t, l.ExpectsDeletion("default/b"))
	going := make(chan bool)
	wait := func() {
		go func() { going <- l.AwaitDeletion(context.Background(), time.Hour) }()
		require.Eventually(t, func() bool { return ledger.Listens(l) }, time.Minute, time.Millisecond)
	}
	wait()
	end := l.BeginDeletion()
	assert.True(t, <-going)
	wait()
	end()
	assert.False(t, <-going)
}
