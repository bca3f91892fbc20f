package quotatree

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

var kind = schema.GroupVersionKind{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Kind: contract.QuotaTreeKind}

// object renders the model as the object of that name, with the stamp of its owner.
func (m model) object(ctx context.Context, objectName, owner string) (*unstructured.Unstructured, diag.Diagnostics) {
	nodes, diags := m.nodes(ctx)
	if diags.HasError() {
		return nil, diags
	}
	total := texts(m.Total)
	setJobs(total, m.MaxJobs)
	root := map[string]any{"name": quota.RootName, "min": total, "max": total}
	if children := render("", nodes); len(children) > 0 {
		root["children"] = children
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"root": root}}}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(contract.QuotaTreeNamespace)
	obj.SetName(objectName)
	obj.SetLabels(map[string]string{contract.ManagedByLabel: contract.ManagedByValue, contract.OwnerLabel: owner})
	return obj, diags
}

func render(up string, nodes map[string]node) []any {
	var children []any
	for _, p := range slices.Sorted(maps.Keys(nodes)) {
		if parent(p) != up {
			continue
		}
		n := nodes[p]
		child := map[string]any{"name": name(p)}
		if !n.Min.IsNull() {
			child["min"] = texts(n.Min)
		}
		limits := texts(n.Max)
		setJobs(limits, n.MaxJobs)
		if !n.Max.IsNull() || len(limits) > 0 {
			child["max"] = limits
		}
		if namespaces := list(n.Namespaces); len(namespaces) > 0 {
			child["namespaces"] = namespaces
		}
		if len(n.LendLimit.Elements()) > 0 {
			lend, _ := json.Marshal(texts(n.LendLimit)) // a map of strings always encodes
			child["attributes"] = map[string]any{contract.LendLimitAttribute: string(lend)}
		}
		if below := render(p, nodes); len(below) > 0 {
			child["children"] = below
		}
		children = append(children, child)
	}
	return children
}

// setJobs adds the limit of jobs to other limits.
func setJobs(limits map[string]any, jobs types.Int64) {
	if !jobs.IsNull() {
		limits[contract.MaxJobsKey] = fmt.Sprint(jobs.ValueInt64())
	}
}

// takeJobs takes the limit of jobs out of all limits of a node.
func takeJobs(all ...map[string]any) types.Int64 {
	jobs := types.Int64Null()
	for _, limits := range all {
		if count, ok := limits[contract.MaxJobsKey]; ok {
			if q, err := amount.Parse(fmt.Sprint(count)); err == nil {
				jobs = types.Int64Value(q.Value())
			}
			delete(limits, contract.MaxJobsKey)
		}
	}
	return jobs
}

// agreed is the total of a tree: its maximum, which is its minimum too. Where someone has made them
// different, it is what is not as before, so that the difference shows.
func agreed(minimum, maximum map[string]any, before types.Map) map[string]any {
	old, out := texts(before), map[string]any{}
	for name, least := range minimum {
		if _, limited := maximum[name]; !limited && old[name] == nil {
			out[name] = least
		}
	}
	for name, most := range maximum {
		written, _ := old[name].(string)
		switch least, ok := minimum[name]; {
		case ok && sameAmount(fmt.Sprint(least), fmt.Sprint(most)), !sameAmount(written, fmt.Sprint(most)):
			out[name] = most
		case ok:
			out[name] = least
		}
	}
	return out
}

func texts(m types.Map) map[string]any {
	out := map[string]any{}
	for key, value := range m.Elements() {
		if text, ok := value.(types.String); ok {
			out[key] = text.ValueString()
		}
	}
	return out
}

func list(set types.Set) []any {
	var names []string
	for _, value := range set.Elements() {
		if text, ok := value.(types.String); ok {
			names = append(names, text.ValueString())
		}
	}
	slices.Sort(names)
	out := make([]any, len(names))
	for i, n := range names {
		out[i] = n
	}
	return out
}

// liveNode is a node of the tree as the API server has it.
type liveNode struct {
	Name       string            `json:"name"`
	Min        map[string]any    `json:"min"`
	Max        map[string]any    `json:"max"`
	Namespaces []string          `json:"namespaces"`
	Attributes map[string]string `json:"attributes"`
	Children   []liveNode        `json:"children"`
}

// refresh takes over what the object says. A quantity that is the same amount as
// before keeps the user's spelling.
func (m *model) refresh(ctx context.Context, obj *unstructured.Unstructured) diag.Diagnostics {
	var diags diag.Diagnostics
	var live struct {
		Spec struct {
			Root liveNode `json:"root"`
		} `json:"spec"`
	}
	raw, err := json.Marshal(obj.Object)
	if err == nil {
		err = json.Unmarshal(raw, &live)
	}
	if err != nil {
		diags.AddError("Quota tree cannot be read", fmt.Sprintf("%s %s is not what its kind promises: %s.", kind.Kind, obj.GetName(), err))
		return diags
	}
	before := map[string]node{}
	if known.Set(m.Quotas) {
		diags.Append(m.Quotas.ElementsAs(ctx, &before, false)...)
	}
	now := map[string]node{}
	collect("", live.Spec.Root.Children, before, now)

	m.ID = types.StringValue(contract.QuotaTreeNamespace + "/" + obj.GetName())
	m.MaxJobs = takeJobs(live.Spec.Root.Min, live.Spec.Root.Max)
	m.Total = quantities(agreed(live.Spec.Root.Min, live.Spec.Root.Max, m.Total), m.Total)
	quotas, quotaDiags := types.MapValueFrom(ctx, nodeType, now)
	diags.Append(quotaDiags...)
	m.Quotas = quotas
	names, leafDiags := leavesValue(ctx, quotas)
	diags.Append(leafDiags...)
	m.Leaves = names
	return diags
}

func collect(up string, children []liveNode, before, now map[string]node) {
	for _, live := range children {
		p := live.Name
		if up != "" {
			p = up + "/" + live.Name
		}
		old := before[p]
		n := node{MaxJobs: takeJobs(live.Min, live.Max)}
		n.Min, n.Max = quantities(live.Min, old.Min), quantities(live.Max, old.Max)
		var lend map[string]any
		if text := live.Attributes[contract.LendLimitAttribute]; text != "" {
			_ = json.Unmarshal([]byte(text), &lend) // what cannot be read shows as missing
		}
		n.LendLimit = quantities(lend, old.LendLimit)
		n.Namespaces = namespaces(live.Namespaces, old.Namespaces)
		now[p] = n
		collect(p, live.Children, before, now)
	}
}

// quantities is the Terraform value of a resource list. No entries are null, unless
// the user wrote an empty map.
func quantities(live map[string]any, before types.Map) types.Map {
	if len(live) == 0 && (before.IsNull() || len(before.Elements()) > 0) {
		return types.MapNull(types.StringType)
	}
	old := texts(before)
	out := make(map[string]attr.Value, len(live))
	for name, value := range live {
		text := fmt.Sprint(value)
		if written, ok := old[name].(string); ok && sameAmount(written, text) {
			text = written
		}
		out[name] = types.StringValue(text)
	}
	return types.MapValueMust(types.StringType, out)
}

func sameAmount(a, b string) bool {
	x, errX := amount.Parse(a)
	y, errY := amount.Parse(b)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

func namespaces(live []string, before types.Set) types.Set {
	if len(live) == 0 && (before.IsNull() || len(before.Elements()) > 0) {
		return types.SetNull(types.StringType)
	}
	out := make([]attr.Value, len(live))
	for i, n := range live {
		out[i] = types.StringValue(n)
	}
	return types.SetValueMust(types.StringType, out)
}
