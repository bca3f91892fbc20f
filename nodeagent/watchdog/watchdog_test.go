package watchdog_test

import (
	"context"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

// hanging is a source that answers when it is let.
type hanging struct {
	hardware.Source
	answers chan hardware.Reading
	reads   atomic.Int64
}

func (h *hanging) Read(context.Context) (hardware.Reading, error) {
	h.reads.Add(1)
	return <-h.answers, nil
}

func TestReadsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &hanging{answers: make(chan hardware.Reading)}
		source := &watchdog.Source{Source: driver, Limit: watchdog.ReadLimit}

		_, err := source.Read(t.Context())
		assert.ErrorContains(t, err, "the driver has not answered since 2000-01-01T00:00:00Z")
		_, err = source.Read(t.Context())
		assert.ErrorContains(t, err, "the driver has not answered since 2000-01-01T00:00:00Z")
		assert.EqualValues(t, 1, driver.reads.Load(), "a driver that hangs is asked once")

		driver.answers <- hardware.Reading{DriverVersion: "late"}
		reading, err := source.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "late", reading.DriverVersion, "what was read is not lost")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = source.Read(ctx)
		assert.ErrorIs(t, err, context.Canceled, "an agent that is told to stop does not wait")
		driver.answers <- hardware.Reading{}
	})
}

func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alive watchdog.Alive
		probe := func() int {
			answer := httptest.NewRecorder()
			alive.ServeHTTP(answer, httptest.NewRequest("GET", "/healthz", nil))
			return answer.Code
		}
		assert.Equal(t, 200, probe())
		alive.Beat("n")
		time.Sleep(4 * time.Minute)
		assert.Equal(t, 200, probe())
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 503, probe(), "the loop hangs")
		alive.Gone("n")
		assert.Equal(t, 200, probe())
	})
}
