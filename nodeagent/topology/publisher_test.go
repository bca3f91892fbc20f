package topology

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

func TestPublish(t *testing.T) {
	w := newWorld(t)
	m := machine(t, "dgx1-v100")
	w.start(t, m).round()

	n := w.gpuNode(t)
	got, err := n.Status.Machine()
	require.NoError(t, err)
	assert.Equal(t, m, got)
	assert.Equal(t, "550.1", n.Status.DriverVersion)
	node, err := w.client.Get(w.ctx, nodeKind, "", nodeName)
	require.NoError(t, err)
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.GetUID()}}
	assert.Equal(t, want, n.OwnerReferences, "it goes with its node")
	assert.Equal(t, want, w.mirror(t).GetOwnerReferences())
	assert.Equal(t, metav1.ConditionTrue, n.Status.Conditions[0].Status)
	assert.Equal(t, "8 GPUs", n.Status.Conditions[0].Message)
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	require.Len(t, conditions, 1)
	assert.Equal(t, map[string]any{
		"type": contract.GPUsReadyCondition, "status": "True", "reason": "AllGPUsHealthy", "message": "8 GPUs", "lastTransitionTime": "2026-01-02T03:04:05Z",
	}, conditions[0])
}

// Whether parts of GPUs are enforced is published, by an agent that shares GPUs.
func TestEnforcementIsPublished(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	assert.Nil(t, w.gpuNode(t).Status.Sharing, "the agent does not share GPUs")

	sharing := contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: "no such program"}
	var seen hardware.Reading
	a.Enforcement = func(r hardware.Reading) contract.GPUSharing { seen = r; return sharing }
	a.round()
	assert.Equal(t, &sharing, w.gpuNode(t).Status.Sharing)
	assert.Len(t, seen.Machine.GPUs, 8)
	writes := w.Writes()
	a.round()
	assert.Equal(t, writes, w.Writes(), "it is no news")
	sharing = contract.GPUSharing{Enforcement: contract.EnforcedByMPS}
	a.round()
	assert.Equal(t, &sharing, w.gpuNode(t).Status.Sharing)
}

// A condition that another writes of the GPUNode stays as that one has it, also when the agent has
// seen an old state of it.
func TestConditionsOfOthersStay(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	checked := func(status metav1.ConditionStatus) {
		obj, err := w.client.Get(w.ctx, gpuNodeKind, "", nodeName)
		require.NoError(t, err)
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "Checked" })
		conditions = append(conditions, map[string]any{
			"type": "Checked", "status": string(status), "reason": "Checked", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
		})
		require.NoError(t, unstructured.SetNestedSlice(obj.Object, conditions, "status", "conditions"))
		w.Put(obj)
	}
	checked(metav1.ConditionTrue)
	a.seen("the condition of another", func() bool {
		live, err := a.live()
		return err == nil && meta.IsStatusConditionTrue(live.Status.Conditions, "Checked")
	})
	writes := w.Writes()
	a.round()
	assert.Equal(t, writes, w.Writes(), "it is no news")

	live, err := a.live()
	require.NoError(t, err)
	checked(metav1.ConditionFalse)
	require.NoError(t, a.writeStatus(w.ctx, a.status(live.Status)))
	conditions := w.gpuNode(t).Status.Conditions
	assert.True(t, meta.IsStatusConditionFalse(conditions, "Checked"))
	assert.True(t, meta.IsStatusConditionTrue(conditions, contract.ConditionReady))
}

// A field of the status that another has added, and that the agent does not own, stays, and is no reason to write.
func TestAFieldOfOthersIsNoNews(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	obj, err := w.client.Get(w.ctx, gpuNodeKind, "", nodeName)
	require.NoError(t, err)
	put := func(value any, field string) {
		require.NoError(t, unstructured.SetNestedField(obj.Object, value, "status", field))
		w.Put(obj)
		a.seen(field, func() bool {
			have, _, _ := unstructured.NestedFieldNoCopy(a.Nodes.Get(cluster.GPUNode, nodeName).Object, "status", field)
			return have == value
		})
	}
	differs := func() bool {
		live, err := a.live()
		require.NoError(t, err)
		return a.differs(live.Status, a.status(live.Status))
	}
	put(int64(64), "lockableKiB")
	assert.False(t, differs())
	put("another", "model")
	assert.True(t, differs(), "this is the agent's")
}

