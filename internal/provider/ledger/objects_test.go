package ledger_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// An object belongs to the first resource that takes it, and only one changes it at a time.
func TestObjects(t *testing.T) {
	l := ledger.New()
	assert.False(t, l.Taken("job default/a"))
	var inside, taken atomic.Int32
	var done sync.WaitGroup
	for range 20 {
		done.Go(func() {
			defer l.Begin("job default/a")()
			assert.EqualValues(t, 1, inside.Add(1), "one at a time")
			defer inside.Add(-1)
			if l.Take("job default/a") {
				taken.Add(1)
			}
		})
	}
	done.Wait()
	assert.EqualValues(t, 1, taken.Load())
	assert.True(t, l.Taken("job default/a"))
	assert.True(t, l.Take("job default/b"), "another object is another's")
	end := l.Begin("job default/a")
	l.Begin("job default/b")() // does not wait
	end()
}
