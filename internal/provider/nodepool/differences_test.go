package nodepool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
)

func TestAbsentNodes(t *testing.T) {
	const lacking = "is not in the cluster, though the cloud has it; if it does not come back, restart its instance, or remove it from the pool at the cloud"
	const counted = "the cluster has 1 of its 2 nodes; restart the instances of those that do not come back, or remove them from the pool at the cloud"
	snapshot := &cluster.Snapshot{}
	snapshot.Nodes = []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{contract.NodePoolIDLabel: "np1"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "unlabelled"}},
	}
	record := func(state string, total int64) acs.NodePool {
		p := acs.NodePool{Status: acs.NodePoolStatus{State: state, Total: total}}
		p.Info.ID, p.Info.Name = "np1", "v100"
		return p
	}
	for name, test := range map[string]struct {
		record acs.NodePool
		listed []acs.Node
		want   differences
	}{
		"all are there":         {record(acs.PoolActive, 1), []acs.Node{{Name: "a"}}, differences{}},
		"listed":                {record(acs.PoolActive, 2), []acs.Node{{Name: "a"}, {Name: "b"}}, differences{"b": lacking}},
		"counted only":          {record(acs.PoolActive, 2), []acs.Node{{Name: "a"}}, differences{"v100": counted}},
		"not registered yet":    {record(acs.PoolScaling, 2), []acs.Node{{Name: "a"}}, differences{}},
		"without the pool's ID": {record(acs.PoolActive, 2), []acs.Node{{Name: "a"}, {Name: "unlabelled"}}, differences{"unlabelled": "label " + contract.NodePoolIDLabel + " should be np1"}},
	} {
		t.Run(name, func(t *testing.T) {
			found := differences{}
			found.addAbsent(test.record, test.listed, snapshot, 1)
			assert.Equal(t, test.want, found)
		})
	}
}