// A day without news: heartbeats, and nothing else.
func TestAQuietNodeWritesHeartbeatsOnly(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	requests := w.Writes()
	for range 24 * 60 * 2 {
		a.after(30 * time.Second)
		live, err := a.live()
		require.NoError(t, err)
		assert.Empty(t, live.Status.Doubt(w.now))
	}
	assert.Equal(t, 24*6, w.Writes()-requests, "one in ten minutes")

	before := w.Writes()
	w.start(t, machine(t, "dgx1-v100")).round()
	assert.Equal(t, before+1, w.Writes(), "an agent that starts says who it is")
}

func TestWhatOthersDeletedComesBack(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	w.Remove(gpuNodeKind, "", nodeName)
	w.Remove(configMapKind, "kube-system", contract.TopologyConfigMapPrefix+nodeName)
	a.seen("their end", func() bool {
		return a.Nodes.Get(cluster.GPUNode, nodeName) == nil && a.Nodes.Get(cluster.Mirror, nodeName) == nil
	})
	a.round()
	assert.Len(t, w.gpuNode(t).Status.GPUs, 8)
	w.mirror(t)
}

func TestUnhealthyGPUHasReasonAndTime(t *testing.T) {
	w := newWorld(t)
	m := machine(t, "dgx1-v100")
	m.GPUs[3].Unhealthy = "marked by hand"
	failed := metav1.NewTime(w.now).Rfc3339Copy()
	w.startWith(t, m, 0).round()
	w.now = w.now.Add(time.Hour)
	a := w.startWith(t, m, 0)
	a.round()

	status := w.gpuNode(t).Status
	assert.Equal(t, contract.Unhealthy, status.GPUs[3].Health)
	assert.Equal(t, "marked by hand", status.GPUs[3].Reason)
	assert.True(t, failed.Equal(status.GPUs[3].Since), "since %v, want %v", status.GPUs[3].Since, failed)
	assert.Equal(t, metav1.ConditionFalse, status.Conditions[0].Status)
	assert.Equal(t, "GPU 3: marked by hand", status.Conditions[0].Message)
	var devices map[string]string
	decode(t, w.mirror(t), "devices", &devices)
	assert.Equal(t, contract.Unhealthy, devices["3"])
	assert.Equal(t, contract.Healthy, devices["4"])
	assert.Equal(t, []string{"Warning GPUUnhealthy GPU 3  must not be used: marked by hand"}, w.eventsSoFar(), "once, over a restart")
	assert.Contains(t, a.log.String(), `msg="health of a GPU" node=cn-local.10.0.1.1 gpu=3`)

	a.source.change(func(r *hardware.Reading) { r.Machine = machine(t, "dgx1-v100") })
	a.round()
	assert.Equal(t, []string{"Normal GPUHealthy GPU 3  is used again"}, w.eventsSoFar())
	status = w.gpuNode(t).Status
	assert.Equal(t, contract.GPUInfo{Index: 3, NUMANode: 0, CPUAffinity: "0-19,40-59", PCIBusID: "0000:0B:00.0", Health: contract.Healthy}, status.GPUs[3])
}

// What the GPUs report while the API server is away is neither lost nor late.
func TestEventsDuringAnOutage(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	lost := hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 79}
	a.source.report(lost)
	a.look(w.ctx) // before the cluster has told anything
	if a.Nodes.Synced() != nil {
		_, err := a.publish(w.ctx)
		assert.ErrorContains(t, err, "the cluster has not listed its")
	}
	assert.Contains(t, a.log.String(), "code=XID79")
	assert.Contains(t, scrape(a.Metrics), `gpuplan_gpu_signals_total{kind="XID",node="cn-local.10.0.1.1",uuid="GPU-5",xid="79"} 1`)

	a.round()
	gpu := w.gpuNode(t).Status.GPUs[5]
	assert.Equal(t, contract.Unhealthy, gpu.Health)
	assert.Equal(t, []contract.GPUFault{{Code: "XID79", Class: "NeedsReset", Message: "XID 79: the GPU has fallen off the bus", Since: metav1.NewTime(w.now).Rfc3339Copy()}},
		inUTC(gpu.Faults))
}

