package explain_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

var update = flag.Bool("update", false, "write the golden files again")

// requireGolden compares a text with a golden file.
func requireGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test -update to make it")
	assert.Equal(t, string(want), string(got), name)
}

func text(t *testing.T, write func(io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, write(&b))
	return b.Bytes()
}

func why(t *testing.T, snapshot *clusterstate.Snapshot, key string) explain.Answer {
	t.Helper()
	a, ok := explain.Why(snapshot, explain.Around{}, key)
	require.True(t, ok, key)
	return a
}

func TestWhy(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(c *cluster)
		key     string
		state   explain.State
	}{
		"waits": {state: explain.Waiting, key: "default/big", arrange: func(c *cluster) {
			c.job("default", "big", 20, map[string]int64{topologyGPUs: 1, "cpu": 4}, says("3 of 20 members fit.", noon.Add(-90*time.Minute)))
		}},
		"roles": {state: explain.Waiting, key: "default/parts", arrange: func(c *cluster) {
			role := func(name string, minimum int) func(*corev1.Pod) {
				return func(p *corev1.Pod) {
					p.Name += "-" + name
					p.UID = types.UID(p.Name)
					p.Labels[contract.JobReplicaTypeLabel], p.Labels[contract.RoleMinLabel] = name, strconv.Itoa(minimum)
					p.Labels[contract.LightGangLabel], p.Labels[contract.LightGangMinLabel] = "parts", "18"
				}
			}
			c.job("default", "parts", 4, map[string]int64{topologyGPUs: 1}, role("master", 2))
			c.job("default", "parts", 20, map[string]int64{topologyGPUs: 1}, role("worker", 16))
		}},
		"quota": {state: explain.Waiting, key: "default/small", arrange: func(c *cluster) {
			c.quota("team", "default", 4, 5)
			c.job("default", "small", 2, map[string]int64{topologyGPUs: 1})
		}},
		"quota-jobs": {state: explain.Waiting, key: "default/small", arrange: func(c *cluster) {
			c.quota("team", "default", 4, 8, 1)
			c.job("default", "small", 2, map[string]int64{topologyGPUs: 1})
		}},
		"reserved": {state: explain.Waiting, key: "default/big", arrange: func(c *cluster) {
			c.job("default", "big", 1, map[string]int64{topologyGPUs: 8})
			c.cache.ReserveBlocked([]string{"default/big"}, nil)
		}},
		"held-back": {state: explain.Waiting, key: "default/small", arrange: func(c *cluster) {
			c.job("default", "big", 1, map[string]int64{topologyGPUs: 8})
			c.job("default", "small", 2, map[string]int64{topologyGPUs: 2})
			c.cache.ReserveBlocked([]string{"default/big"}, nil)
		}},
		"reserved-quota": {state: explain.Waiting, key: "default/more", arrange: func(c *cluster) {
			c.quota("team", "default", 4, 5)
			c.job("default", "more", 1, map[string]int64{topologyGPUs: 2})
			c.cache.ReserveBlocked([]string{"default/more"}, nil)
		}},
		"shared": {state: explain.Waiting, key: "pod/default/hungry", arrange: func(c *cluster) {
			c.job("default", "hungry", 1, map[string]int64{gpuMemory: 40, corePercent: 30}, alone)
		}},
		"domains": {state: explain.Waiting, key: "default/near", arrange: func(c *cluster) {
			for i, rack := range []string{"r1", "r2"} {
				c.node([]string{"a100-1", "a100-2"}[i], "a100", "topology", func(n *corev1.Node) { n.Labels["example.com/rack"] = rack })
			}
			c.job("default", "near", 3, map[string]int64{topologyGPUs: 8}, inOneDomain("example.com/rack"))
		}},
		"fits": {state: explain.Fits, key: "default/soon", arrange: func(c *cluster) {
			c.job("default", "soon", 1, map[string]int64{topologyGPUs: 2})
		}},
		"incomplete": {state: explain.Incomplete, key: "default/late", arrange: func(c *cluster) {
			c.job("default", "late", 1, map[string]int64{topologyGPUs: 1}, func(p *corev1.Pod) { p.Labels[contract.TopologyReplicasLabel] = "3" })
		}},
		"barred": {state: explain.Incomplete, key: "default/small", arrange: func(c *cluster) {
			c.job("default", "small", 2, map[string]int64{topologyGPUs: 1})
			c.invalidQuota("default")
		}},
		"many": {state: explain.Waiting, key: "default/huge", arrange: func(c *cluster) {
			for i := range 6 {
				c.node("spare-"+string(rune('1'+i)), "spare", "topology")
			}
			c.job("default", "huge", 64, map[string]int64{topologyGPUs: 1})
		}},
		"preempting": {state: explain.Preempting, key: "default/urgent", arrange: func(c *cluster) {
			c.job("default", "urgent", 1, map[string]int64{topologyGPUs: 8}, urgent)
		}},
		"budget": {state: explain.Waiting, key: "default/urgent", arrange: func(c *cluster) {
			c.budget("research", "bert", 1)
			c.job("default", "urgent", 1, map[string]int64{topologyGPUs: 8}, urgent)
		}},
		"budget-allows": {state: explain.Preempting, key: "default/urgent", arrange: func(c *cluster) {
			c.budget("research", "bert", 2)
			c.job("default", "urgent", 1, map[string]int64{topologyGPUs: 8}, urgent)
		}},
		"runs": {state: explain.Running, key: "default/vgg16", arrange: func(*cluster) {}},
		"sick": {state: explain.Running, key: "research/bert", arrange: func(c *cluster) {
			c.unwell("v100-1", 6, "XID 48: double-bit ECC error")
		}},
		"sick-share": {state: explain.Running, key: "pod/default/notebook-a", arrange: func(c *cluster) {
			c.unwell("shared-1", 0, "XID 48: double-bit ECC error")
		}},
		"foreign": {state: explain.Rejected, key: "default/other", arrange: func(c *cluster) {
			c.job("default", "other", 1, map[string]int64{defaultGPUs: 1}, func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := busyCluster(t)
			test.arrange(c)
			snapshot := c.cache.Snapshot()
			a := why(t, snapshot, test.key)
			assert.Equal(t, test.state, a.State)
			requireGolden(t, "why-"+name+".txt", text(t, func(w io.Writer) error { return a.WriteText(w, noon) }))

			// The scheduler's cache gives the same verdict: there is one planner.
			_, result, ok := c.cache.Plan(test.key, nil)
			require.True(t, ok)
			if a.State == explain.Waiting {
				assert.Equal(t, result.Verdict.String(), a.Verdict)
			}
		})
	}
}

