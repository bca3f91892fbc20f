package trainingjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// uncounted warns of extended resources that the pods of a job ask for, as admission makes them, and that stand for devices,
// or may: the scheduler allocates these when the job starts, and the plan counts none.
func uncounted(id string, gang placement.Gang, delegated placement.Delegated) (diags diag.Diagnostics) {
	names := map[string]bool{}
	for _, role := range gang.Roles {
		for name, amount := range role.Request.Extended {
			if amount > 0 && delegated.Has(name) {
				names[name] = true
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	because := "A DeviceClass has the scheduler allocate devices for it when they start"
	if delegated[placement.Unknown] {
		because = "A DeviceClass may have the scheduler allocate devices for it when they start, which these credentials may not read (list deviceclasses of resource.k8s.io)"
	}
	diags.AddWarning("Devices are not counted", fmt.Sprintf("Pods of job %s ask for %s. %s; the plan does not count these: where too few are free, the job waits.",
		id, strings.Join(slices.Sorted(maps.Keys(names)), ", "), because))
	return diags
}
