package quotatree

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// gpuDomains are those of the resources by which pods ask for GPUs.
var gpuDomains = []string{"aliyun.com/", "nvidia.com/"}

// gpuResources are those of these domains that jobs are charged for.
var gpuResources = []string{contract.ResourceTopologyGPU, contract.ResourceGPUMemory, contract.ResourceCorePercent, contract.ResourceDefaultGPU}

// foreign are beginnings of resources of these domains that NVIDIA's device plugin offers in
// other set-ups: they are no typos, although no job of this provider asks for them.
var foreign = []string{"nvidia.com/mig-", "nvidia.com/gpu.shared"}

// checkNames warns of resources that are named like one for GPUs and that no job is charged for:
// a typo in a name takes the limit away, and nothing else would say so. Each name is said once,
// where it comes first.
func checkNames(spec quota.Spec) (diags diag.Diagnostics) {
	said := map[string]bool{}
	check := func(at path.Path, amounts quota.Resources) {
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			if said[name] || !unknown(name) {
				continue
			}
			said[name] = true
			entry := at.AtMapKey(name)
			diags.AddAttributeWarning(entry, "Resource is not known", fmt.Sprintf("%s: no gpuplan_training_job is charged for %q, so this does not limit any.%s", entry, name, didYouMean(name)))
		}
	}
	check(path.Root("total"), spec.Max)
	for _, key := range keys(spec) {
		at, n := path.Root("quotas").AtMapKey(key), find(spec, key)
		check(at.AtName("min"), n.Min)
		check(at.AtName("max"), n.Max)
		check(at.AtName("lend_limit"), n.LendLimit)
	}
	return diags
}

// unknown reports whether a resource is named like one for GPUs, and is none.
func unknown(name string) bool {
	begins := func(with string) bool { return strings.HasPrefix(name, with) }
	return slices.ContainsFunc(gpuDomains, begins) && !slices.ContainsFunc(foreign, begins) && !slices.Contains(gpuResources, name)
}

// didYouMean names the resource that is closest to a name, as a further sentence: one of which
// the name is the beginning, else the one with the fewest other letters.
func didYouMean(name string) string {
	begun := func(known string) bool { return strings.HasPrefix(known, name) }
	near := catalog.Nearest(name, gpuResources, 1)
	if i := slices.IndexFunc(gpuResources, begun); i >= 0 {
		near = gpuResources[i : i+1]
	}
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf(" Did you mean %s?", near[0])
}