// inOneDomain keeps the members of a gang together, by affinity to each other.
func inOneDomain(label string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: label, LabelSelector: selector(p.Labels[contract.JobNameLabel]),
		}}}}
	}
}

func TestFixes(t *testing.T) {
	c := busyCluster(t)
	c.job("default", "big", 20, map[string]int64{topologyGPUs: 1})
	a := why(t, c.cache.Snapshot(), "default/big")
	requireGolden(t, "fits.txt", text(t, a.WriteFixes))
	require.NotEmpty(t, a.Fixes)
	assert.Equal(t, "pool size", a.Fixes[0].Kind)
}

func TestGangs(t *testing.T) {
	c := busyCluster(t)
	c.job("default", "big", 20, map[string]int64{topologyGPUs: 1}, says("5 of 20 members fit.", noon.Add(-3*time.Minute)))
	c.job("default", "soon", 1, map[string]int64{topologyGPUs: 2})
	c.unwell("v100-1", 6, "XID 48: double-bit ECC error")
	gangs := explain.Gangs(c.cache.Snapshot(), explain.Around{})
	requireGolden(t, "gangs.txt", text(t, func(w io.Writer) error { return explain.WriteGangs(w, gangs, noon) }))
	assert.Equal(t, "No pod asks for GPUs.\n", string(text(t, func(w io.Writer) error { return explain.WriteGangs(w, nil, noon) })))
}