// inUTC has times that can be compared.
func inUTC(faults []contract.GPUFault) []contract.GPUFault {
	for i := range faults {
		faults[i].Since = metav1.NewTime(faults[i].Since.UTC())
	}
	return faults
}

func TestOnlyAResetHealsWhatNeedsOne(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 48})
	a.round()
	healthOf := func() string { return w.gpuNode(t).Status.GPUs[5].Health }

	a.after(24 * time.Hour)
	assert.Equal(t, contract.Unhealthy, healthOf(), "quiet is not enough")
	a = w.start(t, wired(t, "dgx1-v100"))
	a.round()
	a.after(24 * time.Hour)
	assert.Equal(t, contract.Unhealthy, healthOf(), "nor is a restart of the agent")

	a = w.start(t, wired(t, "dgx1-v100"))
	a.Boot = "boot-2"
	a.round()
	assert.Equal(t, contract.Unhealthy, healthOf(), "it has to show itself first")
	a.after(5 * time.Minute)
	assert.Equal(t, contract.Healthy, healthOf(), "the machine was rebooted")
}

// A lost GPU tells nothing of itself, also to an agent that starts.
func TestALostGPUIsKnownAfterARestart(t *testing.T) {
	w := newWorld(t)
	whole := wired(t, "dgx1-v100")
	w.start(t, whole).round()
	blank := wired(t, "dgx1-v100")
	blank.GPUs[3] = hardwareUnknown(3)
	a := w.start(t, blank)
	a.source.change(func(r *hardware.Reading) {
		r.Signals = []hardware.Signal{{GPU: "#3", Kind: hardware.Lost, Detail: "GPU is lost"}}
	})
	a.round()
	gpu := w.gpuNode(t).Status.GPUs[3]
	assert.Equal(t, "GPU-3", gpu.UUID)
	assert.Equal(t, whole.GPUs[3].PCIBusID, gpu.PCIBusID)
	assert.Equal(t, "GPU is lost", gpu.Reason)

	a = w.start(t, whole) // it answers again, and nobody has seen a reset
	a.round()
	a.after(time.Hour)
	assert.Equal(t, contract.Unhealthy, w.gpuNode(t).Status.GPUs[3].Health)
}

func TestAGPUThatVanishedIsNotForgotten(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.round()
	a.source.change(func(r *hardware.Reading) { r.Machine = without(wired(t, "dgx1-v100"), 3) })
	a.source.report(hardware.Signal{GPU: "GPU-4", Kind: hardware.XID, Number: 48}) // the driver calls it GPU 3 now
	a.round()

	status := w.gpuNode(t).Status
	require.Len(t, status.GPUs, 8)
	assert.Equal(t, "GPU 3: the driver does not list the GPU any more; GPU 4: XID 48: double-bit ECC error", status.Conditions[0].Message)
	assert.ElementsMatch(t, []string{
		"Warning GPUUnhealthy GPU 3 GPU-3 must not be used: the driver does not list the GPU any more",
		"Warning GPUUnhealthy GPU 4 GPU-4 must not be used: XID 48: double-bit ECC error",
	}, w.eventsSoFar())

	b := w.start(t, without(wired(t, "dgx1-v100"), 3))
	b.round()
	assert.Len(t, w.gpuNode(t).Status.GPUs, 8, "after a restart of the agent")

	w.Remove(gpuNodeKind, "", nodeName)
	b.seen("its end", func() bool { return b.Nodes.Get(cluster.GPUNode, nodeName) == nil })
	b.round()
	status = w.gpuNode(t).Status
	assert.Len(t, status.GPUs, 7, "whoever deletes the GPUNode asks to start again")
	assert.Equal(t, metav1.ConditionTrue, status.Conditions[0].Status)
}

