package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// The suite makes clusters, and gangs for each of them, from a fixed seed.
const (
	agreementSeed     = 1
	agreementClusters = 60
	gangsPerCluster   = 5
)

// TestAgreement holds the scheduler to the plan: for every gang, what the planner says
// of a snapshot of the cluster before the gang is submitted is what the scheduler does,
// member by member, card by card, and word by word when the gang must wait.
func TestAgreement(t *testing.T) {
	connect(t)
	startScheduler(t)
	fits, waits := 0, 0
	for i := range agreementClusters {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			random := rand.New(rand.NewPCG(agreementSeed, uint64(i)))
			s := newScene(t, randomMachines(random)...)
			if random.IntN(4) == 0 {
				s.setQuota(map[string]any{contract.ResourceTopologyCard: fmt.Sprint(4 + random.IntN(12))})
				s.awaitQuota()
			}
			for n := range gangsPerCluster {
				gang := randomGang(random, fmt.Sprintf("gang-%d", n))
				predicted := s.predict(gang)
				s.submit(gang)
				if predicted.Placement == nil {
					s.awaitText(gang.name, predicted.Verdict.String())
					s.remove(gang.name)
					waits++
					continue
				}
				s.requirePlaced(gang, *predicted.Placement)
				fits++
				if random.IntN(3) == 0 {
					s.remove(gang.name)
				}
			}
		})
	}
	t.Logf("%d gangs placed as planned, %d waited for the planned reason", fits, waits)
	require.Greater(t, fits, agreementClusters)
	require.Greater(t, waits, agreementClusters)
}

// dedicated is a taint that some nodes have and some gangs tolerate.
var dedicated = corev1.Taint{Key: "dedicated", Value: "training", Effect: corev1.TaintEffectNoSchedule}

func randomMachines(random *rand.Rand) []machine {
	var machines []machine
	for range 1 + random.IntN(3) {
		m := machine{count: 1, mode: "topology", extra: corev1.ResourceList{}}
		switch random.IntN(5) {
		case 0:
			m.mode = "default"
		case 1:
			m = sharedNode([]string{"binpack", "spread"}[random.IntN(2)])
		}
		if random.IntN(4) == 0 {
			m.taints = []corev1.Taint{dedicated}
		}
		if random.IntN(3) == 0 {
			m.extra[contract.ResourceERDMA] = *resource.NewQuantity(int64(1+random.IntN(4)), resource.DecimalSI)
		}
		machines = append(machines, m)
	}
	return machines
}

func randomGang(random *rand.Rand, name string) job {
	j := topologyGang(name, 1+random.IntN(4), 1<<random.IntN(4))
	switch random.IntN(6) {
	case 0:
		j.resource = contract.ResourceDefaultCard
	case 1:
		j = sharedJob(name, 1, int64(2+2*random.IntN(6)), int64(5*random.IntN(13)))
	case 2: // a pod on its own
		j.workers, j.labels = 1, nil
	}
	change := j.change
	tolerates, erdma := random.IntN(2) == 0, random.IntN(4) == 0
	cpu := int64(1 + random.IntN(20))
	j.change = func(pod *corev1.Pod) {
		if change != nil {
			change(pod)
		}
		if tolerates {
			pod.Spec.Tolerations = []corev1.Toleration{{Key: dedicated.Key, Operator: corev1.TolerationOpExists}}
		}
		list := pod.Spec.Containers[0].Resources.Requests
		list[corev1.ResourceCPU] = *resource.NewQuantity(cpu, resource.DecimalSI)
		if erdma {
			list[contract.ResourceERDMA] = *resource.NewQuantity(1, resource.DecimalSI)
		}
		pod.Spec.Containers[0].Resources.Limits = list
	}
	return j
}

// predict plans a job on a snapshot of the cluster, as the provider does.
func (s *scene) predict(j job) placement.Result {
	s.t.Helper()
	view, err := inventory.Snapshot(s.t.Context(), cluster.client)
	require.NoError(s.t, err)
	gang, problems := inventory.Gang(s.pods(j), nil, view.Quota())
	require.Empty(s.t, problems)
	return view.Plan(gang)
}

// requirePlaced waits until a job is bound, and checks each member's node and cards.
func (s *scene) requirePlaced(j job, planned placement.Placement) {
	s.t.Helper()
	pods := s.awaitBound(j.name)
	require.Len(s.t, planned.Assignments, len(pods))
	byMember := map[string]placement.Assignment{}
	for _, a := range planned.Assignments {
		byMember[a.Member] = a
	}
	for i := range pods {
		member := inventory.MemberNames([]*corev1.Pod{&pods[i]})[0]
		want, record := byMember[member], s.allocation(pods[i])
		require.Equal(s.t, want.Node, pods[i].Spec.NodeName, member)
		require.Equal(s.t, want.Own.String(), contract.IndexList(record.Cards), member)
		require.Equal(s.t, want.Visible.String(), contract.IndexList(record.Visible), member)
		require.Equal(s.t, want.Ring.NVLinkRings, record.NVLinkRings, member)
		require.Len(s.t, record.Shares, len(want.Shares), member)
		for k, share := range want.Shares {
			require.Equal(s.t, contract.CardShare(share), record.Shares[k], member)
		}
	}
	s.requireNoSharedCards()
}

// remove deletes a job's pods and waits until they are gone.
func (s *scene) remove(name string) {
	s.t.Helper()
	now := int64(0)
	require.NoError(s.t, api().CoreV1().Pods(s.namespace).DeleteCollection(s.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now},
		metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name}))
	s.await("job "+name+" to be gone", func(ctx context.Context) (bool, string) {
		n := len(s.list(ctx, name))
		return n == 0, fmt.Sprint(n)
	})
}

// awaitQuota waits until the scheduler knows the quota tree: it refuses a pod that
// exceeds every limit that the suite sets.
func (s *scene) awaitQuota() {
	s.t.Helper()
	probe := topologyGang("probe", 1, 1000)
	s.submit(probe)
	s.awaitReason("probe", "root/team")
	s.remove("probe")
}
