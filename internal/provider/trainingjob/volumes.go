package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// unknownClaim stands for a claim that is unknown until apply: which one it is says
// nothing about where the job runs.
const unknownClaim = "known-after-apply"

// volumes reads the volumes; they do not decide about the placement.
func (r *reader) volumes(value types.Map) map[string]job.Volume {
	if value.IsNull() || value.IsUnknown() {
		return nil
	}
	var models map[string]volumeModel
	r.diags.Append(value.ElementsAs(r.ctx, &models, false)...)
	out := map[string]job.Volume{}
	for name, v := range models {
		volume := job.Volume{Claim: v.Claim.ValueString(), MountPath: v.MountPath.ValueString(), ReadOnly: v.ReadOnly.ValueBool()}
		if v.Claim.IsUnknown() {
			volume.Claim = unknownClaim
		}
		out[name] = volume
	}
	return out
}

// volumesValue is the attribute that says what the volumes are.
func volumesValue(volumes map[string]job.Volume) types.Map {
	if len(volumes) == 0 {
		return types.MapNull(volumeType)
	}
	elements := map[string]attr.Value{}
	for name, v := range volumes {
		readOnly := types.BoolNull()
		if v.ReadOnly {
			readOnly = types.BoolValue(true)
		}
		elements[name] = types.ObjectValueMust(volumeType.AttrTypes, map[string]attr.Value{
			"claim": types.StringValue(v.Claim), "mount_path": types.StringValue(v.MountPath), "read_only": readOnly,
		})
	}
	return types.MapValueMust(volumeType, elements)
}