func TestTheDriverIsGone(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.fail(errGone)
	a.round()
	assert.Empty(t, w.gpuNode(t).Status.GPUs, "before anything was read")

	a.source.set(hardware.Reading{Machine: wired(t, "dgx1-v100")})
	a.round()
	assert.Empty(t, w.gpuNode(t).Status.Doubt(w.now))
	a.source.fail(errGone)
	a.round()

	status := w.gpuNode(t).Status
	assert.Len(t, status.GPUs, 8, "what was known stays")
	require.Len(t, status.Conditions, 1)
	assert.Equal(t, metav1.ConditionUnknown, status.Conditions[0].Status)
	assert.Equal(t, "the node agent cannot read the GPUs: driver not loaded", status.Doubt(w.now), "so that nothing is placed there")
	var devices map[string]string
	decode(t, w.mirror(t), "devices", &devices)
	assert.Equal(t, contract.Unhealthy, devices["0"])
	assert.Contains(t, scrape(a.Metrics), `gpuplan_gpu_usable{gpu="0",node="cn-local.10.0.1.1",uuid="GPU-0"} 0`)
	assert.Contains(t, w.eventsSoFar(), "Warning GPUsUnreadable The GPUs cannot be read, and nothing is placed on them: driver not loaded")
}

func TestHardwareThatContradictsItself(t *testing.T) {
	w := newWorld(t)
	m := wired(t, "dgx1-v100")
	m.NVLinkGBps = 0
	w.start(t, m).round()
	ready := w.gpuNode(t).Status.Conditions[0]
	assert.Equal(t, metav1.ConditionUnknown, ready.Status, "what cannot be used is not ready")
	assert.Contains(t, ready.Message, "the bandwidth of one NVLink is missing")
}

func TestALinkThatDropsLeavesTheGraph(t *testing.T) {
	w := newWorld(t)
	m := wired(t, "dgx1-v100")
	a := w.start(t, m)
	details := func(n int) []hardware.GPU {
		gpus := make([]hardware.GPU, 8)
		for i := range gpus {
			gpus[i].NVLinks = n
		}
		return gpus
	}
	a.source.change(func(r *hardware.Reading) { r.GPUs = details(6) })
	a.round()

	m = wired(t, "dgx1-v100")
	m.Links[0][3], m.Links[3][0] = m.PCIeLinks[0][3], m.PCIeLinks[3][0]
	a = w.start(t, m) // also to an agent that starts
	a.source.change(func(r *hardware.Reading) {
		r.GPUs = details(6)
		r.GPUs[0].NVLinks, r.GPUs[3].NVLinks = 4, 4
	})
	a.round()

	status := w.gpuNode(t).Status
	assert.Equal(t, "X NV1 NV1 PHB NV2 SYS SYS SYS", status.Links[0])
	assert.Equal(t, "2 of 6 NVLinks are down", status.GPUs[3].Reason)
	assert.Equal(t, "Suspect", status.GPUs[3].State)
	assert.Equal(t, []int{4, 6}, []int{status.GPUs[3].NVLinks, status.GPUs[3].MaxNVLinks})
	var links [][]string
	decode(t, w.mirror(t), "linkType", &links)
	assert.Equal(t, "PHB", links[0][3])
}

// A pair of GPUs that the driver keeps apart from then on shows in the GPUNode, and in what the mirror says of its bandwidth.
func TestPeerToPeerOfAPair(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	assert.Nil(t, w.gpuNode(t).Status.P2P)
	bandwidth := func() float64 {
		var all [][]float64
		decode(t, w.mirror(t), "bandwidth", &all)
		return all[0][5]
	}
	before := bandwidth()
	a.source.change(func(r *hardware.Reading) {
		r.Machine.P2P = gpu.NoP2P(8)
		r.Machine.P2P.Read[0][1] = gpu.P2POK
	})
	a.round()
	assert.Equal(t, "X OK NS NS NS NS NS NS", w.gpuNode(t).Status.P2P.Read[0])
	assert.Less(t, bandwidth(), before)
}

