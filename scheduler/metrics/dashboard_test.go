package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

const monitoring = "../deploy/monitoring/"

// names are the metrics that the program registers, with the series of histograms.
func names() map[string]bool {
	found := map[string]bool{}
	New(clustercache.New()).Register(func(all ...metrics.Registerable) {
		for _, r := range all {
			name := r.FQName()
			found[name] = true
			if _, ok := r.(interface{ Observe(float64) }); ok || strings.HasSuffix(name, "_seconds") {
				found[name+"_bucket"], found[name+"_count"], found[name+"_sum"] = true, true, true
			}
		}
	}, func(all ...metrics.StableCollector) {
		for _, c := range all {
			ch := make(chan *metrics.Desc, 100)
			c.DescribeWithStability(ch)
			close(ch)
			for desc := range ch {
				found[fqName.FindStringSubmatch(desc.String())[1]] = true
			}
		}
	})
	return found
}

var (
	fqName  = regexp.MustCompile(`fqName: "([^"]+)"`)
	inQuery = regexp.MustCompile(`\bgpuplan_[a-z_]+`)
)

func requireKnown(t *testing.T, known map[string]bool, query string) {
	t.Helper()
	used := inQuery.FindAllString(query, -1)
	assert.NotEmpty(t, used, query)
	for _, name := range used {
		assert.True(t, known[name], "%s in %q is no metric of the program", name, query)
	}
}

func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, RefID string }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &dashboard))
	known, used := names(), map[string]bool{}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, panel := range dashboard.Panels {
		assert.False(t, ids[panel.ID], "panel %d is there twice", panel.ID)
		ids[panel.ID] = true
		assert.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		for x := range panel.GridPos.W {
			for y := range panel.GridPos.H {
				at := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
				require.Empty(t, taken[at], "%s lies on it", panel.Title)
				taken[at] = panel.Title
			}
		}
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			requireKnown(t, known, target.Expr)
			for _, name := range inQuery.FindAllString(target.Expr, -1) {
				used[name] = true
			}
		}
	}
	for name := range known {
		series := used[name] || used[name+"_bucket"] || used[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")+"_bucket"]
		assert.True(t, series, "%s is in no panel", name)
	}
}

func TestAlerts(t *testing.T) {
	raw, err := os.ReadFile(monitoring + "alerts.yaml")
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
	require.NoError(t, yaml.UnmarshalStrict(raw, &file))
	require.NotEmpty(t, file.Groups)
	for _, rule := range file.Groups[0].Rules {
		requireKnown(t, names(), rule.Expr)
		assert.NotEmpty(t, rule.For, rule.Alert)
		assert.NotEmpty(t, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
	}
}
