package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// quotaNode is the JSON form of one node of an ElasticQuotaTree.
type quotaNode struct {
	Name       string                     `json:"name"`
	Min        map[string]json.RawMessage `json:"min"`
	Max        map[string]json.RawMessage `json:"max"`
	Namespaces []string                   `json:"namespaces"`
	Attributes map[string]string          `json:"attributes"`
	Children   []quotaNode                `json:"children"`
}

// QuotaSpec reads the tree of an ElasticQuotaTree object. The error names the place
// in the tree and the value that cannot be read; whether the tree obeys the rules of
// quota trees is for [quota.New] to say.
func QuotaSpec(tree *unstructured.Unstructured) (quota.Spec, error) {
	raw, err := json.Marshal(tree.Object)
	if err != nil {
		return quota.Spec{}, fmt.Errorf("%s %s: %w", contract.QuotaTreeKind, tree.GetName(), err)
	}
	var object struct {
		Spec struct {
			Root quotaNode `json:"root"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return quota.Spec{}, fmt.Errorf("%s %s: %w", contract.QuotaTreeKind, tree.GetName(), err)
	}
	object.Spec.Root.Name = "root"
	spec, err := object.Spec.Root.spec("root")
	if err != nil {
		return quota.Spec{}, fmt.Errorf("%s %s: %w", contract.QuotaTreeKind, tree.GetName(), err)
	}
	return spec, nil
}

func (n quotaNode) spec(path string) (quota.Spec, error) {
	spec := quota.Spec{Name: n.Name, Namespaces: n.Namespaces}
	var err error
	if spec.Min, err = quotaAmounts(n.Min); err != nil {
		return quota.Spec{}, fmt.Errorf("%s: min %w", path, err)
	}
	if spec.Max, err = quotaAmounts(n.Max); err != nil {
		return quota.Spec{}, fmt.Errorf("%s: max %w", path, err)
	}
	spec.MaxJobs = spec.Max[contract.MaxJobsKey]
	if spec.MaxJobs == 0 {
		spec.MaxJobs = spec.Min[contract.MaxJobsKey]
	}
	delete(spec.Min, contract.MaxJobsKey)
	delete(spec.Max, contract.MaxJobsKey)
	if text := n.Attributes[contract.LendLimitAttribute]; text != "" {
		var list map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return quota.Spec{}, fmt.Errorf("%s: attribute %s: %w", path, contract.LendLimitAttribute, err)
		}
		if spec.LendLimit, err = quotaAmounts(list); err != nil {
			return quota.Spec{}, fmt.Errorf("%s: attribute %s %w", path, contract.LendLimitAttribute, err)
		}
	}
	for _, child := range n.Children {
		below, err := child.spec(path + "/" + child.Name)
		if err != nil {
			return quota.Spec{}, err
		}
		spec.Children = append(spec.Children, below)
	}
	return spec, nil
}

// mostQuota is more of anything than a cluster has: 64 PiB of memory. People write more where they mean no limit.
const mostQuota = 1 << 56

// quotaAmounts parses quantities to the units of [quota.Resources].
func quotaAmounts(list map[string]json.RawMessage) (quota.Resources, error) {
	if list == nil {
		return nil, nil
	}
	out := quota.Resources{}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		var quantity resource.Quantity
		if err := json.Unmarshal(list[name], &quantity); err != nil {
			return nil, fmt.Errorf("%s is %s: %w", name, list[name], err)
		}
		convert := amount
		if name == "cpu" {
			convert = milli
		}
		out[name] = convert(quantity, mostQuota)
	}
	return out, nil
}

// Quantity writes an amount in the unit of [quota.Resources] as Kubernetes does.
func Quantity(name string, amount int64) resource.Quantity {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return *resource.NewQuantity(amount, resource.BinarySI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}
