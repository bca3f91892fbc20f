package program

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FlagDuration is the duration of a flag of a workload's container, null without it. A
// written one of the same length keeps its spelling.
func FlagDuration(workload *unstructured.Unstructured, name string, written types.String) types.String {
	return Duration(Flag(workload, name), written, -1)
}

// Duration is a duration that was read back, null when there is none. A written one of the
// same length keeps its spelling, and what is the default without being written stays so.
func Duration(text string, written types.String, byDefault time.Duration) types.String {
	live, err := time.ParseDuration(text)
	if err != nil || written.IsNull() && live == byDefault {
		return types.StringNull()
	}
	if d, err := time.ParseDuration(written.ValueString()); err == nil && d == live {
		return written
	}
	return types.StringValue(live.String())
}

// ParseDuration reads a duration, 0 for null.
func ParseDuration(value types.String) (time.Duration, error) {
	if value.ValueString() == "" {
		return 0, nil
	}
	return time.ParseDuration(value.ValueString())
}
