package fleet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	o := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(data, &o.Object))
	return o
}

func text(t testing.TB, of map[string]any) string {
	t.Helper()
	data, err := json.Marshal(of)
	require.NoError(t, err)
	return string(data)
}

func TestBindingsOfOurs(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		ours bool
	}{
		"ours":                {`{metadata: {name: b}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}}}`, true},
		"Karmada's":           {`{metadata: {name: b}, spec: {schedulerName: default-scheduler, placement: {}}}`, false},
		"of a dependency":     {`{metadata: {name: b}, spec: {schedulerName: gpuplan-fleet-scheduler}}`, false},
		"one that is leaving": {`{metadata: {name: b, deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := bindingOf(object(t, test.text))
			require.NoError(t, err)
			assert.Equal(t, test.ours, b.ours())
		})
	}
}