func TestGPUs(t *testing.T) {
	m := explain.GPUs(busyCluster(t).cache.Snapshot())
	requireGolden(t, "gpus.txt", text(t, m.WriteText))
	requireGolden(t, "../../../docs/images/gpus.svg", m.SVG()) // docs/explain.md shows it

	raw, err := json.Marshal(m)
	require.NoError(t, err)
	var back explain.GPUMap
	require.NoError(t, json.Unmarshal(raw, &back))
	assert.Equal(t, m, back)

	// One cell per GPU and one per entry of the legend.
	cells := 0
	for decoder := xml.NewDecoder(bytes.NewReader(m.SVG())); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "g" {
			cells++
		}
	}
	assert.Equal(t, 4*8+len(m.Holders), cells)
}

// Of a gang that runs with fewer members than it has the answer says why the others wait.
func TestWaitingMembersOfAnElasticGang(t *testing.T) {
	elastic := func(p *corev1.Pod) {
		p.Labels[contract.LightGangLabel], p.Labels[contract.LightGangMinLabel] = "elastic", "2"
	}
	for name, test := range map[string]struct {
		arrange func(*cluster)
		around  explain.Around
		says    string
	}{
		"no room": {func(*cluster) {}, explain.Around{}, "Gang default/elastic runs with 2 members. 1 more member waits, because 1 node has no free GPU left."},
		"reserved": {func(c *cluster) {
			c.node("n2", "v100", "topology")
			c.job("default", "other", 1, map[string]int64{topologyGPUs: 4})
			c.run("default/other")
			c.job("default", "big", 1, map[string]int64{topologyGPUs: 8})
			c.cache.ReserveBlocked([]string{"default/big"}, nil)
		}, explain.Around{}, "Gang default/elastic runs with 2 members. 1 more member waits. Held back by the reservation of gang default/big."},
		"gate": {func(c *cluster) {
			c.node("n2", "v100", "topology")
			c.job("default", "elastic", 3, map[string]int64{topologyGPUs: 4}, elastic, func(p *corev1.Pod) {
				if p.Name == "elastic-worker-2" {
					p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}}
				}
			})
			c.run("default/elastic")
		}, explain.Around{}, "Gang default/elastic runs with 2 members. 1 more member waits, because pod elastic-worker-2 has the scheduling gate queue."},
		"no quota": {func(c *cluster) { c.node("n2", "v100", "topology"); c.quota("team", "default", 0, 8) }, explain.Around{}, "1 more member waits, because quota root/team: max of aliyun.com/gpu is 8"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("n1", "v100", "topology")
			c.job("default", "elastic", 3, map[string]int64{topologyGPUs: 4}, elastic)
			c.run("default/elastic")
			test.arrange(c)
			a, ok := explain.Why(c.cache.Snapshot(), test.around, "default/elastic")
			require.True(t, ok)
			assert.Equal(t, explain.Running, a.State)
			assert.Contains(t, string(text(t, func(w io.Writer) error { return a.WriteText(w, noon) })), test.says)
		})
	}
}

