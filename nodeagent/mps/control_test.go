package mps

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// table is what a driver of version 580 has answered to ps.
const table = `PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        
672       4         612            GPU-eee1c3c8-424e-0171    4026532340     /tmp/t         
671       5         612            GPU-eee1c3c8-424e-0171    4026532267     /tmp/t         
`

func TestParseClients(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		want   []client
		bad    bool
	}{
		"two":              {table, []client{{672, 612}, {671, 612}}, false},
		"nobody":           {"", nil, false},
		"only a head":      {"PID       ID        SERVER         DEVICE             NAMESPACE      COMMAND", nil, false},
		"no server":        {"Server not found", nil, false},
		"two contexts":     {strings.ReplaceAll(table, "671", "672"), []client{{672, 612}, {672, 612}}, false},
		"words in command": {table + "9 7 612 GPU-e 1 python -c x PID", []client{{672, 612}, {671, 612}, {9, 612}}, false},
		"unseen":           {table + "0 7 612 GPU-e 1 x", []client{{672, 612}, {671, 612}, {0, 612}}, false},
		"another order":    {"SERVER PID\n1 2", []client{{2, 1}}, false},
		"half a line":      {table + "9 7", nil, true},
		"no number":        {table + "x 7 612 GPU-e 1 x", nil, true},
		"no table":         {"Unknown command \"ps\"", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseClients(strings.TrimSpace(test.answer))
			assert.Equal(t, !test.bad, ok)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestParsePIDs(t *testing.T) {
	for answer, want := range map[string][]int{"": nil, "612": {612}, "612\n766\n": {612, 766}} {
		got, ok := parsePIDs(answer)
		assert.True(t, ok)
		assert.Equal(t, want, got)
	}
	for _, answer := range []string{"Server not found", "0", "-3", "1.5", "99999999999999999999"} {
		_, ok := parsePIDs(answer)
		assert.False(t, ok, answer)
	}
}

func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{"", table, "Server not found", "612\n766", "PID SERVER\n1", "PID\n\n", "SERVER PID\n-1 \xff", strings.Repeat("a\xff", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		if pids, ok := parsePIDs(answer); ok {
			for _, pid := range pids {
				assert.Positive(t, pid)
			}
		} else {
			assert.Nil(t, pids)
		}
		clients, ok := parseClients(answer)
		if !ok {
			assert.Nil(t, clients)
		}
		assert.LessOrEqual(t, len(clients), strings.Count(answer, "\n"))
		assert.LessOrEqual(t, len(short(answer)), 210)
		assert.True(t, utf8.ValidString(short(answer)))
	})
}
