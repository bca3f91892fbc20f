package job

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// Limits of a job. They are beyond what any cluster can run (Kubernetes: 5,000 nodes);
// what they keep out are slips of the keyboard, which would take the plan's memory.
const (
	// MaxReplicas is the largest number of replicas of a whole job.
	MaxReplicas = 10_000
	// MaxGPUs is the largest number of GPUs of one replica, which has them on one node.
	MaxGPUs = gpu.MaxGPUs
	// MaxMemoryGiB is the largest GPU memory of one replica in GiB.
	MaxMemoryGiB = MaxGPUs * 1024
)

var (
	maxCPU    = resource.MustParse("10000")
	maxMemory = resource.MustParse("1Pi")
	// minMemory is what no container runs with; a smaller amount lacks its unit.
	minMemory = resource.MustParse("1Mi")
)

// checkSize refuses more replicas than a job can have, all roles together.
func (s Spec) checkSize(add report) {
	all, most := int64(0), contract.ReplicaWorker
	for _, name := range s.RoleNames() {
		all += int64(max(0, s.Roles[name].Replicas))
		if s.Roles[name].Replicas > s.Roles[most].Replicas {
			most = name
		}
	}
	if all > MaxReplicas {
		add(most, "replicas", "the job has %d replicas, at most %d are possible", all, MaxReplicas)
	}
}

// checkAmounts refuses amounts that no node can have, and those without their unit.
func (r Role) checkAmounts(name string, add report) {
	count := func(field string, n, most int64) {
		if n < 0 || n > most {
			add(name, field, "%d is not from 1 to %d, the most that one replica can have", n, most)
		}
	}
	count("gpus", r.GPUs, MaxGPUs)
	count("memory_gib", r.MemoryGiB, MaxMemoryGiB)
	if r.CPU.Cmp(maxCPU) > 0 {
		add(name, "cpu", "%s is more than any node has; CPU is counted in cores, as in \"8\" or \"500m\"", r.CPU.String())
	}
	if fault := memoryFault(r.Memory); fault != "" {
		add(name, "memory", "%s", fault)
	}
}

// memoryFault says why an amount of main memory cannot be meant, "" when it can.
func memoryFault(q resource.Quantity) string {
	switch {
	case q.IsZero():
		return ""
	case q.Cmp(maxMemory) > 0:
		return q.String() + " is more than any node has"
	case q.Cmp(minMemory) >= 0:
		return ""
	case q.Cmp(*resource.NewQuantity(q.Value(), resource.DecimalSI)) != 0 || q.Value() > 4096:
		return fmt.Sprintf("%s is %d bytes: memory needs a unit, as in \"64Gi\" or \"512Mi\"", q.String(), q.Value())
	}
	return fmt.Sprintf("%s is %d bytes: write \"%dGi\" if you mean that", q.String(), q.Value(), q.Value())
}
