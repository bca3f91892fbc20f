package usage_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/usage"
)

// meter is a driver with failures.
type meter struct {
	gpus []hardware.Usage
	err  error
	// hangs ends a look when it is closed, nil for at once.
	hangs chan struct{}
}

func (m *meter) Usage(context.Context) ([]hardware.Usage, error) {
	if m.hangs != nil {
		<-m.hangs
	}
	return m.gpus, m.err
}

// write writes a file and the folders that it is in.
func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// scrape is what Prometheus reads, without what explains it.
func scrape(t *testing.T, c *usage.Collector) []string {
	t.Helper()
	m := metrics.New()
	require.NoError(t, m.Add(c))
	response := httptest.NewRecorder()
	m.Handler().ServeHTTP(response, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, response.Code, response.Body)
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(response.Body.String()), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#")
	})
}

func values(total float64) map[hardware.Quantity]float64 {
	return map[hardware.Quantity]float64{hardware.MemoryTotal: total, hardware.MemoryUsed: total / 2, hardware.Utilization: 0.75}
}

// everything is what a GPU can tell.
var everything = map[hardware.Quantity]float64{
	hardware.Utilization: 0.9, hardware.MemoryUsed: 1024, hardware.MemoryTotal: 4096, hardware.Power: 61.5, hardware.Temperature: 71, hardware.Clock: 1.5e9,
	hardware.SlowedByPower: 1, hardware.SlowedByHeat: 0, hardware.SlowedByHardware: 0, hardware.Energy: 5, hardware.ECCCorrected: 4, hardware.ECCUncorrected: 2,
	hardware.NVLinkReceived: 10, hardware.NVLinkSent: 20,
}

func TestGPUs(t *testing.T) {
	sysfs := t.TempDir()
	write(t, filepath.Join(sysfs, "class/infiniband/erdma_0/ports/1/state"), "4: ACTIVE\n")
	write(t, filepath.Join(sysfs, "class/infiniband/erdma_0/ports/1/hw_counters/rx_bytes_cnt"), "7\n")
	c := &usage.Collector{Node: "n1", Sysfs: sysfs, Limit: time.Minute, Meter: &meter{gpus: []hardware.Usage{
		{GPU: "GPU-a", Index: 0, Values: everything}, {GPU: "\xffGPU", Index: 1, Values: map[hardware.Quantity]float64{hardware.Power: 3, "Unheard": 1}},
	}}}
	assert.Equal(t, []string{
		`gpuplan_gpu_clock_hertz{gpu="0",node="n1",uuid="GPU-a"} 1.5e+09`,
		`gpuplan_gpu_ecc_errors_total{gpu="0",kind="corrected",node="n1",uuid="GPU-a"} 4`,
		`gpuplan_gpu_ecc_errors_total{gpu="0",kind="uncorrected",node="n1",uuid="GPU-a"} 2`,
		`gpuplan_gpu_energy_joules_total{gpu="0",node="n1",uuid="GPU-a"} 5`,
		`gpuplan_gpu_memory_total_bytes{gpu="0",node="n1",uuid="GPU-a"} 4096`,
		`gpuplan_gpu_memory_used_bytes{gpu="0",node="n1",uuid="GPU-a"} 1024`,
		`gpuplan_gpu_nvlink_received_bytes_total{gpu="0",node="n1",uuid="GPU-a"} 10`,
		`gpuplan_gpu_nvlink_sent_bytes_total{gpu="0",node="n1",uuid="GPU-a"} 20`,
		`gpuplan_gpu_power_watts{gpu="0",node="n1",uuid="GPU-a"} 61.5`,
		`gpuplan_gpu_power_watts{gpu="1",node="n1",uuid="�GPU"} 3`,
		`gpuplan_gpu_slowed{gpu="0",node="n1",reason="hardware",uuid="GPU-a"} 0`,
		`gpuplan_gpu_slowed{gpu="0",node="n1",reason="heat",uuid="GPU-a"} 0`,
		`gpuplan_gpu_slowed{gpu="0",node="n1",reason="power",uuid="GPU-a"} 1`,
		`gpuplan_gpu_temperature_celsius{gpu="0",node="n1",uuid="GPU-a"} 71`,
		`gpuplan_gpu_utilization_ratio{gpu="0",node="n1",uuid="GPU-a"} 0.9`,
		`gpuplan_rdma_port_active{device="erdma_0",node="n1",port="1"} 1`,
		`gpuplan_rdma_received_bytes_total{device="erdma_0",node="n1",port="1"} 7`,
	}, scrape(t, c))
}

