package metrics_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
)

func scrape(m *metrics.Metrics) string {
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	return recorder.Body.String()
}

func TestMetrics(t *testing.T) {
	m := metrics.New()
	reading := hardware.Reading{
		Machine: gpu.Machine{GPUs: []gpu.GPU{{Index: 0, UUID: "GPU-0"}, {Index: 3, UUID: "GPU-3"}}},
		Signals: []hardware.Signal{{GPU: "GPU-3", Kind: hardware.XID, Number: 95}, {GPU: "GPU-3", Kind: hardware.RowRemapFailed}},
	}
	m.Seen("n1", reading, []health.Verdict{{State: health.Healthy}, {State: health.Unhealthy}}, true)
	m.Signalled("n1", reading.Signals)
	m.Yields("n1", false)
	m.Published("n1", nil)
	m.Published("n1", errors.New("no"))

	text := scrape(m)
	for _, line := range []string{
		`gpuplan_gpu_usable{gpu="0",node="n1",uuid="GPU-0"} 1`,
		`gpuplan_gpu_usable{gpu="3",node="n1",uuid="GPU-3"} 0`,
		`gpuplan_gpu_state{gpu="3",node="n1",state="Unhealthy"} 1`,
		`gpuplan_gpu_signals_total{kind="XID",node="n1",uuid="GPU-3",xid="95"} 1`,
		`gpuplan_gpu_signals_total{kind="RowRemapFailed",node="n1",uuid="GPU-3",xid=""} 1`,
		`gpuplan_gpus_readable{node="n1"} 1`,
		`gpuplan_gpu_events_followed{node="n1"} 1`,
		`gpuplan_agent_yields{node="n1"} 0`,
		`gpuplan_publications_total{node="n1",result="ok"} 1`,
		`gpuplan_publications_total{node="n1",result="error"} 1`,
	} {
		assert.Contains(t, text, line)
	}

	m.Seen("n1", hardware.Reading{Machine: reading.Machine, Blind: "no events"}, []health.Verdict{{State: health.Healthy}, {State: health.Recovering}}, true)
	text = scrape(m)
	assert.Contains(t, text, `gpuplan_gpu_events_followed{node="n1"} 0`)
	assert.NotContains(t, text, `state="Unhealthy"`, "a GPU is in one state")
	assert.Contains(t, text, `state="Recovering"`)

	m.Seen("n1", reading, []health.Verdict{{State: health.Healthy}, {State: health.Recovering}}, false)
	assert.Contains(t, scrape(m), `gpuplan_gpu_usable{gpu="0",node="n1",uuid="GPU-0"} 0`, "nobody knows how it is now")

	m.Gone("n1")
	assert.Empty(t, scrape(m))
}

// What a driver says may be no text at all.
func TestLabelsAreText(t *testing.T) {
	m := metrics.New()
	broken := gpu.GPU{UUID: "GPU-\xff"}
	m.Seen("n1", hardware.Reading{Machine: gpu.Machine{GPUs: []gpu.GPU{broken}}}, []health.Verdict{{State: health.Healthy}}, true)
	m.Signalled("n1", []hardware.Signal{{GPU: broken.UUID, Kind: hardware.XID, Number: 79}})
	assert.Contains(t, scrape(m), "GPU-\uFFFD")
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- metrics.New().Serve(ctx, "127.0.0.1:0") }()
	cancel()
	select {
	case err := <-done:
		assert.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
	assert.ErrorContains(t, metrics.New().Serve(context.Background(), "nonsense"), "serve metrics on nonsense")
}
