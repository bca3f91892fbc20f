package trainingjob

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

// sharingFindings warns of nodes that a job with parts of GPUs may use, and on which nothing keeps programs within
// theirs.
func (r *trainingJob) sharingFindings(ctx context.Context, spec job.Spec, on offer) []preflight.Finding {
	if spec.Mode != job.Shared {
		return nil
	}
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil {
		return nil // nobody knows
	}
	nodes, reason := unenforced(snapshot, on)
	if len(nodes) == 0 {
		return nil
	}
	others := ""
	if len(nodes) > 1 {
		others = fmt.Sprintf(", and %d more,", len(nodes)-1)
	}
	return []preflight.Finding{{Warning: true, Attribute: "mode", Summary: "Parts of GPUs are not enforced", Detail: fmt.Sprintf(
		"Job %s asks for parts of GPUs. On node %s%s which it may use, nothing keeps programs within theirs, so that each may take the memory and the time of the others on its GPU. "+
			"The node agent of %s says: %s. Mend that, let the job use other nodes, or ask for whole GPUs.",
		spec.ID(), nodes[0], others, nodes[0], reason)}}
}

// unenforced lists the nodes for parts of GPUs that a job may use, and whose agents say that these are not enforced, with
// the reason of the first.
func unenforced(snapshot *cluster.Snapshot, on offer) (nodes []string, reason string) {
	reasons := map[string]string{}
	for _, hardware := range snapshot.GPUNodes {
		if sharing := hardware.Status.Sharing; sharing != nil && sharing.Enforcement == contract.NotEnforced {
			reasons[hardware.Name] = sharing.Reason
		}
	}
	if len(reasons) == 0 {
		return nil, ""
	}
	may := given(snapshot, on)
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		why, is := reasons[node.Name]
		if !is || !placement.Mode(node.Labels[contract.NodeModeLabel]).Shared() || !on.anywhere() && !slices.Contains(may, node) {
			continue
		}
		if nodes = append(nodes, node.Name); len(nodes) == 1 {
			reason = why
		}
	}
	return nodes, reason
}
