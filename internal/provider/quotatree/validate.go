package quotatree

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// ValidateConfig applies every rule of quota trees to what is known.
func (r *tree) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	spec, known, diags := m.spec(ctx)
	resp.Diagnostics.Append(diags...)
	if diags.HasError() {
		return
	}
	resp.Diagnostics.Append(checkNames(spec)...)
	resp.Diagnostics.Append(checkUnits(spec)...)
	if !known {
		return
	}
	for _, problem := range quota.Check(spec) {
		report(problem, spec, &resp.Diagnostics)
	}
}

// leastMemory is what no job runs with, in bytes; a smaller amount lacks its unit.
const leastMemory = 1 << 20

// checkUnits refuses amounts of memory that lack their unit.
func checkUnits(spec quota.Spec) (diags diag.Diagnostics) {
	check := func(at path.Path, amounts quota.Resources) {
		for _, name := range []string{"ephemeral-storage", "memory"} {
			if bytes := amounts[name]; bytes > 0 && bytes < leastMemory {
				at := at.AtMapKey(name)
				diags.AddAttributeError(at, "Invalid quantity", fmt.Sprintf("%s: this is %d bytes: %s needs a unit, as in \"64Gi\" or \"512Mi\".", at, bytes, name))
			}
		}
	}
	check(path.Root("total"), spec.Max)
	for _, key := range keys(spec) {
		node, at := find(spec, key), path.Root("quotas").AtMapKey(key)
		check(at.AtName("lend_limit"), node.LendLimit)
		check(at.AtName("max"), node.Max)
		check(at.AtName("min"), node.Min)
	}
	return diags
}

// report puts a broken rule to the attribute that breaks it.
func report(p quota.Problem, spec quota.Spec, diags *diag.Diagnostics) {
	at := attribute(p, spec)
	text := fmt.Sprintf("%s: %s%s.", at, p.Text, unit(p.Resource))
	if p.Warning {
		diags.AddAttributeWarning(at, "Quota tree may not work as meant", text)
		return
	}
	diags.AddAttributeError(at, "Quota tree is not valid", text)
}

// attribute finds the attribute of a problem.
func attribute(p quota.Problem, spec quota.Spec) path.Path {
	key, ok := keyOf(p.Path)
	field := map[string]string{"min": "min", "max": "max", "maxJobs": "max_jobs", "lendLimit": "lend_limit", "namespaces": "namespaces"}[p.Field]
	switch {
	case !ok && (p.Field == "min" || p.Field == "max"):
		return atResource(path.Root("total"), spec.Max, p.Resource)
	case !ok && p.Field == "maxJobs":
		return path.Root("max_jobs")
	case !ok:
		return path.Root("quotas")
	case field == "":
		return path.Root("quotas").AtMapKey(key)
	}
	at := path.Root("quotas").AtMapKey(key).AtName(field)
	n := find(spec, key)
	switch {
	case n == nil:
		return at
	case p.Field == "min":
		return atResource(at, n.Min, p.Resource)
	case p.Field == "max":
		return atResource(at, n.Max, p.Resource)
	case p.Field == "lendLimit":
		return atResource(at, n.LendLimit, p.Resource)
	}
	return at
}

// atResource points to the entry of a resource, or to the map when it has none.
func atResource(at path.Path, amounts quota.Resources, name string) path.Path {
	if _, ok := amounts[name]; !ok {
		return at
	}
	return at.AtMapKey(name)
}

// keyOf turns the planner's path "root/research/vision" into the key "research/vision";
// ok is false for the root.
func keyOf(treePath string) (key string, ok bool) {
	if treePath == quota.RootName {
		return "", false
	}
	return treePath[len(quota.RootName)+1:], true
}

// find returns the node of a key.
func find(spec quota.Spec, key string) *quota.Spec {
	for i := range spec.Children {
		child := &spec.Children[i]
		if child.Name == key {
			return child
		}
		if len(key) > len(child.Name) && key[:len(child.Name)+1] == child.Name+"/" {
			return find(*child, key[len(child.Name)+1:])
		}
	}
	return nil
}

// keys lists the keys of all nodes of a tree, in tree order.
func keys(spec quota.Spec) []string {
	var out []string
	for _, child := range spec.Children {
		out = append(out, child.Name)
		for _, below := range keys(child) {
			out = append(out, child.Name+"/"+below)
		}
	}
	return slices.Clip(out)
}
