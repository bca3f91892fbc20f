package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// A pool is refused beside the controller, whichever of the two is visited first.
func TestDevicesOfUnpinnedPools(t *testing.T) {
	for name, test := range map[string]struct {
		devices ledger.Devices
		pool    ledger.DevicePool
		refused bool
	}{
		"the pool changes":          {ledger.Devices{ByNUMANode: true}, ledger.DevicePool{Changes: true}, true},
		"the controller changes":    {ledger.Devices{ByNUMANode: true, Changes: true}, ledger.DevicePool{}, true},
		"neither changes":           {ledger.Devices{ByNUMANode: true}, ledger.DevicePool{}, false},
		"all devices":               {ledger.Devices{Changes: true}, ledger.DevicePool{Changes: true}, false},
		"a pool that pins CPUs":     {ledger.Devices{ByNUMANode: true, Changes: true}, ledger.DevicePool{Pinned: true, Changes: true}, false},
		"no controller in the walk": {ledger.Devices{}, ledger.DevicePool{Changes: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.pool.Name = "a"
			first := ledger.New()
			assert.False(t, first.PlanDevicePool(test.pool).ByNUMANode)
			assert.Equal(t, test.refused, len(first.PlanDevices(test.devices)) == 1)

			second := ledger.New()
			assert.Empty(t, second.PlanDevices(test.devices))
			assert.Equal(t, test.refused, second.PlanDevicePool(test.pool).Refuse(test.pool))
		})
	}
	l := ledger.New()
	for _, name := range []string{"c", "b", "a"} {
		l.PlanDevicePool(ledger.DevicePool{Name: name, Changes: true})
	}
	l.PlanDevicePool(ledger.DevicePool{Name: "b", Pinned: true, Changes: true}) // it is replaced after all
	assert.Equal(t, []string{"a", "c"}, l.PlanDevices(ledger.Devices{ByNUMANode: true}))
}
