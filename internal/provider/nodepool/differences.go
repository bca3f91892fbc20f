package nodepool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
)

// differences are what is not as it should be, by name of the node or, for its own record at
// the service, of the pool.
type differences map[string]string

// add says one thing more of a name, nothing when text is "".
func (d differences) add(name, text string) {
	if before := d[name]; before != "" && text != "" {
		text = before + "; " + text
	}
	if text != "" {
		d[name] = text
	}
}

// addAbsent names the nodes that the service has and Kubernetes lacks, and says what brings them
// back: a kubelet registers when it starts. The service need not list a node that was deleted from
// Kubernetes; what it only counts is told of the pool. here is how many nodes of the pool
// Kubernetes has.
func (d differences) addAbsent(record acs.NodePool, listed []acs.Node, snapshot *cluster.Snapshot, here int) {
	for _, n := range listed {
		switch i := slices.IndexFunc(snapshot.Nodes, func(live corev1.Node) bool { return live.Name == n.Name }); {
		case i < 0:
			d.add(n.Name, "is not in the cluster, though the cloud has it; if it does not come back, restart its instance, or remove it from the pool at the cloud")
		case snapshot.Nodes[i].Labels[contract.NodePoolIDLabel] != record.Info.ID:
			d.add(n.Name, fmt.Sprintf("label %s should be %s", contract.NodePoolIDLabel, record.Info.ID))
		default:
			continue
		}
		here++
	}
	if total := record.Status.Total; record.Status.State == acs.PoolActive && int64(here) < total {
		d.add(record.Info.Name, fmt.Sprintf(
			"the cluster has %d of its %s; restart the instances of those that do not come back, or remove them from the pool at the cloud", here, nodeCount(total)))
	}
}

// nodeCount is a number of nodes in words.
func nodeCount(n int64) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// exist says that there are so many nodes.
func exist(n int64) string {
	if n == 1 {
		return "1 node exists"
	}
	return nodeCount(n) + " exist"
}

// unfinished is what is noted of a pool whose last change failed, so that it stays a difference
// also where nothing else shows it. The next change that succeeds clears it.
const unfinished = "its last change did not complete"

// note says that the last change failed.
func (m *model) note() {
	m.DriftedNodes = types.MapValueMust(types.StringType, map[string]attr.Value{m.Name.ValueString(): types.StringValue(unfinished)})
}

// differs reports whether a state says that a pool is not as it should be.
func (m *model) differs() bool {
	return len(m.DriftedNodes.Elements()) > 0 || m.State.ValueString() == incomplete
}

// noted tells whether a state says that the last change of a pool failed.
func noted(drifted types.Map, pool string) bool {
	text, ok := drifted.Elements()[pool].(types.String)
	return ok && strings.Contains(text.ValueString(), unfinished)
}
