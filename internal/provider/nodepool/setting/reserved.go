package setting

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

const maxPrivatePools = 20

// private says in Terraform whether instances come from reserved capacity.
type private struct {
	MatchCriteria types.String `tfsdk:"match_criteria"`
	ID            types.String `tfsdk:"id"`
}

func privatePool() setting {
	return excludedBy("resource_pool", object("private_pool", "Capacity that is reserved for the account (an elasticity assurance or a capacity reservation), for the instances of the pool. Not with `resource_pool`."+newNodes+serviceDefault, map[string]schema.Attribute{
		"match_criteria": schema.StringAttribute{
			MarkdownDescription: "`Open` (any open reservation that matches, otherwise public capacity), `Target` (that of `id` alone; a node that it has no room for is not created) or `None`.",
			Required:            true, Validators: []validator.String{stringvalidator.OneOf("Open", "Target", "None")},
		},
		"id": schema.StringAttribute{
			MarkdownDescription: "ID of the reservation, such as `eap-…`. Only for `Target`, and required there.",
			Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
		},
	}, func(v *Values) *types.Object { return &v.PrivatePool },
		func(_ context.Context, spec acs.NodePoolSpec, _ *private) (*private, diag.Diagnostics) {
			p := spec.ScalingGroup.PrivatePool
			if p == nil || *p == (acs.PrivatePool{}) {
				return nil, nil
			}
			return &private{word(p.MatchCriteria), word(p.ID)}, nil
		},
		func(_ context.Context, p private, spec *acs.NodePoolSpec) diag.Diagnostics {
			spec.ScalingGroup.PrivatePool = &acs.PrivatePool{ID: p.ID.ValueString(), MatchCriteria: p.MatchCriteria.ValueString()}
			spec.ScalingGroup.ResourcePool = nil
			return nil
		}))
}

// resources says in Terraform in which order reserved and public capacity is used.
type resources struct {
	Strategy       types.String `tfsdk:"strategy"`
	PrivatePoolIDs types.Set    `tfsdk:"private_pool_ids"`
}

func resourcePool() setting {
	return excludedBy("private_pool", object("resource_pool", "In which order reserved and public capacity is used for the instances of the pool. Not with `private_pool`; only for instances that are paid by use."+newNodes+serviceDefault, map[string]schema.Attribute{
		"strategy": schema.StringAttribute{
			MarkdownDescription: "`PrivatePoolFirst` (the reservations of `private_pool_ids`, then open ones, then public capacity), `PrivatePoolOnly` (those of `private_pool_ids` alone) or `None`.",
			Required:            true, Validators: []validator.String{stringvalidator.OneOf("PrivatePoolFirst", "PrivatePoolOnly", "None")},
		},
		"private_pool_ids": schema.SetAttribute{
			MarkdownDescription: "IDs of reservations of the kind `Target`, at most 20. Required for `PrivatePoolOnly`.",
			Optional:            true, ElementType: types.StringType,
			Validators: []validator.Set{setvalidator.SizeBetween(1, maxPrivatePools), setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
		},
	}, func(v *Values) *types.Object { return &v.ResourcePool },
		func(ctx context.Context, spec acs.NodePoolSpec, _ *resources) (*resources, diag.Diagnostics) {
			p := spec.ScalingGroup.ResourcePool
			if p == nil || p.Strategy == "" {
				return nil, nil
			}
			out := resources{word(p.Strategy), types.SetNull(types.StringType)}
			var diags diag.Diagnostics
			if len(p.PrivatePoolIDs) > 0 {
				out.PrivatePoolIDs, diags = types.SetValueFrom(ctx, types.StringType, p.PrivatePoolIDs)
			}
			return &out, diags
		},
		func(ctx context.Context, p resources, spec *acs.NodePoolSpec) diag.Diagnostics {
			ids := []string{}
			diags := p.PrivatePoolIDs.ElementsAs(ctx, &ids, false)
			spec.ScalingGroup.ResourcePool = &acs.ResourcePool{Strategy: p.Strategy.ValueString(), PrivatePoolIDs: ids}
			spec.ScalingGroup.PrivatePool = nil
			return diags
		}))
}
