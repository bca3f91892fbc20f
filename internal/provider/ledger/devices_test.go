package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// A pool is refused beside the controller, whichever of the two is visited first.
func TestDevicesOfUnpinnedPools(t *testing.T) {
	for name, test := range map[string]struct {
		devices         ledger.Devices
		pool            ledger.DevicePool
		refused, warned bool
	}{
		"the pool changes":          {ledger.Devices{ByNUMANode: true}, ledger.DevicePool{CPUs: ledger.Unpinned, Changes: true}, true, false},
		"the controller changes":    {ledger.Devices{ByNUMANode: true, Changes: true}, ledger.DevicePool{CPUs: ledger.Unpinned}, true, false},
		"neither changes":           {ledger.Devices{ByNUMANode: true}, ledger.DevicePool{CPUs: ledger.Unpinned}, false, false},
		"all devices":               {ledger.Devices{Changes: true}, ledger.DevicePool{CPUs: ledger.Unpinned, Changes: true}, false, false},
		"a pool that pins CPUs":     {ledger.Devices{ByNUMANode: true, Changes: true}, ledger.DevicePool{Changes: true}, false, false},
		"a policy for new nodes":    {ledger.Devices{ByNUMANode: true}, ledger.DevicePool{CPUs: ledger.PinnedOnceReplaced, Changes: true}, false, true},
		"no controller in the walk": {ledger.Devices{}, ledger.DevicePool{CPUs: ledger.Unpinned, Changes: true}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.pool.Name = "a"
			first := ledger.New()
			assert.False(t, first.PlanDevicePool(test.pool).ByNUMANode)
			refused, warned := first.PlanDevices(test.devices)
			assert.Equal(t, []bool{test.refused, test.warned}, []bool{len(refused) > 0, len(warned) > 0})

			second := ledger.New()
			refused, warned = second.PlanDevices(test.devices)
			assert.Empty(t, append(refused, warned...))
			devices := second.PlanDevicePool(test.pool)
			assert.Equal(t, []bool{test.refused, test.warned}, []bool{devices.Refuse(test.pool), devices.Warn(test.pool)})
		})
	}
	l := ledger.New()
	for _, name := range []string{"c", "b", "a"} {
		l.PlanDevicePool(ledger.DevicePool{Name: name, CPUs: ledger.Unpinned, Changes: true})
	}
	l.PlanDevicePool(ledger.DevicePool{Name: "b", Changes: true}) // it is replaced after all
	refused, _ := l.PlanDevices(ledger.Devices{ByNUMANode: true})
	assert.Equal(t, []string{"a", "c"}, refused)
}
