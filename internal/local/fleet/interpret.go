package fleet

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// statusOfOneCluster is a script of Karmada's that gives a job on the hub the status that it has in its cluster. A gang is in one.
const statusOfOneCluster = `
function AggregateStatus(desiredObj, statusItems)
  for i = 1, #statusItems do
    if statusItems[i].status ~= nil then
      desiredObj.status = statusItems[i].status
    end
  end
  return desiredObj
end`

// interpreted are the kinds of jobs of which Karmada tells nothing on the hub before they have ended.
var interpreted = []schema.GroupVersionKind{
	{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Kind: contract.PyTorchJobKind},
	{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Kind: contract.MPIJobKind},
}

// ShowStatus has the hub show how far jobs are in their clusters.
func ShowStatus(ctx context.Context, hub *kube.Client) error {
	for _, kind := range interpreted {
		customization := object("config.karmada.io/v1alpha1", "ResourceInterpreterCustomization", "", "gpuplan-"+strings.ToLower(kind.Kind), map[string]any{
			"spec": map[string]any{
				"target":         map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind},
				"customizations": map[string]any{"statusAggregation": map[string]any{"luaScript": strings.TrimSpace(statusOfOneCluster)}},
			},
		})
		if _, err := hub.ApplyAs(ctx, manager, customization); err != nil {
			return err
		}
	}
	return nil
}
