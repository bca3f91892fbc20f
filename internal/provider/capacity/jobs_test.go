package capacity

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// A job that is replaced is planned on what it gives back, and on nothing else.
func TestWithoutJobs(t *testing.T) {
	p := Pool{Name: "v100", InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: "topology"}
	template, err := p.template()
	require.NoError(t, err)
	template.Name = "n1"
	on := func(id, gang string, cpu int64, port string, gpus ...int) placement.Pod {
		return placement.Pod{ID: id, Node: "n1", Gang: gang, Own: gpu.SetOf(gpus...), Request: placement.Request{
			Resources: placement.Resources{MilliCPU: cpu}, Mode: placement.ModeTopology, GPUs: len(gpus), HostPorts: []string{port},
		}}
	}
	pods := []placement.Pod{
		on("a-0", "default/a", 1000, "TCP/1", 0, 1), on("a-1", "default/a", 1000, "TCP/2", 2),
		on("b-0", "default/b", 500, "TCP/3", 3), on("c", "", 250, "TCP/4"),
	}
	c, err := p.Live([]placement.Node{template}, func(string) []placement.Pod { return pods })
	require.NoError(t, err)
	assert.Equal(t, int64(4), c.FreeGPUs)
	assert.Equal(t, "has GPU 0-2 used by default/a, has GPU 3 used by default/b", c.Nodes[0].Describe())
	gpus := "0-2"
	assert.Equal(t, &gpus, c.Nodes[0].Held[1].GPUs)

	for _, test := range []struct {
		jobs []string
		free int
		cpu  int64
		port []string
	}{
		{nil, 4, 2750, []string{"TCP/1", "TCP/2", "TCP/3", "TCP/4"}},
		{[]string{"default/a"}, 7, 750, []string{"TCP/3", "TCP/4"}},
		{[]string{"default/b"}, 5, 2250, []string{"TCP/1", "TCP/2", "TCP/4"}},
		{[]string{"default/a", "default/b"}, 8, 250, []string{"TCP/4"}},
		{[]string{"default/none"}, 4, 2750, []string{"TCP/1", "TCP/2", "TCP/3", "TCP/4"}},
	} {
		rest := c.Without(test.jobs...)
		assert.Equal(t, int64(test.free), rest.FreeGPUs, test.jobs)
		view, err := ToView(rest)
		require.NoError(t, err)
		assert.Equal(t, test.free, view.FreeGPUs("n1").Len(), test.jobs)
		var cpu int64
		var ports []string
		for _, pod := range view.Pods("n1") {
			cpu += pod.Request.MilliCPU
			ports = append(ports, pod.Request.HostPorts...)
		}
		assert.Equal(t, test.cpu, cpu, test.jobs)
		assert.ElementsMatch(t, test.port, ports, test.jobs)
	}
	assert.Equal(t, int64(4), c.FreeGPUs, "the capacity itself stays")
}

// Nodes that go over to the mode in which the device plugin picks GPUs do not promise those beside running jobs,
// which leave or stay in the mode before.
func TestJobsOnNodesThatChangeTheirMode(t *testing.T) {
	p := Pool{Name: "v100", InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: "topology"}
	template, err := p.template()
	require.NoError(t, err)
	template.Name = "n1"
	pods := []placement.Pod{{ID: "a-0", Node: "n1", Gang: "default/a", Own: gpu.SetOf(4, 5, 6, 7), Request: placement.Request{Mode: placement.ModeTopology, GPUs: 4}}}
	live, err := p.Live([]placement.Node{template}, func(string) []placement.Pod { return pods })
	require.NoError(t, err)
	for mode, want := range map[string]int64{"topology": 0, "default": 4} {
		t.Run(mode, func(t *testing.T) {
			p := p
			p.Mode = mode
			c, err := p.Planned(live, 1)
			require.NoError(t, err)
			assert.Equal(t, int64(4), c.FreeGPUs)
			assert.Equal(t, want, value(c.Nodes[0].Held[0].UnrecordedGPUs))
			assert.Equal(t, want == 0, c.Nodes[0].Held[0].GPUs != nil)
			again, err := p.Planned(c, 1)
			require.NoError(t, err)
			assert.Equal(t, c, again)
			assert.NotNil(t, live.Nodes[0].Held[0].GPUs, "the capacity itself stays")
		})
	}
}

// A shared pod without an allocation record may be on any GPU, also while its node offers none.
func TestSharedPodWithoutRecord(t *testing.T) {
	for mode, want := range map[string][]string{"share": {"0: 4 GiB", "1: 4 GiB", "2: 4 GiB", "3: 4 GiB", "4: 4 GiB", "5: 4 GiB", "6: 4 GiB", "7: 4 GiB"}, "mig": nil} {
		p := Pool{Name: "v100", InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: mode}
		template, err := p.template()
		require.NoError(t, err)
		n := template
		n.Name, n.GPUs = "n1", nil
		pod := placement.Pod{ID: "infer", Node: "n1", Request: placement.Request{
			Resources: placement.Resources{MilliCPU: 500}, Mode: placement.ModeShare, MemoryGiB: 4,
		}}
		c, err := p.Live([]placement.Node{n}, func(string) []placement.Pod { return []placement.Pod{pod} })
		require.NoError(t, err)
		cpu, pods := int64(500), int64(1)
		assert.Equal(t, []Held{{Shares: want, MilliCPU: &cpu, Pods: &pods}}, c.Nodes[0].Held, mode)
		_, err = ToView(c)
		require.NoError(t, err)
	}
}

func TestSharesAreWritten(t *testing.T) {
	for _, s := range []placement.GPUShare{{GPU: 3, MemoryGiB: 8, CorePercent: 25}, {GPU: 0, MemoryGiB: 4}} {
		read, err := share(shareTexts([]placement.GPUShare{s}, nil)[0])
		require.NoError(t, err)
		assert.Equal(t, s, read)
	}
	_, err := share("much")
	assert.Error(t, err)
}