// Of a gang whose workers run the answer says what its launcher waits for: quota here, by the planner's word
// where no scheduler has written any, and a claim that is missing.
func TestWaitingLauncher(t *testing.T) {
	for name, test := range map[string]struct {
		change       func(*corev1.Pod)
		because      string
		fix, listing string
	}{
		"quota": {
			change:  says("0 of 1 member fits: quota root/team: max of cpu is 4.", noon.Add(-5*time.Minute)),
			because: "because quota root/team: max of cpu is 4, 2 is used and 3 is asked for",
			fix:     "Its launcher-0 would start with any one of these, each of them planned\n  1. quota max 5 (now 4) of cpu for root/team",
			listing: "default/bert   Running  2/2      0         5m     launcher-0 waits, because 0 of 1 member fits: quota root/team: max of cpu is 4\n",
		},
		"gate": {
			change:  func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} },
			because: "because pod bert-launcher has the scheduling gate example.com/wait; quota root/team: max of cpu is 4",
			fix:     "quota max 5",
			listing: "launcher-0 waits, because pod bert-launcher has the scheduling gate example.com/wait\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("v100-1", "v100", "topology")
			c.quotaOf("team", "default", nil, map[string]any{"cpu": "4", topologyGPUs: 8})
			c.job("default", "bert", 2, map[string]int64{topologyGPUs: 1, "cpu": 1})
			c.run("default/bert")
			c.job("default", "quiet", 1, map[string]int64{topologyGPUs: 1})
			c.run("default/quiet")
			c.job("default", "bert", 1, map[string]int64{"cpu": 3}, func(p *corev1.Pod) {
				p.Name, p.UID = "bert-launcher", "bert-launcher"
				p.Labels[contract.JobReplicaTypeLabel], p.Labels[contract.TopologyReplicasLabel] = contract.ReplicaLauncher, "2"
			}, test.change)
			a := why(t, c.cache.Snapshot(), "default/bert")
			assert.Equal(t, explain.Running, a.State)
			written := string(text(t, func(w io.Writer) error { return a.WriteText(w, noon) }))
			assert.Contains(t, written, "Gang default/bert runs with 2 members. Its launcher-0 waits, "+test.because)
			assert.Contains(t, written, test.fix)
			assert.Contains(t, string(text(t, a.WriteFixes)), test.fix)

			gangs := explain.Gangs(c.cache.Snapshot(), explain.Around{})
			assert.Equal(t, "default/bert", gangs[0].Gang, "before those that run and wait for nobody")
			assert.Contains(t, string(text(t, func(w io.Writer) error { return explain.WriteGangs(w, gangs, noon) })), test.listing)
		})
	}
}

// A pod that a Job has made is known to its user by the Job.
func TestPodOfAJob(t *testing.T) {
	c := newCluster(t)
	c.node("v100-1", "v100", "topology")
	yes := true
	c.job("default", "foreign-k4v9r", 1, map[string]int64{topologyGPUs: 1}, alone, func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "foreign", Controller: &yes}}
	})
	c.run("pod/default/foreign-k4v9r")
	snapshot := c.cache.Snapshot()
	listed := string(text(t, func(w io.Writer) error { return explain.WriteGangs(w, explain.Gangs(snapshot, explain.Around{}), noon) }))
	assert.Contains(t, listed, "\ndefault/foreign (pod foreign-k4v9r)  Running  1/1 ")
	a := why(t, snapshot, "pod/default/foreign-k4v9r")
	assert.Equal(t, "default/foreign", a.Owner)
	assert.Contains(t, string(text(t, a.WriteFixes)), "Pod default/foreign-k4v9r runs.\n")
}

// A JobSet that says nothing of a gang, such as that of a TrainJob of others, is its pods, by its own name and by those of its Jobs.
func TestPodsOfAJobSetThatIsNoGang(t *testing.T) {
	c := newCluster(t)
	c.node("v100-1", "v100", "topology")
	yes := true
	for _, pod := range []string{"theirs-node-0-0", "theirs-node-0-1"} {
		c.job("default", pod, 1, map[string]int64{topologyGPUs: 1}, alone, func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "theirs-node-0", Controller: &yes}}
			p.Labels = map[string]string{contract.JobSetNameLabel: "theirs"}
		})
		c.run("pod/default/" + pod)
	}
	for _, name := range []string{"theirs", "theirs-node-0"} {
		answers := explain.Find(c.cache.Snapshot(), explain.Around{}, "default", name)
		require.Len(t, answers, 2, name)
		for _, a := range answers {
			assert.Equal(t, explain.Running, a.State)
			assert.Equal(t, "default/theirs", a.Owner)
		}
	}
}

