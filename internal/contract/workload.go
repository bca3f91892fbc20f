package contract

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// WorkloadName is the name of the ConfigMap, in the scheduler's namespace, that holds the
// [Workload] record.
const WorkloadName = "gpuplan-workload"

// Keys of its data.
const (
	workloadVersion      = "version"
	workloadCountedUntil = "countedUntil"
	workloadDemands      = "demands"
)

// workloadFormat is the version of the record that this code reads and writes.
const workloadFormat = "1"

// Workload is the record of the requests for GPUs that arrive. The scheduler that leads
// writes it, and places by what is written; who wants to answer as the scheduler would reads it.
type Workload struct {
	// CountedUntil is until when arrivals were counted: pods that were created later were not.
	CountedUntil time.Time
	Demands      []WorkloadDemand
}

// WorkloadDemand is how many pods have asked for the same.
type WorkloadDemand struct {
	Pods int64 `json:"pods"`
	// Mode is topology or default for whole GPUs, share for GPU memory alone, whatever the
	// node's mode, and core_mem for memory with cores.
	Mode string `json:"mode"`
	// GPUs are the GPUs that each pod is on, with the whole or a part of each.
	GPUs              int   `json:"gpus"`
	MemoryGiBPerGPU   int64 `json:"memoryGiBPerGPU,omitempty"`
	CorePercentPerGPU int64 `json:"corePercentPerGPU,omitempty"`
	MilliCPU          int64 `json:"milliCPU"`
	MemoryMiB         int64 `json:"memoryMiB,omitempty"`
	// Nodes says on which nodes the pods may run by selector, affinity and pools, "" for any:
	// alternatives separated by ";", each of requirements separated by ",".
	Nodes string `json:"nodes,omitempty"`
}

// Data is the record as the data of its ConfigMap, with one demand a line.
func (w Workload) Data() (map[string]string, error) {
	lines := make([]string, len(w.Demands))
	for i, d := range w.Demands {
		line, err := json.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encode the workload: %w", err)
		}
		lines[i] = string(line)
	}
	return map[string]string{
		workloadVersion:      workloadFormat,
		workloadCountedUntil: w.CountedUntil.UTC().Format(time.RFC3339),
		workloadDemands:      "[\n" + strings.Join(lines, ",\n") + "\n]\n",
	}, nil
}

// WorkloadFrom reads the record from the data of its ConfigMap.
func WorkloadFrom(data map[string]string) (w Workload, err error) {
	if version := data[workloadVersion]; version != workloadFormat {
		return Workload{}, fmt.Errorf("ConfigMap %s has version %.20q; this program reads version %s", WorkloadName, version, workloadFormat)
	}
	if w.CountedUntil, err = time.Parse(time.RFC3339, data[workloadCountedUntil]); err != nil {
		return Workload{}, fmt.Errorf("ConfigMap %s: %s is no time: %w", WorkloadName, workloadCountedUntil, err)
	}
	if err := json.Unmarshal([]byte(data[workloadDemands]), &w.Demands); err != nil {
		return Workload{}, fmt.Errorf("ConfigMap %s: %s is no list of demands: %w", WorkloadName, workloadDemands, err)
	}
	return w, nil
}
