package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// tolerationModel is one entry of "tolerations".
type tolerationModel struct {
	Key      types.String `tfsdk:"key"`
	Operator types.String `tfsdk:"operator"`
	Value    types.String `tfsdk:"value"`
	Effect   types.String `tfsdk:"effect"`
}

var tolerationType = typeOf(schemas(tolerationAttributes))

var tolerationAttributes = []attribute[tolerationModel, corev1.Toleration]{
	{
		name:     "key",
		schema:   optionalText("Key of the taint; without it every taint, with operator `Exists`."),
		property: text(func(m *tolerationModel) *types.String { return &m.Key }, func(t *corev1.Toleration) *string { return &t.Key }),
	},
	{
		name: "operator",
		schema: schema.StringAttribute{
			MarkdownDescription: "`Equal` (default) or `Exists`.", Optional: true,
			Validators: []validator.String{stringvalidator.OneOf("Equal", "Exists")},
		},
		property: text(func(m *tolerationModel) *types.String { return &m.Operator }, func(t *corev1.Toleration) *corev1.TolerationOperator { return &t.Operator }),
	},
	{
		name:     "value",
		schema:   optionalText("Value of the taint, with operator `Equal`."),
		property: text(func(m *tolerationModel) *types.String { return &m.Value }, func(t *corev1.Toleration) *string { return &t.Value }),
	},
	{
		name: "effect",
		schema: schema.StringAttribute{
			MarkdownDescription: "`NoSchedule`, `PreferNoSchedule` or `NoExecute`; without it every effect.", Optional: true,
			Validators: []validator.String{stringvalidator.OneOf("NoSchedule", "PreferNoSchedule", "NoExecute")},
		},
		property: text(func(m *tolerationModel) *types.String { return &m.Effect }, func(t *corev1.Toleration) *corev1.TaintEffect { return &t.Effect }),
	},
}

var tolerationsProperty = property[model, job.Spec]{
	value: func(m *model) attr.Value { return m.Tolerations },
	read: func(r *reader, at path.Path, m *model, s *job.Spec) {
		if m.Tolerations.IsNull() || m.Tolerations.IsUnknown() {
			return
		}
		var objects []types.Object
		r.diags.Append(m.Tolerations.ElementsAs(r.ctx, &objects, false)...)
		for i, object := range objects {
			if object.IsUnknown() {
				continue
			}
			var tm tolerationModel
			var t corev1.Toleration
			r.diags.Append(object.As(r.ctx, &tm, basetypes.ObjectAsOptions{})...)
			readAll(r, tolerationAttributes, at.AtListIndex(i), &tm, &t)
			if t.Operator == "" {
				t.Operator = corev1.TolerationOpEqual
			}
			s.Tolerations = append(s.Tolerations, t)
		}
	},
	take: func(m *model, s job.Spec) {
		var elements []attr.Value
		for _, t := range s.Tolerations {
			if t.Operator == corev1.TolerationOpEqual {
				t.Operator = ""
			}
			elements = append(elements, objectOf(tolerationType, tolerationAttributes, t))
		}
		m.Tolerations = types.ListNull(tolerationType)
		if len(elements) > 0 {
			m.Tolerations = types.ListValueMust(tolerationType, elements)
		}
	},
	part: func(s job.Spec) any { return s.Tolerations },
}
