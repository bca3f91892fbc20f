package placement

// Idle measures the view by a workload: how many GPUs are idle, parts of shared GPUs
// included, and how many of these a request of the workload cannot use on average, because
// its node or its GPU has too little left (the fragments of the FGD paper). Without
// members nothing is known to be unusable.
func (v *View) Idle(w Workload) (gpus, unusable float64) { return newDistribution(w).idle(v.order) }
