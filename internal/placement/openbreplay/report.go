package main

import "github.com/gpuplan/terraform-provider-gpuplan/internal/openb/replay"

// report is the mean over seeds.
type report struct {
	Trace string `json:"trace"`
	Seeds int    `json:"seeds"`
	// AllocatedPercent is the allocated part of all GPUs, FragmentedPercent the part
	// of the idle GPUs that is fragmented; index i is at i percent of arrived demand.
	AllocatedPercent  []float64 `json:"allocatedPercent"`
	FragmentedPercent []float64 `json:"fragmentedPercent"`
	// MostPercent bounds the allocated part for any scheduler, at 100 and at all percent of demand.
	MostPercent []float64 `json:"mostPercent"`
	// Seconds is the time of all seeds on one core.
	Seconds float64 `json:"seconds"`
}

// summarise takes the means of the curves.
func summarise(trace string, curves []replay.Curve) report {
	mean := replay.Mean(curves)
	return report{
		Trace: trace, Seeds: len(curves), AllocatedPercent: mean.Allocated, FragmentedPercent: mean.Fragmented,
		MostPercent: mean.Most, Seconds: mean.Took.Seconds(),
	}
}
