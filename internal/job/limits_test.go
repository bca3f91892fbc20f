package job

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestCheckBounds(t *testing.T) {
	worker := func(change func(*Role)) func(*Spec) { return func(s *Spec) { set(s, "worker", change) } }
	for name, test := range map[string]struct {
		change func(*Spec)
		want   Problem
	}{
		"replicas": {
			worker(func(r *Role) { r.Replicas = math.MaxInt32 }),
			Problem{"replicas", "worker", "the job has 2147483648 replicas, at most 10000 are possible"},
		},
		"gpus":                {worker(func(r *Role) { r.GPUs = math.MaxInt64 }), Problem{"gpus", "worker", "9223372036854775807 is not from 1 to 64, the most that one replica can have"}},
		"negative GPU memory": {worker(func(r *Role) { r.MemoryGiB = -1 }), Problem{"memory_gib", "worker", "-1 is not from 1 to 65536, the most that one replica can have"}},
		"GPU memory":          {worker(func(r *Role) { r.MemoryGiB = 1 << 40 }), Problem{"memory_gib", "worker", "1099511627776 is not from 1 to 65536, the most that one replica can have"}},
		"cpu in bytes":        {worker(func(r *Role) { r.CPU = resource.MustParse("8Gi") }), Problem{"cpu", "worker", `8Gi is more than any node has; CPU is counted in cores, as in "8" or "500m"`}},
		"memory without a unit": {
			worker(func(r *Role) { r.Memory = resource.MustParse("64") }), Problem{"memory", "worker", `64 is 64 bytes: write "64Gi" if you mean that`},
		},
		"memory in thousandths": {
			worker(func(r *Role) { r.Memory = resource.MustParse("64m") }), Problem{"memory", "worker", `64m is 1 bytes: memory needs a unit, as in "64Gi" or "512Mi"`},
		},
		"too much memory":              {worker(func(r *Role) { r.Memory = resource.MustParse("2Pi") }), Problem{"memory", "worker", "2Pi is more than any node has"}},
		"shared memory without a unit": {func(s *Spec) { s.SharedMemory = resource.MustParse("16") }, Problem{"shared_memory", "", `16 is 16 bytes: write "16Gi" if you mean that`}},
		"environment": {
			worker(func(r *Role) { r.Env = map[string]string{"A=B": ""} }),
			Problem{"env", "worker", `"A=B" cannot be the name of a variable: ` + "a valid environment variable name must consist only of printable ASCII characters other than '='"},
		},
		"NUL in a command":    {worker(func(r *Role) { r.Command = []string{"a\x00"} }), Problem{"command", "worker", "it has a character that no process can be given, NUL"}},
		"image with a space":  {worker(func(r *Role) { r.Image = "a " }), Problem{"image", "worker", `"a " has spaces around it, or characters that no image has`}},
		"toleration of all":   {func(s *Spec) { s.Tolerations = []corev1.Toleration{{Operator: "Equal", Value: "x"}} }, Problem{"tolerations", "", `toleration 0: without a key the operator must be "Exists", which tolerates every taint`}},
		"toleration's value":  {func(s *Spec) { s.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists", Value: "x"}} }, Problem{"tolerations", "", `toleration 0: the operator "Exists" takes no value: leave value out, or use "Equal"`}},
		"our label":           {func(s *Spec) { s.Labels = map[string]string{"gpuplan.dev/pool": "x"} }, Problem{"labels", "", "gpuplan.dev/pool is set by the provider and the scheduler: leave it out"}},
		"label of the gang":   {func(s *Spec) { s.Labels = map[string]string{"gpu-topology": "x"} }, Problem{"labels", "", "gpu-topology is set by the attribute gang: leave it out"}},
		"label of the quota":  {func(s *Spec) { s.Labels = map[string]string{"quota.scheduling.alibabacloud.com/name": "x"} }, Problem{"labels", "", "quota.scheduling.alibabacloud.com/name is set by the attribute quota: leave it out"}},
		"Kubernetes' label":   {func(s *Spec) { s.Labels = map[string]string{"kubernetes.io/hostname": "x"} }, Problem{"labels", "", "kubernetes.io/hostname is set by Kubernetes: leave it out"}},
		"the operator's":      {func(s *Spec) { s.Labels = map[string]string{"training.kubeflow.org/job-name": "x"} }, Problem{"labels", "", "training.kubeflow.org/job-name is set by the training operator: leave it out"}},
		"arena's label":       {func(s *Spec) { s.Arena = true; s.Labels = map[string]string{"release": "x"} }, Problem{"labels", "", "release is set by the attribute arena_compatible: leave it out"}},
		"our annotation":      {func(s *Spec) { s.Annotations = map[string]string{"gpuplan.dev/allocation": "{}"} }, Problem{"annotations", "", "gpuplan.dev/allocation is set by the provider and the scheduler: leave it out"}},
		"value of a label":    {func(s *Spec) { s.Labels = map[string]string{"a": "b c"} }, Problem{"labels", "", `"b c" cannot be the value of a: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		"a role without name": {func(s *Spec) { s.Roles[""] = Role{} }, Problem{"roles", "", `a role has no name: framework "pytorch" has the roles master and worker`}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := shared()
			test.change(&spec)
			assert.Contains(t, spec.Check(), test.want)
		})
	}
	t.Run("what is allowed", func(t *testing.T) {
		spec := shared()
		spec.Labels = map[string]string{"team": "vision", "app.kubernetes.io/name": "x", "release": "7"}
		spec.Annotations = map[string]string{"prometheus.io/scrape": "true", "local.gpuplan.dev/run-for": "1s"}
		spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}, {Key: "nvidia.com/gpu", Operator: "Equal", Value: "x"}}
		set(&spec, "worker", func(r *Role) { r.Replicas = MaxReplicas - 1; r.Env = map[string]string{"a.b-c": "d"} })
		assert.Empty(t, spec.Check())
	})
}
