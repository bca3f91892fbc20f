package kubetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Conditions keep their order, so that a patch that changes none is no write.
func TestKeepConditions(t *testing.T) {
	condition := func(name, status string) any { return map[string]any{"type": name, "status": status} }
	with := func(conditions ...any) map[string]any {
		return map[string]any{"status": map[string]any{"conditions": conditions}}
	}
	tests := map[string]struct{ have, sent, want map[string]any }{
		"none sent":   {with(condition("A", "True")), map[string]any{"status": map[string]any{}}, map[string]any{"status": map[string]any{}}},
		"none before": {map[string]any{}, with(condition("A", "True")), with(condition("A", "True"))},
		"the same":    {with(condition("A", "True"), condition("B", "True")), with(condition("B", "True")), with(condition("A", "True"), condition("B", "True"))},
		"another":     {with(condition("A", "True"), condition("B", "True")), with(condition("A", "False")), with(condition("A", "False"), condition("B", "True"))},
		"a new one":   {with(condition("B", "True")), with(condition("A", "True")), with(condition("B", "True"), condition("A", "True"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			keepConditions(test.have, test.sent)
			assert.Equal(t, test.want, test.sent)
		})
	}
}
