package trainingjob

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Several that say the same are quoted once, whoever adds something to it.
func TestBecause(t *testing.T) {
	const verdict = "2 of 4 members fit: 1 node has no free GPU left. Nearest fix: pool size 3 (now 2) for pool v100."
	for name, test := range map[string]struct {
		err     string
		reasons []said
		want    string
	}{
		"nobody":        {"timed out", []said{{"the scheduler says", ""}}, "timed out"},
		"one":           {"timed out", []said{{"the scheduler says", "it waits."}}, "timed out; the scheduler says: it waits"},
		"two":           {"timed out", []said{{"the operator says", "no"}, {"the scheduler says", "it waits"}}, "timed out; the operator says: no; the scheduler says: it waits"},
		"two alike":     {"timed out", []said{{"the operator says", verdict}, {"the scheduler says", verdict}}, "timed out; the scheduler says: " + verdict[:len(verdict)-1]},
		"one adds":      {"timed out", []said{{"the scheduler says", "it waits"}, {"the job queue says", "released, it waits"}}, "timed out; the job queue says: released, it waits"},
		"the other way": {"timed out", []said{{"the scheduler says", "released, it waits"}, {"the job queue says", "it waits"}}, "timed out; the scheduler says: released, it waits"},
		"status":        {"last status: it waits", []said{{"the scheduler says", "it waits."}}, "last status: it waits"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.EqualError(t, because(errors.New(test.err), test.reasons), test.want)
		})
	}
}
