package trainingjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// reader turns attributes into a job, and notes which of those that decide about
// the placement are unknown until apply.
type reader struct {
	ctx     context.Context
	unknown []string
	diags   diag.Diagnostics
}

// spec returns the job that the model describes. unknown names the attributes
// that decide about its placement and are unknown until apply; the job lacks them.
func (m model) spec(ctx context.Context) (spec job.Spec, unknown []string, diags diag.Diagnostics) {
	r := &reader{ctx: ctx}
	spec.Gang = true
	readAll(r, jobAttributes, path.Empty(), &m, &spec)
	// The defaults of the schema are not filled in yet when a configuration is checked.
	spec.Namespace, spec.Mode = cmp.Or(spec.Namespace, "default"), cmp.Or(spec.Mode, job.Topology)
	spec.SchedulerName = cmp.Or(spec.SchedulerName, contract.SchedulerName)
	return spec.Complete(), r.unknown, r.diags
}

// known notes the attribute of the job at, or of which at is a part, unless all of its value
// is known.
func (r *reader) known(at path.Path, value attr.Value) {
	if name := at.Steps()[0].String(); !known.Wholly(r.ctx, value) && !slices.Contains(r.unknown, name) {
		r.unknown = append(r.unknown, name)
	}
}

func (r *reader) quantity(at path.Path, value types.String) resource.Quantity {
	q, err := amount.Parse(value.ValueString())
	if err != nil {
		r.diags.AddAttributeError(at, "Malformed quantity", fmt.Sprintf("%s: %s.", at, err))
	}
	return q
}

func (r *reader) dictionary(_ path.Path, value types.Map) map[string]string {
	var all map[string]types.String
	r.diags.Append(value.ElementsAs(r.ctx, &all, false)...)
	var out map[string]string
	for key, text := range all {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = text.ValueString()
	}
	return out
}

func (r *reader) list(_ path.Path, value types.List) []string {
	var all []types.String
	r.diags.Append(value.ElementsAs(r.ctx, &all, false)...)
	var out []string
	for _, text := range all {
		if !text.IsUnknown() {
			out = append(out, text.ValueString())
		}
	}
	return out
}

// poolNames returns the names of the pools that are offered, sorted: their order means nothing. Of pools
// that are not known until apply the names can be.
func poolNames(offered types.List, pools []capacity.Capacity, known bool) types.List {
	var names []string
	for _, c := range pools {
		names = append(names, c.Pool)
	}
	if !known {
		if names, known = capacity.Pools(offered); !known {
			return types.ListUnknown(types.StringType)
		}
	}
	slices.Sort(names)
	return listValue(slices.Compact(names))
}