func TestMIGIsPublished(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.change(func(r *hardware.Reading) {
		r.GPUs = make([]hardware.GPU, 8)
		r.GPUs[1].MIG = hardware.MIG{Capable: true, Enabled: true, Pending: true, Profiles: []string{"3g.20gb", "1g.5gb", "3g.20gb"}}
		r.GPUs[2].MIG = hardware.MIG{Capable: true, Enabled: true}
		r.GPUs[3].MIG = hardware.MIG{Capable: true, Pending: true}
	})
	a.round()
	type mig struct {
		on      bool
		pending string
		devices []contract.MIGDevices
	}
	for i, want := range []mig{
		{}, {true, "", []contract.MIGDevices{{Profile: "1g.5gb", Count: 1}, {Profile: "3g.20gb", Count: 2}}},
		{true, contract.MIGDisabled, nil}, {false, contract.MIGEnabled, nil},
	} {
		got := w.gpuNode(t).Status.GPUs[i]
		assert.Equal(t, want, mig{got.MIG, got.PendingMIG, got.MIGDevices}, "GPU %d", i)
	}
}

func TestMirrorFollowsTheMode(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	w.mirror(t)

	w.putNode("default")
	a.seen("the mode", func() bool {
		return a.Nodes.Get(cluster.Node, nodeName).GetLabels()[contract.NodeModeLabel] == "default"
	})
	a.round()
	_, err := w.client.Get(w.ctx, configMapKind, "kube-system", contract.TopologyConfigMapPrefix+nodeName)
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

// Of two agents on a node the one that started later publishes, until it is silent.
func TestTwoAgentsDoNotFlip(t *testing.T) {
	w := newWorld(t)
	old, young := w.start(t, wired(t, "dgx1-v100")), w.start(t, wired(t, "dgx1-v100"))
	young.source.change(func(r *hardware.Reading) { r.DriverVersion = "551.0" })
	driver := func() string { return w.gpuNode(t).Status.DriverVersion }
	shown := func(a *agent, by *agent) {
		a.seen("the other's word", func() bool {
			live, err := a.live()
			return err == nil && live.Status.Agent != nil && live.Status.Agent.Instance == by.Instance
		})
	}
	old.round()
	shown(young, old)
	young.round()
	assert.Equal(t, "551.0", driver(), "the later one takes over at once")
	writes := w.Writes()
	shown(old, young)
	for range 10 {
		old.round()
		young.round()
	}
	assert.Equal(t, writes, w.Writes())
	assert.Contains(t, old.log.String(), "another agent publishes this node")
	assert.Contains(t, scrape(old.Metrics), `gpuplan_agent_yields{node="cn-local.10.0.1.1"} 1`)

	old.after(contract.HeartbeatLimit + time.Second)
	assert.Equal(t, "550.1", driver(), "the other one is silent")
}

// The clock of the machine was a day ahead, and is set right: what was written then is no sign of an agent that runs.
func TestAClockThatWasAhead(t *testing.T) {
	for name, restarted := range map[string]bool{"the agent goes on": false, "the agent is restarted": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.now = w.now.Add(24 * time.Hour)
			a := w.start(t, wired(t, "dgx1-v100"))
			a.round()
			w.now = w.now.Add(-24 * time.Hour)
			if restarted {
				a = w.start(t, wired(t, "dgx1-v100"))
				a.source.report(hardware.Signal{GPU: "GPU-5", Kind: hardware.XID, Number: 79})
			}
			a.round()
			status := w.gpuNode(t).Status
			assert.Equal(t, w.now.Truncate(time.Second), status.Agent.Heartbeat.UTC())
			assert.Equal(t, restarted, status.GPUs[5].Health == contract.Unhealthy)
		})
	}
}

// The machine was rebooted, and its clock set back a little: whoever published before the boot runs no more, also where the
// driver is not there yet.
func TestAnAgentOfAnotherBootIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		boot       string
		unreadable error
		yields     bool
	}{
		"another boot":                            {"boot-2", nil, false},
		"another boot, and no driver":             {"boot-2", errGone, false},
		"the same boot":                           {"boot-1", nil, true},
		"a boot of which the agent knows nothing": {"", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.start(t, wired(t, "dgx1-v100"))
			before.round()
			w.now = w.now.Add(-30 * time.Second)
			a := w.start(t, wired(t, "dgx1-v100"))
			a.Boot = test.boot
			a.source.fail(test.unreadable)
			a.round()
			instance := w.gpuNode(t).Status.Agent.Instance
			assert.Equal(t, test.yields, instance == before.Instance)
		})
	}
}