// When the driver loses a GPU it numbers the others again, and the published indexes stay.
func TestIndexes(t *testing.T) {
	m := metrics.New()
	m.Seen("n1", hardware.Reading{Machine: gpu.Machine{GPUs: []gpu.GPU{{Index: 0, UUID: "GPU-lost"}, {Index: 1, UUID: "GPU-a"}}}},
		[]health.Verdict{{State: health.Unhealthy}, {State: health.Healthy}}, true)
	power := map[hardware.Quantity]float64{hardware.Power: 1}
	c := &usage.Collector{
		Node: "n1", Sysfs: t.TempDir(), Limit: time.Minute, Index: func(gpu string) (int, bool) { return m.Index("n1", gpu) },
		Meter: &meter{gpus: []hardware.Usage{{GPU: "GPU-a", Index: 0, Values: power}, {GPU: "GPU-new", Index: 2, Values: power}}},
	}
	assert.Equal(t, []string{`gpuplan_gpu_power_watts{gpu="1",node="n1",uuid="GPU-a"} 1`, `gpuplan_gpu_power_watts{gpu="2",node="n1",uuid="GPU-new"} 1`}, scrape(t, c))
	m.Gone("n1")
	assert.Contains(t, scrape(t, c), `gpuplan_gpu_power_watts{gpu="0",node="n1",uuid="GPU-a"} 1`)
}

