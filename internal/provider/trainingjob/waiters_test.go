package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A job that has waited for a while, for a volume claim say, holds nobody back; one whose pods come or go begins again.
func TestWaiters(t *testing.T) {
	begin, waits := time.Now(), waiters{}
	pending := []string{"default/slow", "default/stuck"}
	for _, test := range []struct {
		after   time.Duration
		waiting []string
		want    []string
	}{
		{0, nil, pending},
		{1 * time.Second, []string{"default/stuck"}, pending},
		{5 * time.Second, []string{"default/stuck"}, pending},
		{6 * time.Second, []string{"default/stuck", "default/slow"}, []string{"default/slow"}},
		{7 * time.Second, []string{"default/slow"}, pending},
		{8 * time.Second, []string{"default/stuck", "default/slow"}, pending},
		{11 * time.Second, []string{"default/stuck", "default/slow"}, []string{"default/stuck"}},
		{20 * time.Second, []string{"default/stuck", "default/slow"}, nil},
	} {
		assert.Equal(t, test.want, waits.others(pending, test.waiting, begin.Add(test.after)), test.after)
	}
}