// An answer for programs names whose reservation holds a gang back, and those that the gang waits
// for that holds it, as long as they run.
func TestReservations(t *testing.T) {
	c := newCluster(t)
	c.node("n1", "v100", "topology")
	c.job("default", "first", 1, map[string]int64{topologyGPUs: 3})
	c.run("default/first")
	second := c.job("default", "second", 1, map[string]int64{topologyGPUs: 3}, alone)
	c.run("pod/default/second")
	c.job("default", "big", 1, map[string]int64{topologyGPUs: 8})
	c.job("default", "small", 1, map[string]int64{topologyGPUs: 1})
	assert.Equal(t, explain.Fits, why(t, c.cache.Snapshot(), "default/small").State)
	c.cache.ReserveBlocked([]string{"default/big"}, nil)

	small, big := why(t, c.cache.Snapshot(), "default/small"), why(t, c.cache.Snapshot(), "default/big")
	assert.Equal(t, []any{explain.Waiting, "default/big", ""}, []any{small.State, small.ReservedBy, small.Awaits})
	assert.Equal(t, []any{explain.Waiting, "", "gang default/first; pod default/second"}, []any{big.State, big.ReservedBy, big.Awaits})
	raw, err := json.Marshal(small)
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"reservedBy":"default/big"`)

	c.cache.RemovePod(second[0].UID)
	assert.Equal(t, "gang default/first", why(t, c.cache.Snapshot(), "default/big").Awaits)
}

// An answer for programs names the sick GPUs below a gang as well, once each.
func TestSickGPUsOfARunningGang(t *testing.T) {
	c := newCluster(t)
	c.node("shared-1", "shared", "core_mem")
	c.job("default", "notebooks", 2, map[string]int64{gpuMemory: 6, corePercent: 30})
	c.run("default/notebooks")
	assert.Empty(t, why(t, c.cache.Snapshot(), "default/notebooks").SickGPUs)
	c.unwell("shared-1", 0, "XID 79")
	a := why(t, c.cache.Snapshot(), "default/notebooks")
	assert.Equal(t, []explain.SickGPU{{Node: "shared-1", GPU: 0, Reason: "XID 79", Members: []string{"worker-0", "worker-1"}}}, a.SickGPUs)
	raw, err := json.Marshal(a)
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"sickGPUs":[{"node":"shared-1","gpu":0,"reason":"XID 79","members":["worker-0","worker-1"]}]`)
}

// A holder is on as many GPUs as there are, however many of its pods share one of them.
func TestGPUsThatAreShared(t *testing.T) {
	c := newCluster(t)
	c.node("shared-1", "shared", "core_mem")
	c.job("default", "notebooks", 2, map[string]int64{gpuMemory: 6, corePercent: 30})
	c.run("default/notebooks")
	holders := explain.GPUs(c.cache.Snapshot()).Holders
	require.Len(t, holders, 1)
	assert.Equal(t, explain.Holder{Gang: "default/notebooks", Pods: 2, GPUs: 1}, holders[0])
}

// Whole GPUs stay taken on a node that now gives GPUs away in parts.
func TestGPUsOfANodeOfAnotherMode(t *testing.T) {
	c := newCluster(t)
	c.node("n1", "v100", "topology")
	c.job("default", "whole", 7, map[string]int64{topologyGPUs: 1})
	c.run("default/whole")
	c.node("n1", "v100", "core_mem")
	gpus := explain.GPUs(c.cache.Snapshot())
	size := gpus.Pools[0].GPUGiB
	assert.Contains(t, string(text(t, gpus.WriteText)), fmt.Sprintf("%d of %d GiB", size, 8*size))
}

