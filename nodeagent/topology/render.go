package topology

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

// Reasons of the condition [contract.ConditionReady].
const (
	reasonAllHealthy = "AllCardsHealthy"
	reasonUnhealthy  = "CardsUnhealthy"
	reasonNoCards    = "NoCards"
	reasonUnreadable = "CannotReadHardware"
)

// statusOf renders a reading with the verdicts on its cards; conditions are the
// published ones, whose times are kept where nothing has changed.
func statusOf(reading hardware.Reading, verdicts []health.Verdict, conditions []metav1.Condition, now metav1.Time) contract.GPUNodeStatus {
	status := contract.StatusOf(reading.Machine)
	status.DriverVersion = reading.DriverVersion
	var unusable []string
	for i, verdict := range verdicts {
		card := &status.Cards[i]
		card.Health, card.Reason = contract.Healthy, verdict.Reason
		if !verdict.Usable() {
			since := metav1.NewTime(verdict.Since).Rfc3339Copy()
			card.Health, card.Since = contract.Unhealthy, &since
			unusable = append(unusable, fmt.Sprintf("card %d: %s", card.Index, verdict.Reason))
		}
	}
	ready := metav1.Condition{Type: contract.ConditionReady, LastTransitionTime: now.Rfc3339Copy()}
	switch {
	case len(verdicts) == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonNoCards, "the driver lists no cards"
	case len(unusable) > 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonUnhealthy, strings.Join(unusable, "; ")
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, reasonAllHealthy, fmt.Sprintf("%d cards", len(verdicts))
	}
	status.Conditions = withCondition(conditions, ready)
	return status
}

// unreadable returns the published status with the news that the hardware cannot be read.
func unreadable(status contract.GPUNodeStatus, cause error, now metav1.Time) contract.GPUNodeStatus {
	status.Conditions = withCondition(status.Conditions, metav1.Condition{
		Type: contract.ConditionReady, Status: metav1.ConditionUnknown, LastTransitionTime: now.Rfc3339Copy(),
		Reason: reasonUnreadable, Message: cause.Error(),
	})
	return status
}

// withCondition sets a condition in a copy of the list.
func withCondition(conditions []metav1.Condition, c metav1.Condition) []metav1.Condition {
	conditions = append([]metav1.Condition(nil), conditions...)
	meta.SetStatusCondition(&conditions, c)
	return conditions
}

// mirrorOf renders the data of the ConfigMap that `arena top node` reads: the
// health by card index, and as matrices the links and the bandwidth of each pair
// of cards in GB/s, both directions together.
func mirrorOf(status contract.GPUNodeStatus) (map[string]string, error) {
	machine, err := status.Machine()
	if err != nil {
		return nil, err
	}
	table, err := gpu.NewTable(machine)
	if err != nil {
		return nil, err
	}
	devices := map[string]string{}
	links := make([][]string, len(machine.Cards))
	bandwidths := make([][]float64, len(machine.Cards))
	for i := range machine.Cards {
		devices[strconv.Itoa(status.Cards[i].Index)] = status.Cards[i].Health
		links[i] = make([]string, len(machine.Cards))
		bandwidths[i] = make([]float64, len(machine.Cards))
		for j := range machine.Cards {
			if i == j {
				links[i][j] = gpu.None.String()
				continue
			}
			links[i][j] = machine.Links[i][j].String()
			bandwidths[i][j] = 2 * table.Ring(gpu.SetOf(i, j)).GBps
		}
	}
	data := map[string]string{}
	for key, value := range map[string]any{"devices": devices, "linkType": links, "bandwidth": bandwidths} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		data[key] = string(text)
	}
	return data, nil
}