func TestContainers(t *testing.T) {
	alone := usage.Holder{Namespace: "ns", Pod: "alone", UID: "u-1", Container: "main", ContainerID: "containerd://c1", Gang: "ns/g", GPU: "GPU-a"}
	half := usage.Holder{Namespace: "ns", Pod: "half", UID: "u-2", Container: "main", ContainerID: "containerd://c2", GPU: "GPU-b", MemoryLimit: 2048, CoresLimit: 0.5}
	quarter := usage.Holder{Namespace: "ns", Pod: "quarter", UID: "u-3", Container: "main", GPU: "GPU-b", MemoryLimit: 1024}
	groups := map[string]string{"10": "/kubepods/podu-1/c1", "20": "/kubepods/podu-2/c2", "21": "/kubepods/podu-2/c2", "22": "/kubepods/podu-2/other", "30": "/user.slice"}
	limits := func(pod, gang, uuid, gpu, memory, cores string) []string {
		at := `{container="main",gang="` + gang + `",gpu="` + gpu + `",namespace="ns",node="n1",pod="` + pod + `",uuid="` + uuid + `"} `
		return []string{`gpuplan_container_gpu_cores_limit_ratio` + at + cores, `gpuplan_container_gpu_memory_limit_bytes` + at + memory}
	}
	used := func(pod, gang, uuid, gpu, memory, ratio string) []string {
		at := `{container="main",gang="` + gang + `",gpu="` + gpu + `",namespace="ns",node="n1",pod="` + pod + `",uuid="` + uuid + `"} `
		lines := []string{`gpuplan_container_gpu_memory_used_bytes` + at + memory}
		if ratio != "" {
			lines = append(lines, `gpuplan_container_gpu_utilization_ratio`+at+ratio)
		}
		return lines
	}
	for name, test := range map[string]struct {
		holders []usage.Holder
		a, b    []hardware.Process
		want    [][]string
	}{
		"alone, its processes are not seen": {
			holders: []usage.Holder{alone},
			want:    [][]string{limits("alone", "ns/g", "GPU-a", "0", "4096", "1"), used("alone", "ns/g", "GPU-a", "0", "2048", "0.75")},
		},
		"alone, beside a process of nobody": {
			holders: []usage.Holder{alone}, a: []hardware.Process{{PID: 10, Memory: 100, Utilization: 0.25}, {PID: 30, Memory: 900, Utilization: 0.5}},
			want: [][]string{limits("alone", "ns/g", "GPU-a", "0", "4096", "1"), used("alone", "ns/g", "GPU-a", "0", "100", "0.25")},
		},
		"two share a GPU, and nobody sees who does what": {
			holders: []usage.Holder{half, quarter}, b: []hardware.Process{{PID: 99, Memory: 1}},
			want: [][]string{limits("half", "", "GPU-b", "1", "2048", "0.5"), limits("quarter", "", "GPU-b", "1", "1024", "1")},
		},
		"of two that share a GPU one has three processes, one of another container": {
			holders: []usage.Holder{half, quarter},
			b:       []hardware.Process{{PID: 20, Memory: 100, Utilization: 0.25}, {PID: 21, Memory: 200, Utilization: -1}, {PID: 22, Memory: 400, Utilization: 0.5}},
			want: [][]string{
				limits("half", "", "GPU-b", "1", "2048", "0.5"), used("half", "", "GPU-b", "1", "300", "0.25"),
				limits("quarter", "", "GPU-b", "1", "1024", "1"),
			},
		},
		"alone, its process does nothing": {
			holders: []usage.Holder{alone}, a: []hardware.Process{{PID: 10, Memory: 100}},
			want: [][]string{limits("alone", "ns/g", "GPU-a", "0", "4096", "1"), used("alone", "ns/g", "GPU-a", "0", "100", "0")},
		},
		"alone, and its process does not tell its utilization": {
			holders: []usage.Holder{alone}, a: []hardware.Process{{PID: 10, Memory: 100, Utilization: -1}},
			want: [][]string{limits("alone", "ns/g", "GPU-a", "0", "4096", "1"), used("alone", "ns/g", "GPU-a", "0", "100", "0.75")},
		},
		"clients of MPS do not tell their utilization": {
			holders: []usage.Holder{half, quarter}, b: []hardware.Process{{PID: 20, Memory: 100, Utilization: -1}},
			want: [][]string{
				limits("half", "", "GPU-b", "1", "2048", "0.5"), used("half", "", "GPU-b", "1", "100", ""),
				limits("quarter", "", "GPU-b", "1", "1024", "1"),
			},
		},
		"a GPU that does not answer": {holders: []usage.Holder{{Namespace: "ns", Pod: "p", GPU: "GPU-lost"}}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			for pid, group := range groups {
				write(t, filepath.Join(proc, pid, "cgroup"), "0::"+group+"\n")
			}
			c := &usage.Collector{
				Node: "n1", Proc: proc, Sysfs: t.TempDir(), Limit: time.Minute, Holders: func() []usage.Holder { return test.holders },
				Meter: &meter{gpus: []hardware.Usage{
					{GPU: "GPU-a", Index: 0, Values: values(4096), Processes: test.a}, {GPU: "GPU-b", Index: 1, Values: values(4096), Processes: test.b},
				}},
			}
			found := slices.DeleteFunc(scrape(t, c), func(line string) bool { return !strings.HasPrefix(line, "gpuplan_container_") })
			assert.ElementsMatch(t, slices.Concat(test.want...), found)
		})
	}
}

// A driver that hangs is asked once, and holds nobody up.
func TestDriverThatHangs(t *testing.T) {
	driver := &meter{gpus: []hardware.Usage{{GPU: "GPU-a", Values: values(1)}}, hangs: make(chan struct{})}
	c := &usage.Collector{Node: "n1", Meter: driver, Sysfs: t.TempDir(), Limit: time.Millisecond}
	assert.Empty(t, scrape(t, c))
	assert.Empty(t, scrape(t, c))
	c.Limit = time.Minute
	close(driver.hangs)
	assert.Len(t, scrape(t, c), 3, "what ended late is the answer")
}

func TestDriverThatFails(t *testing.T) {
	c := &usage.Collector{Node: "n1", Meter: &meter{err: errors.New("no driver")}, Sysfs: t.TempDir(), Limit: time.Minute}
	assert.Empty(t, scrape(t, c))
}
