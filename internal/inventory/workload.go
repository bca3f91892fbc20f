package inventory

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// DemandOf returns what a workload counts of a pod; ok is false for a pod that asks for no
// GPUs, or for what no node can serve.
func DemandOf(p *corev1.Pod) (d placement.Demand, ok bool) {
	request, _ := requestOf(p)
	role := roleOf(p, request)
	d = role.Demand()
	return d, d.Valid()
}

// WorkloadOf reads the record of a workload, and until when its arrivals were counted.
func WorkloadOf(record *corev1.ConfigMap) (w placement.Workload, countedUntil time.Time, err error) {
	read, err := contract.WorkloadFrom(record.Data)
	if err != nil {
		return nil, time.Time{}, err
	}
	w = placement.Workload{}
	for _, counted := range read.Demands {
		d := placement.Demand{
			Mode: placement.Mode(counted.Mode), GPUs: counted.GPUs,
			MemoryGiB: counted.MemoryGiBPerGPU, CorePercent: counted.CorePercentPerGPU,
			MilliCPU: counted.MilliCPU, MemoryMiB: counted.MemoryMiB, Nodes: counted.Nodes,
		}
		if d.GPUs > gpu.MaxGPUs {
			continue // earlier versions counted what no machine has
		}
		if !d.Valid() || counted.Pods <= 0 || counted.Pods > mostPods {
			return nil, time.Time{}, fmt.Errorf("ConfigMap %s: %+v is no demand", contract.WorkloadName, counted)
		}
		w[d] += counted.Pods
	}
	return w, read.CountedUntil, nil
}

// mostPods is more than any scheduler counts.
const mostPods = 1_000_000

// WorkloadRecord is the data of the record of a workload.
func WorkloadRecord(w placement.Workload, countedUntil time.Time) (map[string]string, error) {
	record := contract.Workload{CountedUntil: countedUntil}
	for _, d := range w.Demands() {
		record.Demands = append(record.Demands, contract.WorkloadDemand{
			Pods: w[d], Mode: string(d.Mode), GPUs: d.GPUs,
			MemoryGiBPerGPU: d.MemoryGiB, CorePercentPerGPU: d.CorePercent,
			MilliCPU: d.MilliCPU, MemoryMiB: d.MemoryMiB, Nodes: d.Nodes,
		})
	}
	return record.Data()
}
