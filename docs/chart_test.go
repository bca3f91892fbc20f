package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// chartSetting is a setting of the chart as pages name it, with its default where that stands behind it.
var chartSetting = regexp.MustCompile("`((?:scheduler|queue|hub|fleet|nodeAgent)\\.[a-z]\\w*)`(?:: ([\\w-]+)| \\(`?([\\w-]+)`?[,)])?")

// Settings of the chart that pages name exist, and have the defaults that stand behind them.
func TestSettingsOfTheChart(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/charts/gpuplan/values.yaml"))
	require.NoError(t, err)
	var values map[string]map[string]any
	require.NoError(t, yaml.Unmarshal(text, &values))
	named, defaults := 0, 0
	for _, p := range pages(t, read(t)) {
		if p.path == "CHANGELOG.md" {
			continue
		}
		for _, m := range chartSetting.FindAllStringSubmatch(p.text, -1) {
			program, name, _ := strings.Cut(m[1], ".")
			value, found := values[program][name]
			assert.True(t, found, "%s: the chart has no %s", p.path, m[1])
			named++
			if says := m[2] + m[3]; says != "" {
				defaults++
				assert.Equal(t, says, fmt.Sprint(value), "%s: %s", p.path, m[1])
			}
		}
	}
	assert.Greater(t, named, 10)
	assert.Greater(t, defaults, 4)
}
