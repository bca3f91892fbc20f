package addon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// terwayPatience bounds how long a plan waits for a cluster that it need not reach.
const terwayPatience = 5 * time.Second

// checkTerway warns where Terway manages every network interface of a node, those of eRDMA devices too. Without Terway,
// and where nobody may look, it says nothing.
func (r *addon[M, P]) checkTerway(ctx context.Context) (diags diag.Diagnostics) {
	client, err := r.Session.Kube()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, terwayPatience)
	defer cancel()
	config, err := client.Typed.CoreV1().ConfigMaps(contract.TerwayNamespace).Get(ctx, contract.TerwayConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	var settings map[string]any
	if err := json.Unmarshal([]byte(config.Data[contract.TerwayConfigKey]), &settings); err != nil {
		return nil
	}
	if filter, _ := settings[contract.TerwayFilter].(map[string]any); len(filter) > 0 {
		return nil
	}
	diags.AddWarning("Terway takes the network interfaces of eRDMA devices", fmt.Sprintf(
		"%s in the ConfigMap %s/%s has no %s: Terway manages every network interface of a node, and may give those of eRDMA devices to pods. "+
			"Add \"%[4]s\": {\"creator\": \"terway\"}, restart Terway (kubectl -n %[2]s delete pod -l app=terway-eniip), and only then let nodes with eRDMA devices join; those that are there join again. "+
			"Interfaces in use that lack the tag are no longer managed then: tag them before. Newer versions of Terway and the controller keep apart by themselves where Terway manages interfaces centrally.",
		contract.TerwayConfigKey, contract.TerwayNamespace, contract.TerwayConfigMap, contract.TerwayFilter))
	return diags
}
