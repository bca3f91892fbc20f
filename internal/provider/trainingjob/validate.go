package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// ValidateConfig reports every rule that the job breaks at its own attribute.
func (r *trainingJob) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(m.checkAfter()...)
	spec, unknown, diags := m.spec(ctx)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	for _, p := range spec.Check() {
		attribute := p.Field
		if p.Role != "" {
			attribute = "roles"
		}
		if slices.Contains(unknown, attribute) || slices.Contains(unknown, "framework") || slices.Contains(unknown, "mode") || slices.Contains(unknown, "roles") {
			continue // looked at again when the value is known
		}
		at := m.at(p)
		resp.Diagnostics.AddAttributeError(at, "Invalid training job", fmt.Sprintf("%s: %s.", at, strings.TrimSuffix(p.Text, ".")))
	}
}

// at is the attribute of a problem: of the role, or of the job where the role has it from there.
func (m model) at(p job.Problem) path.Path {
	if p.Role == "" {
		return path.Root(p.Field)
	}
	at := path.Root("roles").AtMapKey(p.Role)
	if p.Field == "" {
		return at
	}
	role, ok := m.Roles.Elements()[p.Role].(types.Object)
	inherited := slices.Contains([]string{"image", "command", "args", "env", "working_dir"}, p.Field)
	if inherited && (!ok || role.Attributes()[p.Field] == nil || role.Attributes()[p.Field].IsNull()) {
		return path.Root(p.Field)
	}
	return at.AtName(p.Field)
}

// checkAfter refuses what cannot be the ID of another job.
func (m model) checkAfter() (diags diag.Diagnostics) {
	at := path.Root("after")
	for _, element := range m.After.Elements() {
		other, ok := element.(types.String)
		if !ok || other.IsUnknown() {
			continue
		}
		namespace, name, _ := strings.Cut(other.ValueString(), "/")
		switch {
		case len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0:
			diags.AddAttributeError(at, "Invalid training job", fmt.Sprintf(
				"after: %.80q is no ID of a job: write NAMESPACE/NAME, or better gpuplan_training_job.NAME.id.", other.ValueString()))
		case namespace == orDefault(m.Namespace.ValueString(), "default") && !m.Namespace.IsUnknown() && name == m.Name.ValueString():
			diags.AddAttributeError(at, "Invalid training job", fmt.Sprintf("after: the job cannot be placed after itself, %s.", other.ValueString()))
		}
	}
	return diags
}