// A pod that was bound past the scheduler is guessed to be where nobody is known to be, and
// while it runs nobody gets a GPU of its node.
func TestGPUsOfAPodWithoutARecord(t *testing.T) {
	c := newCluster(t)
	c.node("n1", "v100", "topology")
	c.job("default", "z", 1, map[string]int64{topologyGPUs: 1})
	c.run("default/z")
	c.job("default", "a", 1, map[string]int64{topologyGPUs: 1}, alone, func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	gpus := explain.GPUs(c.cache.Snapshot())
	for _, gpu := range gpus.Pools[0].Nodes[0].GPUs {
		assert.LessOrEqual(t, len(gpu.Holders), 1, "GPU %d", gpu.Index)
	}
	var text strings.Builder
	require.NoError(t, gpus.WriteText(&text))
	assert.Contains(t, text.String(), "0 of 8")
	assert.Contains(t, text.String(), "? n1: a pod that another scheduler bound, or that was bound in another mode of the node, has GPUs")
}

// Where the agents of nodes say which GPUs containers were given, nothing is guessed; what differs from the records is told.
func TestGPUsThatNodesConfirm(t *testing.T) {
	c := busyCluster(t)
	snapshot := c.cache.Snapshot()
	give := func(pod string, indexes ...int) {
		t.Helper()
		for _, node := range snapshot.View.Nodes() {
			for _, known := range snapshot.View.Pods(node) {
				live := snapshot.Pod(known.ID)
				if live.Name != pod {
					continue
				}
				text, err := contract.Confirmation{Node: node, Containers: map[string]contract.ConfirmedContainer{
					live.Spec.Containers[0].Name: {Way: contract.WayCDI, GPUs: make([]string, len(indexes)), Indexes: indexes},
				}}.Annotation()
				require.NoError(t, err)
				changed := live.DeepCopy()
				metav1.SetMetaDataAnnotation(&changed.ObjectMeta, contract.ConfirmedAnnotation, text)
				c.cache.SetPod(changed)
				return
			}
		}
		require.Fail(t, "no pod "+pod)
	}
	give("resnet-worker-0", 4, 6)
	give("vgg16-worker-0", 0)
	give("bert-worker-0", 1)
	requireGolden(t, "gpus-confirmed.txt", text(t, explain.GPUs(c.cache.Snapshot()).WriteText))
}

// Every GPU that a record names is on the map with its pod, and no other.
func TestGPUsAreThoseOfTheRecords(t *testing.T) {
	c := busyCluster(t)
	onMap := map[string][]int{}
	for _, pool := range explain.GPUs(c.cache.Snapshot()).Pools {
		for _, n := range pool.Nodes {
			for _, gpu := range n.GPUs {
				for _, h := range gpu.Holders {
					if !h.Guessed {
						onMap[h.Pod] = append(onMap[h.Pod], gpu.Index)
					}
				}
			}
		}
	}
	inAnswers := map[string][]int{}
	snapshot := c.cache.Snapshot()
	for _, key := range snapshot.Keys() {
		a := why(t, snapshot, key)
		for _, p := range a.Places {
			gpus := p.GPUs
			for _, share := range p.Shares {
				gpus = append(gpus, share.GPU)
			}
			if len(gpus) > 0 {
				name := a.Gang
				if !a.Pod {
					name += "-" + p.Member
				}
				inAnswers[name] = gpus
			}
		}
	}
	assert.Equal(t, inAnswers, onMap)
}

func TestWithout(t *testing.T) {
	c := busyCluster(t)
	snapshot := c.cache.Snapshot()
	c.node("spare-1", "spare", "topology")
	larger := c.cache.Snapshot()
	launched := mpiCluster(t).cache.Snapshot()
	for name, test := range map[string]struct {
		snapshot *clusterstate.Snapshot
		nodes    []string
	}{
		"one":   {snapshot, []string{"v100-1"}},
		"both":  {snapshot, []string{"v100-1", "v100-2"}},
		"idle":  {snapshot, []string{"cpu-1"}},
		"moves": {larger, []string{"v100-1"}},
		// A launcher starts once the workers run, and is nowhere in their plan: it was counted
		// among those that move, and missing in the list of where they go.
		"launcher":      {launched, []string{"v100-1"}},
		"only-launcher": {launched, []string{"cpu-1"}},
	} {
		losses, err := explain.Without(test.snapshot, test.nodes)
		require.NoError(t, err)
		requireGolden(t, "without-"+name+".txt", text(t, func(w io.Writer) error { return explain.WriteLosses(w, test.nodes, losses) }))
	}
	_, err := explain.Without(snapshot, []string{"elsewhere"})
	assert.EqualError(t, err, `there is no node "elsewhere"`)
	assert.Equal(t, explain.GPUs(c.cache.Snapshot()), explain.GPUs(larger), "asking changes nothing")
}
