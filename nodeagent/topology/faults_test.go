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

// injected are the signals of the table, in its order; events are reported once, conditions last.
var injected = []struct {
	signal hardware.Signal
	event  bool
	what   string
}{
	{hardware.Signal{Kind: hardware.XID, Number: 31}, true, "XID 31 and others of programs"},
	{hardware.Signal{Kind: hardware.XID, Number: 63}, true, "XID 63"},
	{hardware.Signal{Kind: hardware.XID, Number: 94}, true, "XID 94"},
	{hardware.Signal{Kind: hardware.XID, Number: 9999}, true, "an XID that is not in the catalog"},
	{hardware.Signal{Kind: hardware.XID, Number: 48}, true, "XID 48"},
	{hardware.Signal{Kind: hardware.XID, Number: 74}, true, "XID 74"},
	{hardware.Signal{Kind: hardware.XID, Number: 79}, true, "XID 79"},
	{hardware.Signal{Kind: hardware.XID, Number: 95}, true, "XID 95"},
	{hardware.Signal{Kind: hardware.XID, Number: 119}, true, "XID 119"},
	{hardware.Signal{Kind: hardware.XID, Number: 64}, true, "XID 64"},
	{hardware.Signal{Kind: hardware.UncorrectableECC}, true, "uncorrectable ECC errors, counted"},
	{hardware.Signal{Kind: hardware.RowRemapPending}, false, "row remap pending"},
	{hardware.Signal{Kind: hardware.RowRemapFailed}, false, "row remap failed"},
	{hardware.Signal{Kind: hardware.PagesPending}, false, "page retirement pending"},
	{hardware.Signal{Kind: hardware.ResetRequired}, false, "the driver's recovery action"},
	{hardware.Signal{Kind: hardware.Lost}, false, "GPU is lost"},
	{hardware.Signal{Kind: hardware.NoAnswer}, false, "another error of NVML"},
	{hardware.Signal{Kind: hardware.Vanished}, false, "counted on PCI or known, not in NVML"},
	{hardware.Signal{Kind: hardware.Duplicate}, false, "a UUID or address twice"},
	{hardware.Signal{Kind: hardware.NVLinkDown}, false, "NVLinks lost since they were seen first"},
	{hardware.Signal{Kind: hardware.FabricNotReady}, false, "fabric state is not Completed"},
	{hardware.Signal{Kind: hardware.FabricUnhealthy}, false, "fabric health: bad route, or set up wrong"},
	{hardware.Signal{Kind: hardware.FabricDegraded}, false, "fabric health: less bandwidth"},
	{hardware.Signal{Kind: hardware.PCIeDegraded}, false, "PCI Express narrower, or slower under load"},
	{hardware.Signal{Kind: hardware.Overheated}, false, "hotter than the slowdown threshold"},
}

// Every signal is injected into an agent, and the table of the documentation is what
// happens then.
func TestFaultTable(t *testing.T) {
	told := map[hardware.Kind]bool{hardware.Marked: true} // simulated nodes only
	var table strings.Builder
	table.WriteString("| signal | code | class | state | reason | new work on the GPU | used again |\n|---|---|---|---|---|---|---|\n")
	for _, fault := range injected {
		told[fault.signal.Kind] = true
		fmt.Fprintln(&table, injectFault(t, fault.what, fault.signal, fault.event))
	}
	for kind := range health.Rules {
		assert.True(t, told[kind], "%s is not in the table", kind)
	}

	page, err := os.ReadFile(faultPage)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), beginTable)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, endTable)
	require.True(t, ok)
	want := before + beginTable + table.String() + endTable + after
	if *write {
		require.NoError(t, os.WriteFile(faultPage, []byte(want), 0o600))
		return
	}
	assert.Equal(t, want, string(page), "run this test with -args -write")
}

// injectFault returns a signal's row of the table.
func injectFault(t *testing.T, what string, signal hardware.Signal, event bool) string {
	w := newWorld(t)
	a := w.start(t, wired(t, "dgx1-v100"))
	a.source.change(func(r *hardware.Reading) { r.GPUs = make([]hardware.GPU, 8) })
	a.round()
	signal.GPU = "GPU-3"
	if event {
		a.source.report(signal)
	} else {
		a.source.change(func(r *hardware.Reading) { r.Signals = []hardware.Signal{signal} })
	}
	a.round()
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
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |", what, code, class, gpu.State, gpu.Reason, work, a.recovery())
}

// recovery finds out what it takes until nothing speaks against GPU 3 any more, once what
// was injected has ended.
func (a *agent) recovery() string {
	state := func() string { return a.w.gpuNode(a.t).Status.GPUs[3].State }
	if state() == "Healthy" {
		return ""
	}
	a.source.change(func(r *hardware.Reading) { r.Signals = nil })
	for _, minutes := range []int{5, 10} {
		a.after(5 * time.Minute)
		if state() == "Healthy" {
			return fmt.Sprintf("%d minutes after it ended", minutes)
		}
	}
	a.after(24 * time.Hour)
	require.Equal(a.t, "Unhealthy", state())
	a.source.change(func(r *hardware.Reading) { r.BootID = "another" })
	a.round()
	a.after(health.RealQuietTime)
	require.Equal(a.t, "Healthy", state())
	return "5 minutes after a reset or reboot"
}
