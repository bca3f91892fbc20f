package propagationpolicy

import (
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

const defaultNamespace = "default"

// model is the resource in Terraform.
type model struct {
	ID         types.String `tfsdk:"id"`
	APIVersion types.String `tfsdk:"api_version"`
	Name       types.String `tfsdk:"name"`
	Namespace  types.String `tfsdk:"namespace"`
	specModel
	Timeouts timeouts.Value `tfsdk:"timeouts"`

	kept lifecycle.Kept
}

// specModel are the attributes that are fields of the policy.
type specModel struct {
	ResourceSelectors           types.List   `tfsdk:"resource_selectors"`
	PropagateDeps               types.Bool   `tfsdk:"propagate_deps"`
	Priority                    types.Int64  `tfsdk:"priority"`
	Preemption                  types.String `tfsdk:"preemption"`
	ConflictResolution          types.String `tfsdk:"conflict_resolution"`
	PreserveResourcesOnDeletion types.Bool   `tfsdk:"preserve_resources_on_deletion"`
	SchedulerName               types.String `tfsdk:"scheduler_name"`
	Failover                    types.Object `tfsdk:"failover"`
	Placement                   types.Object `tfsdk:"placement"`
	Suspension                  types.Object `tfsdk:"suspension"`
}

// namespace is that of the policy, also where the configuration leaves it out.
func (m *model) namespace() string {
	if m.Namespace.ValueString() == "" {
		return defaultNamespace
	}
	return m.Namespace.ValueString()
}

// object is what the resource is called: namespace and name.
func (m *model) object() string { return m.namespace() + "/" + m.Name.ValueString() }

// values are the attributes that are fields of the policy, as one object.
func (m *model) values(ctx context.Context) (types.Object, diag.Diagnostics) {
	return types.ObjectValueFrom(ctx, specTypes().AttrTypes, m.specModel)
}

// data is the spec as the configuration has it; what is unknown is left out.
func (m *model) data(ctx context.Context) (map[string]any, diag.Diagnostics) {
	values, diags := m.values(ctx)
	data, _ := encode(values).(map[string]any)
	return data, diags
}

// policy is the object of that kind, with the stamp of its owner.
func (m *model) policy(ctx context.Context, kind schema.GroupVersionKind, owner string) (*unstructured.Unstructured, diag.Diagnostics) {
	data, diags := m.data(ctx)
	obj := m.identified(kind)
	whole, err := complete(data, m.namespace())
	if err != nil {
		diags.AddError(notWritten, session.Sentence(err))
		return nil, diags
	}
	obj.Object["spec"] = whole
	obj.SetLabels(map[string]string{contract.ManagedByLabel: contract.ManagedByValue, contract.OwnerLabel: owner})
	return obj, diags
}

// identified is the object with its kind and name alone.
func (m *model) identified(kind schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(m.namespace())
	obj.SetName(m.Name.ValueString())
	return obj
}

// identify takes over which object it is.
func (m *model) identify(obj *unstructured.Unstructured) {
	m.Namespace, m.Name = types.StringValue(obj.GetNamespace()), types.StringValue(obj.GetName())
	m.ID, m.APIVersion = types.StringValue(m.object()), types.StringValue(obj.GetAPIVersion())
	m.kept.UIDs = lifecycle.UIDsOf(obj)
}

// changed are the fields of the policy in which an object is not what the model says, by their names.
func (m *model) changed(ctx context.Context, obj *unstructured.Unstructured) (fields map[string]any, diags diag.Diagnostics) {
	data, diags := m.data(ctx)
	if diags.HasError() {
		return nil, diags
	}
	live, _, err := unstructured.NestedMap(obj.Object, "spec")
	if err == nil {
		live, err = minimal(live, m.namespace())
	}
	if err == nil {
		data, err = minimal(data, m.namespace())
	}
	if err != nil {
		diags.AddError("Propagation policy cannot be read", fmt.Sprintf("%s %s: %s", obj.GetKind(), m.object(), session.Sentence(err)))
		return nil, diags
	}
	fields = map[string]any{}
	for name := range specTypes().AttrTypes {
		if of := field(name); !reflect.DeepEqual(data[of], live[of]) {
			fields[of] = live[of]
		}
	}
	return fields, diags
}

// refresh takes over what the object says. What is the same as before keeps the user's spelling.
func (m *model) refresh(ctx context.Context, obj *unstructured.Unstructured) diag.Diagnostics {
	m.identify(obj)
	fields, diags := m.changed(ctx, obj)
	if diags.HasError() {
		return diags
	}
	values, more := m.values(ctx)
	diags.Append(more...)
	all := values.Attributes()
	for name, kind := range specTypes().AttrTypes {
		if live, changed := fields[field(name)]; changed {
			all[name] = decode(kind, live)
		}
	}
	diags.Append(types.ObjectValueMust(specTypes().AttrTypes, all).As(ctx, &m.specModel, basetypes.ObjectAsOptions{})...)
	return diags
}
