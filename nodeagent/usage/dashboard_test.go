package usage_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/usage"
)

// series are the metrics that the agent serves, with their labels.
func series(t *testing.T) map[string]map[string]bool {
	t.Helper()
	sysfs := t.TempDir()
	for _, counter := range []string{"rx_bytes_cnt", "tx_bytes_cnt"} {
		write(t, filepath.Join(sysfs, "class/infiniband/erdma_0/ports/1/hw_counters", counter), "1\n")
	}
	m := metrics.New()
	signals := []hardware.Signal{{GPU: "GPU-a", Kind: hardware.XID, Number: 79}}
	m.Seen("n1", hardware.Reading{Machine: gpu.Machine{GPUs: []gpu.GPU{{UUID: "GPU-a"}}}, Signals: signals}, []health.Verdict{{State: health.Healthy}}, true)
	m.Signalled("n1", signals)
	require.NoError(t, m.Add(&usage.Collector{
		Node: "n1", Sysfs: sysfs, Limit: time.Minute, Meter: &meter{gpus: []hardware.Usage{{GPU: "GPU-a", Values: everything}}},
		Holders: func() []usage.Holder {
			return []usage.Holder{{Namespace: "ns", Pod: "p", Container: "main", Gang: "ns/g", GPU: "GPU-a"}}
		},
	}))
	response := httptest.NewRecorder()
	m.Handler().ServeHTTP(response, httptest.NewRequest("GET", "/metrics", nil))
	served := map[string]map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^(gpuplan_\w+)\{(.*)\} `).FindAllStringSubmatch(response.Body.String(), -1) {
		served[found[1]] = map[string]bool{}
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[2], -1) {
			served[found[1]][label[1]] = true
		}
	}
	return served
}

// The dashboard asks for metrics and labels that the agent has.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/dashboards/gpus.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)

	served := series(t)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if strings.Contains(target.Expr, "increase(gpuplan_gpu_signals_total") {
				assert.Contains(t, target.Expr, "unless gpuplan_gpu_signals_total", "%s: a series begins with 1 at the first signal of its kind, which is no increase", panel.Title)
			}
			names := regexp.MustCompile(`gpuplan_\w+`).FindAllString(target.Expr, -1)
			require.NotEmpty(t, names, panel.Title)
			labels := regexp.MustCompile(`(\w+)=~|\{\{(\w+)\}\}`).FindAllStringSubmatch(target.Expr+target.LegendFormat, -1)
			for _, name := range names {
				require.Contains(t, served, name, panel.Title)
				for _, label := range labels {
					assert.Contains(t, served[name], label[1]+label[2], "%s: %s", panel.Title, name)
				}
			}
		}
	}
}

// So do the alerts.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/dashboards/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	require.Len(t, file.Groups, 1)
	served := series(t)
	for _, rule := range file.Groups[0].Rules {
		assert.NotEmpty(t, rule.For, rule.Alert)
		assert.NotEmpty(t, rule.Labels["severity"], rule.Alert)
		names := regexp.MustCompile(`gpuplan_\w+`).FindAllString(rule.Expr, -1)
		require.NotEmpty(t, names, rule.Alert)
		told := regexp.MustCompile(`labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1)
		require.NotEmpty(t, told, rule.Alert)
		for _, name := range names {
			require.Contains(t, served, name, rule.Alert)
			for _, label := range told {
				assert.Contains(t, served[name], label[1], "%s: %s", rule.Alert, name)
			}
		}
	}
}

// What is installed is there.
func TestKustomization(t *testing.T) {
	text, err := os.ReadFile("../../deploy/dashboards/kustomization.yaml")
	require.NoError(t, err)
	var file struct {
		ConfigMapGenerator []struct{ Files []string }
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.ConfigMapGenerator, 1)
	for _, name := range file.ConfigMapGenerator[0].Files {
		assert.FileExists(t, filepath.Join("../../deploy/dashboards", name))
	}
}
