package mode

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
)

// Names lists the modes of the catalogue that are to be kept.
func Names(keep func(catalog.Mode) bool) (names []string) {
	for _, m := range catalog.Modes() {
		if keep(m) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Exists checks that a text is a mode of the catalogue.
type Exists struct{}

// Description says what is checked.
func (Exists) Description(context.Context) string { return "must be a mode of GPU nodes" }

// MarkdownDescription says the same.
func (v Exists) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString is the check.
func (Exists) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, ok := catalog.LookupMode(req.ConfigValue.ValueString()); ok {
		return
	}
	all := Names(func(catalog.Mode) bool { return true })
	resp.Diagnostics.AddAttributeError(req.Path, "Unknown mode",
		fmt.Sprintf("There is no mode %q for GPU nodes. The modes are %s.", req.ConfigValue.ValueString(), strings.Join(all, ", ")))
}
