package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fields"
)

// ValidateConfig reports every rule that the job breaks at its own attribute.
func (r *trainingJob) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	if resp.Diagnostics.Append(fields.Get(ctx, tfsdk.State(req.Config), &m)...); resp.Diagnostics.HasError() {
		return
	}
	on, diags := m.offer(ctx)
	m.PoolNames = on.names
	resp.Diagnostics.Append(diags...)
	resp.Diagnostics.Append(checkAfter(m.After)...)
	spec, unknown, diags := m.spec(ctx)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	resp.Diagnostics.Append(m.checkFleet(spec)...)
	for _, attribute := range undecided(ctx, m) {
		if attribute != "roles" { // what is known of them is checked
			unknown = append(unknown, attribute)
		}
	}
	for _, p := range spec.Check() {
		attribute := p.Field
		if p.Role != "" {
			attribute = "roles"
		}
		if anyOf(unknown, attribute) || anyOf(unknown, shaping()...) {
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
	inherited := slices.ContainsFunc(containerAttributes, func(a containerAttribute) bool { return a.name == p.Field })
	if inherited && (!ok || role.Attributes()[p.Field] == nil || role.Attributes()[p.Field].IsNull()) {
		return path.Root(p.Field)
	}
	return at.AtName(p.Field)
}
