package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

func TestEveryInstanceTypeIsWhole(t *testing.T) {
	require.Len(t, load().typeNames, 71)
	for _, name := range load().typeNames {
		t.Run(name, func(t *testing.T) {
			it, ok := Lookup(name)
			require.True(t, ok)
			assert.Equal(t, name, it.Name)
			assert.True(t, len(it.Family) > len("ecs.") && name[:len(it.Family)] == it.Family, it.Family)
			assert.Positive(t, it.VCPU)
			assert.Positive(t, it.MemoryGiB)
			assert.Contains(t, []int{1, 2, 4, 8}, it.GPUs)
			assert.NotEmpty(t, it.GPUModel)
			assert.NotEmpty(t, it.Source)
			assert.NotEmpty(t, it.Date)
			// What the driver reports is at most the size sold, and hardly less.
			assert.LessOrEqual(t, it.GPUMemoryMiB, int64(it.GPUMemoryGiB)*1024)
			assert.GreaterOrEqual(t, it.GPUMemoryMiB, int64(it.GPUMemoryGiB)*1024*93/100)

			m, ok := Machine(name)
			require.True(t, ok, "wiring %q", it.Wiring)
			require.Len(t, m.GPUs, it.GPUs)
			assert.Equal(t, it.Wiring, m.Name)
			assert.Equal(t, it.GPUModel, m.Model)
			require.NoError(t, m.Validate())
			for i, c := range m.GPUs {
				assert.Equal(t, i, c.Index)
				assert.Equal(t, it.GPUMemoryMiB, c.MemoryMiB)
				assert.Equal(t, gpu.Self, m.Links[i][i].Class)
			}
		})
	}
}

func requireSquare(t *testing.T, matrix [][]gpu.Link, n int) {
	t.Helper()
	require.Len(t, matrix, n)
	for _, row := range matrix {
		require.Len(t, row, n)
	}
}

func TestQuickstartType(t *testing.T) {
	it, ok := Lookup("ecs.gn6v-c10g1.20xlarge")
	require.True(t, ok)
	assert.Equal(t, "dgx1-v100", it.Wiring)
	assert.Equal(t, 8, it.GPUs)
	assert.Equal(t, 82, it.VCPU)
	assert.InDelta(t, 336, it.MemoryGiB, 0)
	assert.Equal(t, 16, it.GPUMemoryGiB)
	m, ok := Machine(it.Name)
	require.True(t, ok)
	// Six NVLinks per GPU in the hybrid cube mesh.
	for i := range m.GPUs {
		lanes := 0
		for _, l := range m.Links[i] {
			lanes += l.Lanes
		}
		assert.Equal(t, 6, lanes, "GPU %d", i)
	}
}

