package fleet

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReadiness(t *testing.T) {
	condition := func(kind, status, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "message": message}
	}
	for name, test := range map[string]struct {
		conditions []any
		ready      bool
		message    string
	}{
		"new":               {message: "not looked at yet"},
		"forgotten":         {conditions: []any{}, message: "not looked at yet"},
		"of something else": {conditions: []any{condition("CompleteAPIEnablements", "True", "")}, message: "not looked at yet"},
		"ready":             {conditions: []any{condition("Other", "False", "x"), condition("Ready", "True", "healthy")}, ready: true, message: "healthy"},
		"not ready":         {conditions: []any{condition("Ready", "False", "cluster is not reachable")}, message: "cluster is not reachable"},
		"without a word":    {conditions: []any{condition("Ready", "Unknown", "")}, message: "no reason is given"},
	} {
		t.Run(name, func(t *testing.T) {
			ready, message := readiness(cluster("member-1", map[string]any{"status": map[string]any{"conditions": test.conditions}}))
			assert.Equal(t, test.ready, ready)
			assert.Equal(t, test.message, message)
		})
	}
}