// Of two agents that cannot read the GPUs since the machine was rebooted the later one publishes, too.
func TestTwoAgentsWithoutADriverDoNotFlip(t *testing.T) {
	w := newWorld(t)
	w.start(t, wired(t, "dgx1-v100")).round()
	old, young := w.start(t, wired(t, "dgx1-v100")), w.start(t, wired(t, "dgx1-v100"))
	for _, a := range []*agent{old, young} {
		a.Boot = "boot-2"
		a.source.fail(errGone)
		a.round()
	}
	old.seen("the other's word", func() bool {
		live, err := old.live()
		return err == nil && live.Status.Agent.Instance == young.Instance
	})
	writes := w.Writes()
	for range 5 {
		old.round()
		young.round()
	}
	assert.Equal(t, writes, w.Writes())
}

// A GPU that changes with every look does not flood the API server.
func TestWritesAreLimited(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.synced()
	for i := range 60 {
		a.source.change(func(r *hardware.Reading) { r.DriverVersion = string(rune('a' + i)) })
		a.look(w.ctx)
		_, err := a.publish(w.ctx)
		require.NoError(t, err)
		w.now = w.now.Add(time.Second)
	}
	assert.Less(t, w.Writes(), 20)
	a.round()
	assert.Equal(t, string(rune('a'+59)), w.gpuNode(t).Status.DriverVersion, "and the newest is what is written")
}

func TestWithoutNodeOrCRD(t *testing.T) {
	w := newWorld(t)
	w.Remove(nodeKind, "", nodeName)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.synced()
	_, err := a.publish(w.ctx)
	assert.ErrorIs(t, err, errNoNode)

	w.Remove(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "", "gpunodes.gpuplan.dev")
	_, err = w.start(t, machine(t, "dgx1-v100")).publish(w.ctx)
	assert.ErrorContains(t, err, "is the CRD installed?")
}

// changing is a source that tells when it is read.
type changing struct {
	source
	changed chan struct{}
	reads   chan struct{}
}

func (s *changing) Read(ctx context.Context) (hardware.Reading, error) {
	reading, err := s.source.Read(ctx)
	s.reads <- struct{}{}
	return reading, err
}

func (s *changing) Changed() <-chan struct{} { return s.changed }

func TestServePublishesChanges(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.synced()
	a.publisher.Agent.Now = time.Now // who waits until something can be written waits for that
	s := &changing{changed: make(chan struct{}), reads: make(chan struct{}, 100)}
	s.set(hardware.Reading{Machine: machine(t, "dgx1-v100"), DriverVersion: "1"})
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Serve(ctx, nodeName, s)
	}()
	version := func(want string) {
		assert.EventuallyWithT(t, func(t *assert.CollectT) {
			obj, err := w.client.Get(w.ctx, gpuNodeKind, "", nodeName)
			require.NoError(t, err)
			got, _, _ := unstructured.NestedString(obj.Object, "status", "driverVersion")
			assert.Equal(t, want, got)
		}, 30*time.Second, 10*time.Millisecond)
	}
	version("1")
	s.set(hardware.Reading{Machine: machine(t, "dgx1-v100"), DriverVersion: "2"})
	s.changed <- struct{}{}
	version("2")
	cancel()
	<-done
}

// hanging is a source whose reads never end.
type hanging struct {
	source
	reads chan struct{}
}

func (s *hanging) Read(context.Context) (hardware.Reading, error) {
	s.reads <- struct{}{}
	select {}
}

// An agent that is told to end does so, whatever its driver does.
func TestServeEndsWhileTheDriverHangs(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	s := &hanging{reads: make(chan struct{})}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Serve(ctx, nodeName, s)
	}()
	<-s.reads
	cancel()
	select {
	case <-done:
	case <-time.After(15 * time.Second): // less than the deadline of a read
		require.Fail(t, "it waits for the driver")
	}
}
