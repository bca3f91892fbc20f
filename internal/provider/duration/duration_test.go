package duration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
)

// Bounds are written as people write them: the longest was "2160h0m0s".
func TestBoundsInWords(t *testing.T) {
	for most, want := range map[time.Duration]string{
		90 * 24 * time.Hour: "2160h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 100 * time.Second: "1m40s",
		time.Hour + time.Second: "1h0m1s", 30 * time.Second: "30s", 1500 * time.Millisecond: "1.5s",
	} {
		between := duration.Between{Least: time.Second, Most: most}
		assert.Equal(t, "must be a positive duration such as 30s or 5m, from 1s to "+want, between.Description(t.Context()))
	}
}
