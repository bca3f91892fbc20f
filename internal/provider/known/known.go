// Package known says of which values of a configuration a plan knows everything.
package known

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
)

// Wholly reports whether no part of the values, an element of a list for one, is unknown
// until apply. Null is known.
func Wholly(ctx context.Context, values ...attr.Value) bool {
	return !slices.ContainsFunc(values, func(value attr.Value) bool {
		full, err := value.ToTerraformValue(ctx)
		return err != nil || !full.IsFullyKnown()
	})
}

// Set reports whether a value is set: neither null nor unknown until apply.
func Set(value attr.Value) bool { return !value.IsNull() && !value.IsUnknown() }
