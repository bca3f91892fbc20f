package quotatree

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// spec reads the tree of the model. known is false when a part of it is unknown until
// apply. Values that cannot be read are in the diagnostics, at their own paths.
func (m model) spec(ctx context.Context) (spec quota.Spec, known bool, diags diag.Diagnostics) {
	if m.Total.IsUnknown() || m.Quotas.IsUnknown() {
		return quota.Spec{}, false, nil
	}
	nodes, nodeDiags := m.nodes(ctx)
	if diags.Append(nodeDiags...); diags.HasError() {
		return quota.Spec{}, false, diags
	}
	r := reader{nodes: nodes, paths: slices.Sorted(maps.Keys(nodes)), known: true}
	total := r.amounts(path.Root("total"), m.Total)
	if r.checkPaths(); r.diags.HasError() {
		return quota.Spec{}, false, append(diags, r.diags...) // such paths make no tree
	}
	root := quota.Spec{Name: quota.RootName, Min: total, Max: total, MaxJobs: r.number(m.MaxJobs), Children: r.below("")}
	diags.Append(r.diags...)
	return root, r.known, diags
}

// reader turns the entries of quotas into the planner's tree.
type reader struct {
	nodes map[string]node
	paths []string
	known bool
	diags diag.Diagnostics
}

func (r *reader) checkPaths() {
	for _, p := range r.paths {
		at := path.Root("quotas").AtMapKey(p)
		for _, segment := range strings.Split(p, "/") {
			if faults := validation.IsValidLabelValue(segment); segment == "" || len(faults) > 0 {
				r.diags.AddAttributeError(at, "Invalid quota path", fmt.Sprintf(
					"quotas[%.80q]: this is not a path of names. Each part must be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit, as in research/vision.", p))
				break
			}
		}
		if up := parent(p); up != "" && !slices.Contains(r.paths, up) {
			r.diags.AddAttributeError(at, "Parent quota is missing", fmt.Sprintf(
				"quotas[%.80q]: this is below %.80q, which is not in quotas. Add an entry %.80q, with limits or as {}.", p, up, up))
		}
	}
}

func (r *reader) below(up string) []quota.Spec {
	var children []quota.Spec
	for _, p := range r.paths {
		if parent(p) != up {
			continue
		}
		n, at := r.nodes[p], path.Root("quotas").AtMapKey(p)
		children = append(children, quota.Spec{
			Name:       name(p),
			Min:        r.amounts(at.AtName("min"), n.Min),
			Max:        r.amounts(at.AtName("max"), n.Max),
			MaxJobs:    r.number(n.MaxJobs),
			LendLimit:  r.amounts(at.AtName("lend_limit"), n.LendLimit),
			Namespaces: r.namespaces(at.AtName("namespaces"), n.Namespaces),
			Children:   r.below(p),
		})
	}
	return children
}

func (r *reader) amounts(at path.Path, quantities types.Map) quota.Resources {
	if quantities.IsUnknown() {
		r.known = false
	}
	out := quota.Resources{}
	for _, name := range slices.Sorted(maps.Keys(quantities.Elements())) {
		text, ok := quantities.Elements()[name].(types.String)
		if !ok || text.IsUnknown() {
			r.known = false
			continue
		}
		amount, err := parseAmount(name, text.ValueString())
		if err != nil {
			entry := at.AtMapKey(name)
			r.diags.AddAttributeError(entry, "Invalid quantity", fmt.Sprintf("%s: %s.", entry, err))
			continue
		}
		out[name] = amount
	}
	return out
}

func (r *reader) number(n types.Int64) int64 {
	if n.IsUnknown() {
		r.known = false
	}
	return n.ValueInt64()
}

func (r *reader) namespaces(at path.Path, set types.Set) []string {
	if set.IsUnknown() {
		r.known = false
	}
	var out []string
	for _, element := range set.Elements() {
		text, ok := element.(types.String)
		if !ok || text.IsUnknown() {
			r.known = false
			continue
		}
		if faults := validation.IsDNS1123Label(text.ValueString()); len(faults) > 0 {
			r.diags.AddAttributeError(at, "Invalid namespace", fmt.Sprintf("%s: %q cannot be a namespace: %s.", at, text.ValueString(), strings.Join(faults, "; ")))
		}
		out = append(out, text.ValueString())
	}
	slices.Sort(out)
	return out
}

// What no cluster has of anything, and of cores: sums of such amounts are still numbers.
var (
	largest = resource.MustParse("64Pi")
	mostCPU = resource.MustParse("1G")
)

// parseAmount reads a quantity in the unit of [quota.Resources].
func parseAmount(name, text string) (int64, error) {
	if name == contract.MaxJobsKey || name == "" {
		return 0, fmt.Errorf("%q is not a resource; limit the number of jobs with max_jobs", name)
	}
	quantity, err := amount.Parse(text)
	if err != nil {
		return 0, err
	}
	if quantity.Cmp(largest) > 0 || name == "cpu" && quantity.Cmp(mostCPU) > 0 {
		return 0, fmt.Errorf("%q of %s is more than any cluster has", text, name)
	}
	if name == "cpu" {
		return quantity.MilliValue(), nil
	}
	amount := quantity.Value()
	if quantity.Cmp(*resource.NewQuantity(amount, resource.DecimalSI)) != 0 {
		return 0, fmt.Errorf("%q of %s is not a whole number; only cpu can be divided, in thousandths as in \"500m\"", text, name)
	}
	return amount, nil
}
