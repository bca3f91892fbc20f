package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/int32validator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

type gangModel struct {
	Enabled types.Bool  `tfsdk:"enabled"`
	Minimum types.Int32 `tfsdk:"minimum"`
}

var (
	gangType       = typeOf(gangAttributes)
	gangAttributes = map[string]schema.Attribute{
		"enabled": schema.BoolAttribute{
			MarkdownDescription: "`false` lets every member start when there is room for it; not in mode `topology`. Default `true`.",
			Optional:            true,
		},
		"minimum": schema.Int32Attribute{
			MarkdownDescription: "How many members must run together; default all, or what the roles need that have a `minimum`. Members beyond it start where there is room, and are the first to go when others take places. The master of a PyTorch job is always among those that must run, unless it has a `minimum` of its own. With `jobset` and `trainjob` all must run, since a JobSet does not say how many do.",
			Optional:            true, Validators: []validator.Int32{int32validator.AtLeast(1)},
		},
	}
)

var gangProperty = property[model, job.Spec]{
	value: func(m *model) attr.Value { return m.Gang },
	read: func(r *reader, _ path.Path, m *model, s *job.Spec) {
		if m.Gang.IsNull() || m.Gang.IsUnknown() {
			return
		}
		var g gangModel
		r.diags.Append(m.Gang.As(r.ctx, &g, basetypes.ObjectAsOptions{})...)
		s.Gang, s.Minimum = g.Enabled.IsNull() || g.Enabled.ValueBool(), g.Minimum.ValueInt32()
	},
	take: func(m *model, s job.Spec) {
		enabled, minimum := types.BoolNull(), types.Int32Null()
		switch {
		case !s.Gang:
			enabled = types.BoolValue(false)
		case s.Minimum != 0:
			minimum = types.Int32Value(s.Minimum)
		default:
			m.Gang = types.ObjectNull(gangType.AttrTypes)
			return
		}
		m.Gang = types.ObjectValueMust(gangType.AttrTypes, map[string]attr.Value{"enabled": enabled, "minimum": minimum})
	},
	part: func(s job.Spec) any { return []any{s.Gang, s.Minimum} },
}
