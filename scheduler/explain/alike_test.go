package explain

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is said of many pods alike is said once; what differs is said of each.
func TestWriteAllSaysTheSameOnce(t *testing.T) {
	waits := func(name, why string, minute int64) Answer {
		return Answer{
			Gang: "ns/" + name, Pod: true, State: Waiting, Needed: 1,
			Roles: []Role{{Name: "pod", Members: 1, Asks: "8 GPUs"}}, Reasons: []Reason{{Text: why}},
			Said: "no room", Since: time.Unix(60*minute, 0),
			Places: []Place{{Member: name, Node: "a", GPUs: []int{0}}},
		}
	}
	var answers []Answer
	for i, name := range []string{"job-8", "job-9", "job-10", "job-11"} {
		answers = append(answers, waits(name, "1 node is full", int64(i)))
	}
	answers = append(answers, waits("job-12", "1 node is cordoned", 0))
	now := time.Unix(6000, 0)
	write := func(a Answer, w *strings.Builder) { require.NoError(t, a.WriteText(w, now)) }
	var want, got strings.Builder
	write(answers[0], &want)
	want.WriteString("\nThe same of 3 more: ns/job-9, ns/job-10, ns/job-11.\n\n")
	write(answers[4], &want)
	require.NoError(t, WriteAll(&got, answers, func(a Answer, w io.Writer) error { return a.WriteText(w, now) }))
	assert.Equal(t, want.String(), got.String())
}
