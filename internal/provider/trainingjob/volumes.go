package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// unknownClaim stands for a claim that is unknown until apply: which one it is says
// nothing about where the job runs.
const unknownClaim = "known-after-apply"

// volumeModel is one entry of "volumes".
type volumeModel struct {
	Claim     types.String `tfsdk:"claim"`
	MountPath types.String `tfsdk:"mount_path"`
	ReadOnly  types.Bool   `tfsdk:"read_only"`
}

var volumeType = typeOf(schemas(volumeAttributes))

var volumeAttributes = []attribute[volumeModel, job.Volume]{
	{
		name:     "claim",
		schema:   schema.StringAttribute{MarkdownDescription: "Name of the PersistentVolumeClaim in the job's namespace.", Required: true},
		property: says(textOr(unknownClaim), func(m *volumeModel) *types.String { return &m.Claim }, func(v *job.Volume) *string { return &v.Claim }),
	},
	{
		name:     "mount_path",
		schema:   schema.StringAttribute{MarkdownDescription: "Path in the containers.", Required: true},
		property: text(func(m *volumeModel) *types.String { return &m.MountPath }, func(v *job.Volume) *string { return &v.MountPath }),
	},
	{
		name:     "read_only",
		schema:   schema.BoolAttribute{MarkdownDescription: "Mounts it for reading only. Default `false`.", Optional: true},
		property: yes(func(m *volumeModel) *types.Bool { return &m.ReadOnly }, func(v *job.Volume) *bool { return &v.ReadOnly }),
	},
}

var volumesProperty = property[model, job.Spec]{
	value: func(m *model) attr.Value { return m.Volumes },
	read: func(r *reader, at path.Path, m *model, s *job.Spec) {
		if m.Volumes.IsNull() || m.Volumes.IsUnknown() {
			return
		}
		var objects map[string]types.Object
		r.diags.Append(m.Volumes.ElementsAs(r.ctx, &objects, false)...)
		s.Volumes = map[string]job.Volume{}
		for name, object := range objects {
			var vm volumeModel
			var v job.Volume
			if !object.IsUnknown() {
				r.diags.Append(object.As(r.ctx, &vm, basetypes.ObjectAsOptions{})...)
			}
			if object.IsUnknown() || vm.MountPath.IsUnknown() {
				continue // nothing can be mounted nowhere
			}
			readAll(r, volumeAttributes, at.AtMapKey(name), &vm, &v)
			s.Volumes[name] = v
		}
	},
	take: func(m *model, s job.Spec) {
		elements := map[string]attr.Value{}
		for name, v := range s.Volumes {
			elements[name] = objectOf(volumeType, volumeAttributes, v)
		}
		m.Volumes = types.MapNull(volumeType)
		if len(elements) > 0 {
			m.Volumes = types.MapValueMust(volumeType, elements)
		}
	},
	part: func(s job.Spec) any { return s.Volumes },
}
