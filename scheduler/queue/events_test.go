package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// A job is released once in each attempt, whatever its pods do.
func TestEventsOfAUnit(t *testing.T) {
	for name, test := range map[string]struct {
		from, to contract.QueueUnitStatus
		says     []string
	}{
		"queued": {contract.QueueUnitStatus{}, contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 2, Message: "no quota"},
			[]string{"Normal Queued position 2 in queue root/team: no quota"}},
		"released": {contract.QueueUnitStatus{Phase: contract.UnitEnqueued}, contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1},
			[]string{"Normal Released left queue root/team, attempt 1"}},
		"runs":          {contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1}, contract.QueueUnitStatus{Phase: contract.UnitRunning, Attempts: 1}, nil},
		"has lost pods": {contract.QueueUnitStatus{Phase: contract.UnitRunning, Attempts: 1}, contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1}, nil},
		"requeued": {contract.QueueUnitStatus{Phase: contract.UnitDequeued, Attempts: 1}, contract.QueueUnitStatus{Phase: contract.UnitBackoff, Attempts: 1, Message: "only 0 of 2 pods ran"},
			[]string{"Warning Requeued only 0 of 2 pods ran"}},
		"moved up": {contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 2}, contract.QueueUnitStatus{Phase: contract.UnitEnqueued, Position: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			events := record.NewFakeRecorder(1)
			w := &writer{events: events}
			w.record(&entry{job: &job{}, path: "root/team", unit: &unit{QueueUnit: contract.QueueUnit{Status: test.from}}}, test.to)
			close(events.Events)
			var said []string
			for event := range events.Events {
				said = append(said, event)
			}
			assert.Equal(t, test.says, said)
		})
	}
}
