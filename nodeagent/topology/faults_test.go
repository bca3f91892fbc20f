package topology

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

var write = flag.Bool("write", false, "write the fault table into the documentation")

const (
	faultPage  = "../../docs/node-agent.md"
	beginTable = "<!-- faults -->\n"
	endTable   = "<!-- end of faults -->\n"
)

// injection is a signal that is reported a number of times as an event, or lasts as a condition.
type injection struct {
	signal hardware.Signal
	events int
	what   string
}

// injected are the signals of the table, in its order; events are reported, conditions last.
var injected = []injection{
	{hardware.Signal{Kind: hardware.XID, Number: 31}, 1, "XID 31 and others of programs"},
	{hardware.Signal{Kind: hardware.XID, Number: 63}, 1, "XID 63"},
	{hardware.Signal{Kind: hardware.XID, Number: 94}, 1, "XID 94"},
	{hardware.Signal{Kind: hardware.XID, Number: 9999}, 1, "an XID that is not in the catalog"},
	{hardware.Signal{Kind: hardware.XID, Number: 63}, 3, "three XIDs of class Warning in 10 minutes"},
	{hardware.Signal{Kind: hardware.XID, Number: 48}, 1, "XID 48"},
	{hardware.Signal{Kind: hardware.XID, Number: 74}, 1, "XID 74"},
	{hardware.Signal{Kind: hardware.XID, Number: 79}, 1, "XID 79"},
	{hardware.Signal{Kind: hardware.XID, Number: 95}, 1, "XID 95"},
	{hardware.Signal{Kind: hardware.XID, Number: 119}, 1, "XID 119"},
	{hardware.Signal{Kind: hardware.XID, Number: 64}, 1, "XID 64"},
	{hardware.Signal{Kind: hardware.UncorrectableECC}, 1, "uncorrectable ECC errors, counted"},
	{hardware.Signal{Kind: hardware.RowRemapPending}, 0, "row remap pending"},
	{hardware.Signal{Kind: hardware.RowRemapFailed}, 0, "row remap failed"},
	{hardware.Signal{Kind: hardware.PagesPending}, 0, "page retirement pending"},
	{hardware.Signal{Kind: hardware.ResetRequired}, 0, "the driver's recovery action: a reset or reboot"},
	{hardware.Signal{Kind: hardware.ActionRequired}, 0, "another action of the driver's than a reset or reboot"},
	{hardware.Signal{Kind: hardware.Lost}, 0, "GPU is lost"},
	{hardware.Signal{Kind: hardware.NoAnswer}, 0, "another error of NVML"},
	{hardware.Signal{Kind: hardware.Vanished}, 0, "counted on PCI or known, not in NVML"},
	{hardware.Signal{Kind: hardware.Duplicate}, 0, "a UUID or address twice"},
	{hardware.Signal{Kind: hardware.NVLinkDown}, 0, "NVLinks lost since they were seen first"},
	{hardware.Signal{Kind: hardware.FabricNotReady}, 0, "fabric state is not Completed"},
	{hardware.Signal{Kind: hardware.FabricUnhealthy}, 0, "fabric health: bad route, or set up wrong"},
	{hardware.Signal{Kind: hardware.FabricDegraded}, 0, "fabric health: less bandwidth"},
	{hardware.Signal{Kind: hardware.PCIeDegraded}, 0, "PCI Express narrower, slower under load, or as it cannot be"},
	{hardware.Signal{Kind: hardware.Overheated}, 0, "hotter than the slowdown threshold"},
}

// Every signal is injected into an agent, and the table of the documentation is what
// happens then.
func TestFaultTable(t *testing.T) {
	told := map[hardware.Kind]bool{hardware.Marked: true} // simulated nodes only
	var table strings.Builder
	table.WriteString("| signal | code | class | state | reason | new work on the GPU | used again |\n|---|---|---|---|---|---|---|\n")
	for _, fault := range injected {
		told[fault.signal.Kind] = true
		fmt.Fprintln(&table, injectFault(t, fault))
	}
	for kind := range health.Rules {
		assert.True(t, told[kind], "%s is not in the table", kind)
	}

	documented(t, beginTable, endTable, table.String())
}

// documented holds a part of the page of the documentation against what it has to say, or writes it.
func documented(t *testing.T, begin, end, text string) {
	t.Helper()
	page, err := os.ReadFile(faultPage)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := before + begin + text + end + after
	if *write {
		require.NoError(t, os.WriteFile(faultPage, []byte(want), 0o600))
		return
	}
	assert.Equal(t, want, string(page), "run this test with -args -write")
}

// injectFault returns a signal's row of the table.
func injectFault(t *testing.T, fault injection) string {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.change(func(r *hardware.Reading) { r.GPUs = make([]hardware.GPU, 8) })
	a.round()
	signal := fault.signal
	signal.GPU = "GPU-3"
	for range fault.events {
		a.source.report(signal)
		a.round()
	}
	if fault.events == 0 {
		a.source.change(func(r *hardware.Reading) { r.Signals = []hardware.Signal{signal} })
		a.round()
	}
	status := w.gpuNode(t).Status
	require.Equal(t, contract.Healthy, status.GPUs[2].Health, "the others go on")
	gpu := status.GPUs[3]
	code, class := "", health.Harmless.String()
	if len(gpu.Faults) > 0 {
		code, class = gpu.Faults[0].Code, gpu.Faults[0].Class
	}
	work := "yes"
	if gpu.Health != contract.Healthy {
		work = "no"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |", fault.what, code, class, gpu.State, gpu.Reason, work, a.recovery())
}

// recovery finds out what it takes until GPU 3 is used again, or where it is used all along until
// nothing speaks against it, once what was injected has ended.
func (a *agent) recovery() string {
	gpu := func() contract.GPUInfo { return a.w.gpuNode(a.t).Status.GPUs[3] }
	state := func() string { return gpu().State }
	if state() == "Healthy" {
		return ""
	}
	used := gpu().Health == contract.Healthy
	a.source.change(func(r *hardware.Reading) { r.Signals = nil })
	for _, minutes := range []int{5, 10} {
		a.after(5 * time.Minute)
		if state() == "Healthy" || !used && gpu().Health == contract.Healthy {
			return fmt.Sprintf("%d minutes after it ended", minutes)
		}
	}
	a.after(24 * time.Hour)
	require.Equal(a.t, "Unhealthy", state())
	a = a.w.start(a.t, wired(a.t, "dgx1-v100"))
	a.source.change(func(r *hardware.Reading) { r.GPUs = make([]hardware.GPU, 8) })
	a.Boot = "another"
	a.round()
	a.after(health.RealQuietTime)
	require.Equal(a.t, "Healthy", state())
	return "5 minutes after a reset or reboot"
}
