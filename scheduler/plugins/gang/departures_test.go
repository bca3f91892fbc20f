package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestDepartures is about evictions that wait for pods that leave one by one.
func TestDepartures(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	every := func(interval, until float64) (list []float64) {
		for s := 0.0; s <= until; s += interval {
			list = append(list, s)
		}
		return list
	}
	for name, test := range map[string]struct {
		leave []float64
		now   float64
		want  time.Duration
	}{
		"nobody leaves":                        {now: 5},
		"a pod has just begun to leave":        {leave: []float64{0}, now: 0, want: departurePause},
		"it began a while ago":                 {leave: []float64{0}, now: 0.75, want: departurePause / 4},
		"it began long ago":                    {leave: []float64{0}, now: 5},
		"others followed it":                   {leave: []float64{0, 0.75}, now: 1.25, want: departurePause / 2},
		"pods leave all the time":              {leave: every(0.5, 9.5), now: 9.75, want: maxDeparturePause / 40},
		"pods leave for too long":              {leave: every(0.5, 20), now: 20},
		"pods have left for long, and again":   {leave: append(every(0.5, 20), 22), now: 22, want: departurePause},
		"the clock stands before the last one": {leave: []float64{5}, now: 4.5, want: departurePause * 3 / 2},
	} {
		t.Run(name, func(t *testing.T) {
			var d departures
			for _, s := range test.leave {
				d.note(at(s))
			}
			assert.Equal(t, test.want, d.pause(at(test.now)))
		})
	}
}
