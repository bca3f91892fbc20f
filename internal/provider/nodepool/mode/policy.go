package mode

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// CheckPolicy refuses an attribute gpu_policy for nodes of a mode that offers whole GPUs; a mode that is null is the default.
func CheckPolicy(mode, policy types.String) (diags diag.Diagnostics) {
	if policy.IsNull() || policy.IsUnknown() || mode.IsUnknown() {
		return nil
	}
	name := cmp.Or(mode.ValueString(), string(placement.ModeDefault))
	if shared, ok := catalog.LookupMode(name); !ok || !shared.Shared {
		diags.AddAttributeError(path.Root("gpu_policy"), "GPU policy without shared GPUs", fmt.Sprintf(
			"gpu_policy says how parts of GPUs are filled, and nodes of mode %q offer whole GPUs. Remove gpu_policy, or choose one of the modes %s.",
			name, strings.Join(Names(func(m catalog.Mode) bool { return m.Shared }), ", ")))
	}
	return diags
}