func TestNVLinkTypesHaveNVLinks(t *testing.T) {
	for _, name := range load().typeNames {
		it, _ := Lookup(name)
		m, _ := Machine(name)
		if it.GPUs == 1 {
			continue
		}
		nvlink := false
		for _, l := range m.Links[0] {
			nvlink = nvlink || l.Class == gpu.NVLink
		}
		switch it.Family {
		case "ecs.gn8v", "ecs.gn8v-tee", "ecs.ebmgn8v", "ecs.gn7", "ecs.gn7e", "ecs.ebmgn7", "ecs.ebmgn7e",
			"ecs.gn6e", "ecs.ebmgn6e", "ecs.gn6v", "ecs.ebmgn6v":
			assert.True(t, nvlink, name)
		default:
			assert.False(t, nvlink, name)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	_, ok := Lookup("ecs.gn6v")
	assert.False(t, ok)
	_, ok = Machine("ecs.gn6v")
	assert.False(t, ok)
	assert.True(t, Incomplete("ecs.ebmgn7ex.32xlarge"))
	assert.True(t, Incomplete("ecs.gn8ia-2x.8xlarge"))
	assert.False(t, Incomplete("ecs.gn6v-c10g1.20xlarge"))
	assert.False(t, Incomplete("ecs.g7.large"))
}

func TestSuggest(t *testing.T) {
	for _, tc := range []struct{ asked, first string }{
		{"ecs.gn6v-c10g1.20xlarg", "ecs.gn6v-c10g1.20xlarge"},
		{"gn6v-c10g1.20xlarge", "ecs.gn6v-c10g1.20xlarge"},
		{"ecs.gn7i-c32g1.8xlarge ", "ecs.gn7i-c32g1.8xlarge"},
		{"ecs.ebmgn8v.48xlarge", "ecs.ebmgn8v.48xlarge"},
	} {
		got := Suggest(tc.asked)
		require.NotEmpty(t, got, tc.asked)
		assert.Equal(t, tc.first, got[0], tc.asked)
		assert.LessOrEqual(t, len(got), 3)
	}
	for _, near := range Suggest("ecs.gn6v-c10g1.20xlrge") {
		assert.True(t, strings.HasPrefix(near, "ecs.gn6v-"), near)
	}
	assert.Contains(t, Suggest("ecs.gn6w-c10g1.20xlarge"), "ecs.gn6v-c10g1.20xlarge", "no such family")
	assert.Empty(t, Suggest("ecs.g7.large"), "no type with GPUs is near")
	assert.Equal(t, `There is no GPU instance type "ecs.g7.large". The data source gpuplan_instance_types lists those that there are.`, Unknown("ecs.g7.large"))
	assert.Empty(t, Suggest("p3.16xlarge-and-something-else-altogether"))
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		assert.Equal(t, tc.want, distance(tc.a, tc.b), "%q %q", tc.a, tc.b)
		assert.Equal(t, tc.want, distance(tc.b, tc.a), "%q %q", tc.b, tc.a)
	}
}

func TestWirings(t *testing.T) {
	require.Contains(t, load().wirings, "dgx1-v100")
	require.Len(t, load().wirings, 13)
	for name := range load().wirings {
		m, ok := Wiring(name)
		require.True(t, ok, name)
		assert.Equal(t, name, m.Name)
		requireSquare(t, m.Links, len(m.GPUs))
		require.NoError(t, m.Validate(), name)
	}
}

func TestWiringIsACopy(t *testing.T) {
	m, _ := Wiring("dgx1-v100")
	want := m.Links[0][1]
	m.Links[0][1], m.GPUs[0].NUMANode = gpu.Link{}, 99
	again, _ := Wiring("dgx1-v100")
	assert.Equal(t, want, again.Links[0][1])
	assert.Equal(t, 0, again.GPUs[0].NUMANode)
}

func TestSlices(t *testing.T) {
	m, ok := Wiring("dgx1-v100:0,3,7")
	require.True(t, ok)
	require.Len(t, m.GPUs, 3)
	assert.Equal(t, gpu.Link{Class: gpu.NVLink, Lanes: 2}, m.Links[0][1])
	assert.Equal(t, gpu.SYS, m.Links[0][2].Class)
	assert.Equal(t, gpu.Link{Class: gpu.NVLink, Lanes: 1}, m.Links[1][2])
	assert.Equal(t, 2, m.GPUs[2].Index)
	assert.Equal(t, 1, m.GPUs[2].NUMANode)
	for _, n := range m.NICs {
		assert.Len(t, n.Links, 3)
	}
	consumer, ok := Wiring("rtx4090-8-all-sys:0,7")
	require.True(t, ok)
	assert.NoError(t, consumer.Validate())
	assert.True(t, consumer.RefusesP2P())

	for _, bad := range []string{"dgx1-v100:", "dgx1-v100:8", "dgx1-v100:-1", "dgx1-v100:1,0", "dgx1-v100:0,0", "dgx1-v100:x", "nothing", "nothing:0", ""} {
		_, ok := Wiring(bad)
		assert.False(t, ok, bad)
	}
}

// The vendor's page on resource reservation lists what nodes keep for themselves since Kubernetes 1.28.
func TestCPUIsReservedAsTheVendorSays(t *testing.T) {
	for vcpu, reserved := range map[int]int64{2: 70, 4: 80, 8: 90, 16: 110, 32: 150, 64: 230, 128: 390, 256: 710} {
		assert.Equal(t, int64(vcpu)*1000-reserved, milliCPU(vcpu), "%d vCPU", vcpu)
	}
	assert.Equal(t, int64(10000-95), milliCPU(10))
	assert.Equal(t, int64(5000-83), milliCPU(5), "half a thousandth is reserved whole")
}

// What nodes offer that the vendor's pages show: at most as much is planned with, and hardly less.
func TestAllocatableIsThatOfTheVendorsSamples(t *testing.T) {
	l20, ok := Lookup("ecs.gn8is.4xlarge")
	require.True(t, ok)
	q, err := Allocatable(l20, "default", Setup{})
	require.NoError(t, err)
	assert.Equal(t, int64(15890), q.MilliCPU)
	assert.LessOrEqual(t, q.MemoryBytes, 128290128*kiB)
	assert.InDelta(t, 128290128*kiB, q.MemoryBytes, float64(3*miB))
	assert.Equal(t, int64(64), q.Pods)
	assert.Equal(t, int64(1), q.Extended["nvidia.com/gpu"])
	assert.Equal(t, int64(200), q.Extended[ERDMAResource])

	small := InstanceType{Family: "ecs.c6", VCPU: 4, MemoryGiB: 8}
	assert.LessOrEqual(t, seenBytes(small), 7925980*kiB)
	assert.InDelta(t, 7925980*kiB, seenBytes(small), float64(miB))
	q, err = Allocatable(small, "default", Setup{})
	require.NoError(t, err)
	assert.InDelta(t, 114022843818, q.EphemeralStorageBytes, 1024)

	metal, ok := Lookup("ecs.ebmgn7.26xlarge")
	require.True(t, ok)
	assert.LessOrEqual(t, seenBytes(metal), 791733364*kiB)
	assert.InDelta(t, 791733364*kiB, seenBytes(metal), float64(64*miB))
}

func TestMemoryGrowsWithTheMachine(t *testing.T) {
	last := int64(0)
	for gib := 2; gib <= 2304; gib++ {
		it := InstanceType{MemoryGiB: float64(gib)}
		got := memoryBytes(it, PodsPerNode)
		assert.Greater(t, got, last, "%d GiB", gib)
		assert.Less(t, got, int64(gib)*giB)
		last = got
	}
	tiny := InstanceType{MemoryGiB: 2}
	assert.Equal(t, seenBytes(tiny)-seenBytes(tiny)/4-300*miB, memoryBytes(tiny, PodsPerNode), "at most a quarter is reserved")
}

func TestAllocatablePerMode(t *testing.T) {
	v100, _ := Lookup("ecs.gn6v-c10g1.20xlarge")
	v100x4, _ := Lookup("ecs.gn6v-c8g1.8xlarge")
	t4, _ := Lookup("ecs.gn6i-c24g1.24xlarge")
	l20, _ := Lookup("ecs.ebmgn8is.32xlarge")
	for _, tc := range []struct {
		it   InstanceType
		mode string
		want map[string]int64
	}{
		{v100, "default", map[string]int64{contract.ResourceDefaultGPU: 8}},
		{v100, "topology", map[string]int64{contract.ResourceTopologyGPU: 8}},
		{v100, "share", map[string]int64{contract.ResourceGPUMemory: 120, contract.ResourceGPUCount: 8}},
		{v100, "cgpu", map[string]int64{contract.ResourceGPUMemory: 120, contract.ResourceGPUCount: 8}},
		{v100, "mps", map[string]int64{contract.ResourceGPUMemory: 120, contract.ResourceGPUCount: 8}},
		{v100, "core_mem", map[string]int64{contract.ResourceGPUMemory: 120, contract.ResourceGPUCount: 8, contract.ResourceCorePercent: 800}},
		{v100, "mig", nil},
		{v100, "disabled", nil},
		{v100x4, "core_mem", map[string]int64{contract.ResourceGPUMemory: 60, contract.ResourceGPUCount: 4, contract.ResourceCorePercent: 400}}, // the vendor's sample
		{t4, "cgpu", map[string]int64{contract.ResourceGPUMemory: 60, contract.ResourceGPUCount: 4}},
		{l20, "topology", map[string]int64{contract.ResourceTopologyGPU: 8, contract.ResourceERDMA: 400}},
	} {
		t.Run(tc.it.Name+"/"+tc.mode, func(t *testing.T) {
			q, err := Allocatable(tc.it, tc.mode, Setup{})
			require.NoError(t, err)
			for _, name := range []string{contract.ResourceDefaultGPU, contract.ResourceTopologyGPU, contract.ResourceGPUMemory, contract.ResourceCorePercent, contract.ResourceGPUCount} {
				got, present := q.Extended[name]
				assert.True(t, present, "%s must be there, if only as 0", name)
				assert.Equal(t, tc.want[name], got, name)
			}
			assert.Equal(t, tc.want[contract.ResourceERDMA], q.Extended[ERDMAResource])
		})
	}
	_, err := Allocatable(v100, "egpu", Setup{})
	assert.ErrorContains(t, err, `no mode "egpu"`)
}

func TestModes(t *testing.T) {
	assert.Equal(t, "default", Modes()[0].Name)
	for _, m := range Modes() {
		assert.NotEmpty(t, m.Title)
		assert.NotEmpty(t, m.Source)
		for name, what := range m.Resources {
			assert.Contains(t, []string{"gpus", "memory_gib", "core_percent"}, what, name)
		}
	}
	m, ok := LookupMode("core_mem")
	require.True(t, ok)
	assert.True(t, m.Shared)
	_, ok = LookupMode("egpu")
	assert.False(t, ok)
}

func TestRegionsAndGates(t *testing.T) {
	r, ok := LookupRegion("cn-hangzhou")
	require.True(t, ok)
	assert.True(t, r.CoreMem)
	r, ok = LookupRegion("cn-qingdao")
	require.True(t, ok)
	assert.False(t, r.CoreMem)
	_, ok = LookupRegion("cn-local")
	assert.False(t, ok)
	coreMem := 0
	for _, r := range Regions() {
		assert.NotEmpty(t, r.Source)
		if r.CoreMem {
			coreMem++
		}
	}
	assert.Equal(t, 15, coreMem)

	features := map[string]int{}
	for _, g := range load().gates {
		features[g.Feature]++
		assert.True(t, g.Minimum != "" || g.Required, g)
		assert.NotEmpty(t, g.Source)
	}
	assert.Equal(t, 8, features["core_mem"])
	assert.Equal(t, 4, features["topology"])
	assert.Len(t, Gates("enable_reservation"), 2)
	assert.Empty(t, Gates("mig"))
	for _, m := range Modes() { // who offers what ACK's own resources are called
		offers := m.Shared || m.Resources[contract.ResourceTopologyGPU] != ""
		assert.Equal(t, offers, slices.ContainsFunc(Gates(m.Name), func(g Gate) bool { return g.Required && g.Component == contract.AIInstaller }), m.Name)
	}
}

// The data names resources; other programs know the same names from contract.
func TestResourceNamesAreTheContracts(t *testing.T) {
	known := []string{contract.ResourceDefaultGPU, contract.ResourceTopologyGPU, contract.ResourceGPUMemory, contract.ResourceCorePercent, contract.ResourceGPUCount}
	for _, m := range Modes() {
		for name := range m.Resources {
			assert.Contains(t, known, name)
		}
	}
	assert.Equal(t, contract.ResourceERDMA, ERDMAResource)
}

// The families that the document on eRDMA names have its devices, and newer ones.
func TestERDMAFamilies(t *testing.T) {
	for _, family := range []string{"gn8is", "ebmgn8is", "gn8v", "ebmgn8v", "ebmgn9g"} {
		found := 0
		for _, it := range InstanceTypes() {
			if strings.HasPrefix(it.Name, "ecs."+family+".") {
				found++
				assert.Positive(t, it.ERDMADevices, it.Name)
			}
		}
		assert.Positive(t, found, family)
	}
}
