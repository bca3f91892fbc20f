package job

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

var update = flag.Bool("update", false, "write the golden files")

// vgg16 is the MPI job of Alibaba Cloud's topology document: 4 workers with 1 GPU each.
func vgg16() Spec {
	const image = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1"
	return Spec{
		Namespace: "default", Name: "pytorch-topo-4-vgg16", Framework: MPI, Mode: Topology, Gang: true,
		SchedulerName: contract.SchedulerName, Pools: []string{"v100"}, Arena: true,
		Roles: map[string]Role{
			"launcher": {Replicas: 1, Image: image, Command: []string{"sh", "-c", "mpirun -np 4 python /examples/pytorch_synthetic_benchmark.py --model=vgg16 --batch-size=64"}},
			"worker":   {Replicas: 4, Image: image, GPUs: 1},
		},
	}
}

// distNCCL is the PyTorchJob of Alibaba Cloud's topology document, with the host's namespaces.
func distNCCL() Spec {
	role := Role{
		Replicas: 1, GPUs: 1,
		Image:   "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch_dist_mnist:1.3-gpu-py3",
		Command: []string{"python"}, Args: []string{"/opt/mnist/src/mnist.py", "--backend", "nccl"},
		Env: map[string]string{"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "GRAPH"},
	}
	return Spec{
		Namespace: "default", Name: "pytorch-dist-nccl", Framework: PyTorch, Mode: Topology, Gang: true,
		SchedulerName: contract.SchedulerName,
		HostIPC:       true, HostNetwork: true, HostPID: true,
		Annotations: map[string]string{"sidecar.istio.io/inject": "false"},
		Roles:       map[string]Role{"master": role, "worker": role},
	}
}

// shared is a job that asks for parts of GPUs and sets everything else that can be set.
func shared() Spec {
	return Spec{
		Namespace: "research", Name: "tune", Framework: PyTorch, Mode: Shared, Gang: true, Minimum: 2,
		Quota: "vision", NonPreemptible: true, SchedulerName: contract.SchedulerName, PriorityClass: "high", Owner: "vision-prod",
		Pools: []string{"a10", "t4"}, NodeSelector: map[string]string{"zone": "b"},
		Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		DNSPolicy:   corev1.DNSDefault, Port: 29500, Suspend: true, CleanPodPolicy: "All", RestartPolicy: "ExitCode",
		BackoffLimit: ptr.To[int32](3), ActiveDeadlineSeconds: ptr.To[int64](3600), TTLSecondsAfterFinished: ptr.To[int32](60),
		Labels:         map[string]string{"team": "vision"},
		ServiceAccount: "trainer", ImagePullSecrets: []string{"registry"}, SharedMemory: resource.MustParse("16Gi"),
		ImagePullPolicy: corev1.PullAlways, ProcessesPerNode: "2", RDMADefaults: true,
		Volumes: map[string]Volume{"data": {Claim: "imagenet", MountPath: "/data", ReadOnly: true}, "checkpoints": {Claim: "out", MountPath: "/out"}},
		Roles: map[string]Role{
			"master": {Replicas: 1, Image: "tune:1", MemoryGiB: 4, CorePercent: 25, CPU: resource.MustParse("2"), Memory: resource.MustParse("8Gi"), RDMA: true},
			"worker": {Replicas: 2, Image: "tune:2", MemoryGiB: 8, GPUs: 2, WorkingDir: "/src"},
		},
	}
}

// queued is a job that the job queue lets start.
func queued() Spec {
	s := plain()
	s.Name, s.Queue = "queued", true
	return s
}

func plain() Spec {
	return Spec{
		Namespace: "default", Name: "plain", Framework: PyTorch, Mode: Default, SchedulerName: corev1.DefaultSchedulerName,
		Roles: map[string]Role{"worker": {Replicas: 2, Image: "train:1", GPUs: 8}},
	}
}

func golden(t *testing.T, name string, got any) {
	t.Helper()
	text, err := yaml.Marshal(got)
	require.NoError(t, err)
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text))
}

// alpha is a job in the version that arena knows.
func alpha() Spec {
	s := vgg16()
	s.Version = contract.MPIAlphaVersion
	return s
}

// alphaShared is such a job that sets all that the version has.
func alphaShared() Spec {
	s := alpha()
	s.Name, s.Mode, s.Arena, s.Suspend, s.Owner, s.CleanPodPolicy, s.RestartPolicy = "tune", Shared, false, true, "vision-prod", "Running", "OnFailure"
	s.BackoffLimit, s.ActiveDeadlineSeconds = ptr.To[int32](3), ptr.To[int64](3600)
	s.Quota, s.PriorityClass, s.Labels = "vision", "high", map[string]string{"team": "vision"}
	s.SharedMemory, s.ImagePullPolicy, s.RDMADefaults = resource.MustParse("16Gi"), corev1.PullIfNotPresent, true
	env := map[string]string{"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Tree"}
	s.Roles = map[string]Role{
		"launcher": {Replicas: 1, Image: "tune:1", Command: []string{"mpirun"}, Args: []string{"train"}, Env: env, WorkingDir: "/src"},
		"worker": {Replicas: 2, Image: "tune:1", Env: env, WorkingDir: "/src", MemoryGiB: 8, GPUs: 2,
			CPU: resource.MustParse("2"), Memory: resource.MustParse("8Gi"), RDMA: true},
	}
	return s
}

// byOperator is a job in the version of the MPI operator.
func byOperator() Spec {
	s := vgg16()
	s.Version = contract.MPIOperatorVersion
	return s
}

// byOperatorShared is such a job that runs with a part of its members, and sets all that the version has.
func byOperatorShared() Spec {
	s := alphaShared()
	s.Version, s.MPIImplementation, s.SSHAuthMountPath = contract.MPIOperatorVersion, "Intel", "/home/mpi/.ssh"
	launcher, worker := s.Roles["launcher"], s.Roles["worker"]
	launcher.CPU, worker.Replicas, worker.Minimum, worker.Command = resource.MustParse("1"), 4, 2, []string{"/usr/sbin/sshd", "-De"}
	s.Roles = map[string]Role{"launcher": launcher, "worker": worker}
	return s
}

// batch is the job of Alibaba Cloud's document about computing power of shared GPUs.
func batch() Spec {
	return Spec{
		Namespace: "default", Name: "cuda-sample", Framework: Batch, Mode: Shared, Gang: true, SchedulerName: contract.SchedulerName,
		Labels: map[string]string{"app": "cuda-sample"},
		Roles: map[string]Role{"worker": {
			Replicas: 1, Image: "registry.cn-hangzhou.aliyuncs.com/ai-samples/gpushare-sample:tensorflow-1.5", WorkingDir: "/root",
			Command:   []string{"python", "tensorflow-sample-code/tfjob/docker/mnist/main.py", "--max_steps=100000", "--data_dir=tensorflow-sample-code/data"},
			MemoryGiB: 2, CorePercent: 30,
		}},
	}
}

// batchGang is a gang that sets all that a Job has.
func batchGang() Spec {
	s := shared()
	s.Name, s.Framework, s.Mode, s.Port, s.ProcessesPerNode = "train", Batch, Topology, 0, ""
	s.CleanPodPolicy, s.RestartPolicy, s.BackoffLimit = "", "OnFailure", ptr.To[int32](0)
	s.Roles = map[string]Role{"worker": {Replicas: 4, Image: "train:1", GPUs: 2, RDMA: true}}
	return s
}

// jobSet is a set of two roles that have nothing else.
func jobSetPlain() Spec {
	return Spec{
		Namespace: "default", Name: "rl", Framework: JobSet, Mode: Topology, Gang: true, SchedulerName: contract.SchedulerName,
		Roles: map[string]Role{"actor": {Replicas: 2, Image: "rl:1", GPUs: 1}, "learner": {Replicas: 1, Image: "rl:1", GPUs: 4}},
	}
}

// jobSetGang is a gang that sets all that a JobSet has.
func jobSetGang() Spec {
	s := batchGang()
	s.Name, s.Framework, s.Minimum, s.BackoffLimit = "train", JobSet, 0, ptr.To[int32](2)
	s.Roles = map[string]Role{
		"driver": {Replicas: 1, Image: "train:1", Command: []string{"python", "drive.py"}, CPU: resource.MustParse("1")},
		"worker": {Replicas: 4, Image: "train:1", GPUs: 2, RDMA: true},
	}
	return s
}

// trainJobPlain is a TrainJob of two roles that have nothing else.
func trainJobPlain() Spec {
	s := jobSetPlain()
	s.Framework = TrainJob
	return s
}

// trainJobGang is a gang that sets all that a TrainJob has.
func trainJobGang() Spec {
	s := jobSetGang()
	s.Framework, s.TTLSecondsAfterFinished = TrainJob, nil
	return s
}

func TestRenderAndPods(t *testing.T) {
	for name, spec := range map[string]Spec{"vgg16": vgg16(), "dist-nccl": distNCCL(), "shared": shared(), "plain": plain(), "queued": queued(), "alpha": alpha(), "alpha-shared": alphaShared(), "mpi-operator": byOperator(), "mpi-operator-shared": byOperatorShared(), "batch": batch(), "batch-gang": batchGang(), "jobset": jobSetPlain(), "jobset-gang": jobSetGang(), "trainjob": trainJobPlain(), "trainjob-gang": trainJobGang()} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, spec.Check())
			obj, err := spec.Render()
			require.NoError(t, err)
			golden(t, name+".yaml", obj.Object)

			pods, err := Pods(obj)
			require.NoError(t, err)
			golden(t, name+".pods.yaml", pods)
		})
	}
}

func TestParseIsTheInverseOfRender(t *testing.T) {
	for name, spec := range map[string]Spec{"vgg16": vgg16(), "dist-nccl": distNCCL(), "shared": shared(), "plain": plain(), "queued": queued(), "alpha": alpha(), "alpha-shared": alphaShared(), "mpi-operator": byOperator(), "mpi-operator-shared": byOperatorShared(), "batch": batch(), "batch-gang": batchGang(), "jobset": jobSetPlain(), "jobset-gang": jobSetGang(), "trainjob": trainJobPlain(), "trainjob-gang": trainJobGang()} {
		t.Run(name, func(t *testing.T) {
			obj, err := spec.Render()
			require.NoError(t, err)
			parsed, err := Parse(obj)
			require.NoError(t, err)
			assert.True(t, same(spec, parsed))

			again, err := parsed.Render()
			require.NoError(t, err)
			assert.Equal(t, obj.Object, again.Object)
		})
	}
}

// Of a job of others every spelling of a gang is read, and nothing that only tools may write.
func TestParseReadsJobsOfOthers(t *testing.T) {
	const lightMin, replicas = contract.LightGangMinLabel, contract.TopologyReplicasLabel
	for name, test := range map[string]struct {
		labels  map[string]string
		gang    bool
		minimum int32
	}{
		"no gang":               {labels: map[string]string{"app": "x"}},
		"switched off":          {labels: map[string]string{contract.TopologyGroupLabel: "false", contract.LightGangLabel: "false"}},
		"topology":              {labels: map[string]string{contract.TopologyGroupLabel: "j", replicas: "3"}, gang: true, minimum: 3},
		"topology, bad count":   {labels: map[string]string{contract.TopologyGroupLabel: "j", replicas: "-1"}, gang: true},
		"light":                 {labels: map[string]string{contract.LightGangLabel: "j", lightMin: "2"}, gang: true, minimum: 2},
		"light, all in all":     {labels: map[string]string{contract.LightGangLabel: "j", lightMin: "2", contract.TopologyGroupLabel: "j", replicas: "3"}, gang: true, minimum: 2},
		"PodGroup":              {labels: map[string]string{contract.PodGroupLabel: "j"}, gang: true},
		"PodGroup before light": {labels: map[string]string{contract.PodGroupLabel: "j", contract.LightGangLabel: "j", lightMin: "2"}, gang: true},
		"our own pod":           {labels: map[string]string{contract.ManagedByLabel: contract.ManagedByValue, contract.TopologyGroupLabel: "j", replicas: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := plain().Render()
			require.NoError(t, err)
			at := []string{"spec", "pytorchReplicaSpecs", "Worker", "template", "metadata", "labels"}
			require.NoError(t, unstructured.SetNestedStringMap(obj.Object, test.labels, at...))
			obj.SetLabels(map[string]string{"team": "a", contract.TopologyGroupLabel: "j", "propagationpolicy.karmada.io/permanent-id": "p"})
			obj.SetAnnotations(map[string]string{"note": "b", corev1.LastAppliedConfigAnnotation: "{}", "propagationpolicy.karmada.io/name": "p", "clusterpropagationpolicy.karmada.io/name": "p"})
			parsed, err := Parse(obj)
			require.NoError(t, err)
			assert.Equal(t, test.gang, parsed.Gang)
			assert.Equal(t, cmp.Or(test.minimum, map[bool]int32{true: parsed.Members()}[test.gang]), parsed.Minimum)
			assert.Equal(t, map[string]string{"team": "a"}, parsed.Labels)
			assert.Equal(t, map[string]string{"note": "b"}, parsed.Annotations)
		})
	}
}

// A job is briefer without what it has anyway, and means the same.
func TestBriefIsTheInverseOfComplete(t *testing.T) {
	explicit, elastic, whole, mixed := plain(), shared(), shared(), shared()
	explicit = explicit.Complete()
	elastic.Minimum, whole.Minimum, mixed.Minimum = 0, 0, 4
	elastic.Roles["worker"] = Role{Replicas: 4, Minimum: 2, MemoryGiB: 4}
	whole.Roles["worker"] = Role{Replicas: 4, Minimum: 4, MemoryGiB: 4}
	mixed.Roles["worker"] = Role{Replicas: 4, Minimum: 2, MemoryGiB: 4}
	for name, spec := range map[string]Spec{
		"vgg16": vgg16(), "dist-nccl": distNCCL(), "shared": shared(), "explicit": explicit, "batch": batch(), "batch, all said": batchGang(),
		"minima of roles": elastic, "minima of all replicas": whole, "minima of roles and of the gang": mixed,
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, spec.Complete(), spec.Brief().Complete())
			assert.Equal(t, spec.Brief(), spec.Complete().Brief())
		})
	}
	brief := explicit.Brief()
	assert.Empty(t, brief.DNSPolicy)
	assert.Empty(t, brief.RestartPolicy)
	assert.Empty(t, brief.CleanPodPolicy)
	assert.Zero(t, brief.Port)
	assert.Empty(t, brief.ProcessesPerNode)
	assert.Zero(t, brief.Minimum)
	assert.Zero(t, elastic.Brief().Minimum)
	assert.Zero(t, elastic.Brief().Roles["master"].Minimum)
	assert.Equal(t, int32(2), elastic.Brief().Roles["worker"].Minimum)
	assert.Equal(t, int32(4), mixed.Brief().Minimum)
}

// same reports whether two jobs are the same but for what the provider writes on them.
func same(a, b Spec) bool {
	a, b = a.Complete(), b.Complete()
	a.Owner, a.Version, a.Planned = b.Owner, b.Version, b.Planned
	return apiequality.Semantic.DeepEqual(a, b)
}

func TestHostNetworkGivesWorkersAPortOfTheirOwn(t *testing.T) {
	obj, err := distNCCL().Render()
	require.NoError(t, err)
	pods, err := Pods(obj)
	require.NoError(t, err)
	require.Len(t, pods, 2)
	assert.Equal(t, int32(23456), pods[0].Spec.Containers[0].Ports[0].HostPort)
	assert.Equal(t, int32(23457), pods[1].Spec.Containers[0].Ports[0].HostPort)
}

func TestPodsOfAJobThatDeclaresNoPort(t *testing.T) {
	spec := plain()
	spec.HostNetwork = true
	obj, err := spec.Render()
	require.NoError(t, err)
	worker := obj.Object["spec"].(map[string]any)["pytorchReplicaSpecs"].(map[string]any)["Worker"].(map[string]any)
	container := worker["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	delete(container, "ports")

	pods, err := Pods(obj)
	require.NoError(t, err)
	for _, p := range pods {
		require.Len(t, p.Spec.Containers[0].Ports, 1, "the operator adds the master's port to every replica")
		assert.Equal(t, int32(contract.PyTorchPort), p.Spec.Containers[0].Ports[0].HostPort)
	}
}

func TestArenaConfigMap(t *testing.T) {
	cm, err := vgg16().ArenaConfigMap("uid-1")
	require.NoError(t, err)
	assert.NotContains(t, cm.GetLabels(), contract.OwnerLabel)
	golden(t, "vgg16.arena.yaml", cm.Object)

	owned := vgg16()
	owned.Owner = "me"
	cm, err = owned.ArenaConfigMap("uid-1")
	require.NoError(t, err)
	assert.Equal(t, "me", cm.GetLabels()[contract.OwnerLabel])
}

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		change func(*Spec)
		want   Problem
	}{
		"core percentage": {
			func(s *Spec) { set(s, "worker", func(r *Role) { r.GPUs = 1; r.CorePercent = 7 }) },
			Problem{"core_percent", "worker", "7 is no multiple of 5 from 5 to 100: use 5"},
		},
		"suspended, of Kueue": {
			func(s *Spec) { s.Suspend, s.Labels = true, map[string]string{contract.KueueQueueLabel: "research"} },
			Problem{"suspend", "", "Kueue suspends a job with the label kueue.x-k8s.io/queue-name until it lets it start: leave suspend out, or the label"},
		},
		"compute of several GPUs": {
			func(s *Spec) { set(s, "worker", func(r *Role) { r.CorePercent = 7 }) },
			Problem{"core_percent", "worker", "a part of 2 shared GPUs can limit memory only, not compute: leave core_percent out, or use 1 GPU"},
		},
		"uneven memory": {
			func(s *Spec) { set(s, "worker", func(r *Role) { r.MemoryGiB = 7 }) },
			Problem{"memory_gib", "worker", "7 GiB cannot be spread evenly over 2 GPUs: use a multiple of 2"},
		},
		"share of nothing": {
			func(s *Spec) { set(s, "worker", func(r *Role) { r.MemoryGiB = 0 }) },
			Problem{"memory_gib", "worker", `mode "shared" needs the GPU memory in GiB`},
		},
		"share in another mode": {
			func(s *Spec) { s.Mode = Topology; set(s, "master", func(r *Role) { r.CorePercent = 0 }) },
			Problem{"memory_gib", "master", `mode "topology" asks for whole GPUs: use "gpus", or mode "shared"`},
		},
		"name of a volume": {
			func(s *Spec) { s.Volumes = map[string]Volume{"shared-memory": {Claim: "c", MountPath: "/data"}} },
			Problem{"volumes", "", `the name "shared-memory" is kept for shared_memory: choose another`},
		},
		"relative mount path": {
			func(s *Spec) { s.Volumes = map[string]Volume{"data": {Claim: "c", MountPath: "data"}} },
			Problem{"volumes", "", `volume "data": "data" is not a path in the container: start it with a slash, and leave out colons`},
		},
		"two volumes in one place": {
			func(s *Spec) {
				s.Volumes = map[string]Volume{"a": {Claim: "c", MountPath: "/data"}, "b": {Claim: "d", MountPath: "/data"}}
			},
			Problem{"volumes", "", `volume "b": /data is taken by volume "a"`},
		},
		"volume over shared memory": {
			func(s *Spec) { s.Volumes = map[string]Volume{"a": {Claim: "c", MountPath: "/dev/shm"}} },
			Problem{"volumes", "", `volume "a": /dev/shm is taken by shared_memory`},
		},
		"unknown role": {
			func(s *Spec) { s.Roles["launcher"] = Role{Replicas: 1, Image: "x"} },
			Problem{"", "launcher", `framework "pytorch" has the roles master and worker; there is no role "launcher"`},
		},
		"two masters": {
			func(s *Spec) { set(s, "master", func(r *Role) { r.Replicas = 2 }) },
			Problem{"replicas", "master", `a job has 1 master, not 2: put the others into the role "worker"`},
		},
		"no replicas": {
			func(s *Spec) { set(s, "worker", func(r *Role) { r.Replicas = 0 }) },
			Problem{"replicas", "worker", "a role has at least 1 replica, not 0: leave the role out instead"},
		},
		"no image": {
			func(s *Spec) { set(s, "worker", func(r *Role) { r.Image = "" }) },
			Problem{"image", "worker", "no image: set it here or for the whole job"},
		},
		"no GPUs": {
			func(s *Spec) { *s = plain(); set(s, "worker", func(r *Role) { r.GPUs = 0 }) },
			Problem{"roles", "", `no role asks for GPUs: set "gpus" on the roles that train`},
		},
		"negative minimum": {
			func(s *Spec) { s.Minimum = -1 },
			Problem{"gang", "", "at least 1 member must run, not -1: leave minimum out instead"},
		},
		"minimum of a role above its replicas": {
			func(s *Spec) { set(s, "worker", func(r *Role) { r.Minimum = 9 }) },
			Problem{"minimum", "worker", "minimum is 9, but the role has 2 replicas"},
		},
		"minimum of a role without GPUs": {
			func(s *Spec) { *s = vgg16(); set(s, "launcher", func(r *Role) { r.Minimum = 1 }) },
			Problem{"minimum", "launcher", "the role asks for no GPU, so it is no member of the gang: leave minimum out"},
		},
		"minimum of a role of no gang": {
			func(s *Spec) { *s = plain(); set(s, "worker", func(r *Role) { r.Minimum = 1 }) },
			Problem{"minimum", "worker", "the job is no gang, so every replica starts by itself: leave minimum out, or gang enabled"},
		},
		"minima of roles above that of the gang": {
			func(s *Spec) { s.Minimum = 2; set(s, "worker", func(r *Role) { r.Minimum = 2 }) },
			Problem{"gang", "", "minimum is 2, but the minima of the roles are 3 together: raise it, or leave it out"},
		},
		"minimum of a role beside the master above that of the gang": {
			func(s *Spec) { s.Minimum = 1; set(s, "worker", func(r *Role) { r.Minimum = 1 }) },
			Problem{"gang", "", "minimum is 1, but the minima of the roles are 2 together: raise it, or leave it out"},
		},
		"minimum": {
			func(s *Spec) { s.Minimum = 4 },
			Problem{"gang", "", "minimum is 4, but only 3 replicas ask for GPUs, and only those are members"},
		},
		"minimum of one replica": {
			func(s *Spec) { s.Minimum = 2; delete(s.Roles, "worker") },
			Problem{"gang", "", "minimum is 2, but only 1 replica asks for GPUs, and only those are members"},
		},
		"topology without gang": {
			func(s *Spec) { *s = vgg16(); s.Gang = false },
			Problem{"gang", "", `mode "topology" places all members together, so they are a gang: leave gang enabled, or use mode "default"`},
		},
		"launcher with GPUs": {
			func(s *Spec) { *s = vgg16(); set(s, "launcher", func(r *Role) { r.GPUs = 1 }) },
			Problem{"gpus", "launcher", `the launcher starts the workers' processes and gets no GPU: give the GPUs to the role "worker"`},
		},
		"mpi without workers": {
			func(s *Spec) { *s = vgg16(); delete(s.Roles, "worker") },
			Problem{"roles", "", `framework "mpi" needs the role "worker"`},
		},
		"no roles": {
			func(s *Spec) { s.Roles = nil },
			Problem{"roles", "", `framework "pytorch" needs the role "master" or "worker"`},
		},
		"processes of no number": {
			func(s *Spec) { s.ProcessesPerNode = "all" },
			Problem{"nproc_per_node", "", `"all" is no number of processes: use one from 1, or "auto", "gpu" or "cpu"`},
		},
		"no processes": {
			func(s *Spec) { s.ProcessesPerNode = "0" },
			Problem{"nproc_per_node", "", `"0" is no number of processes: use one from 1, or "auto", "gpu" or "cpu"`},
		},
		"processes of an MPI job": {
			func(s *Spec) { *s = vgg16(); s.ProcessesPerNode = "4" },
			Problem{"nproc_per_node", "", `mpirun starts the processes of framework "mpi", as its command says: leave nproc_per_node out`},
		},
		"long name": {
			func(s *Spec) { s.Name = "a123456789-123456789-123456789-123456789-123456789-123456" },
			Problem{"name", "", `the pod name "a123456789-123456789-123456789-123456789-123456789-123456-master-0" would have 66 characters, at most 63 are allowed: shorten the job's name by 3`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			spec := shared()
			c.change(&spec)
			assert.Contains(t, spec.Check(), c.want)
		})
	}
}

// What a role lacks is said once.
func TestTrainingRoleWithoutReplicas(t *testing.T) {
	spec := plain()
	set(&spec, "worker", func(r *Role) { r.Replicas = 0 })
	assert.Equal(t, []Problem{{"replicas", "worker", "a role has at least 1 replica, not 0: leave the role out instead"}}, spec.Check())
}

// Of the roles of a job the launcher alone may ask for less; amounts are compared however they are written.
func TestUnlike(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Spec)
		want   []string // role, attribute and what it says
	}{
		"alike":         {func(*Spec) {}, nil},
		"GPUs":          {func(s *Spec) { set(s, "worker", func(r *Role) { r.GPUs = 2 }) }, []string{`worker gpus: gpus is 2, and that of role "master" is 1`}},
		"CPU":           {func(s *Spec) { set(s, "master", func(r *Role) { r.CPU = resource.MustParse("500m") }) }, []string{`worker cpu: cpu is 0, and that of role "master" is 500m`}},
		"CPU, two ways": {func(s *Spec) { both(s, "0.5", "500m") }, nil},
		"memory, two ways": {func(s *Spec) {
			set(s, "master", func(r *Role) { r.Memory = resource.MustParse("64Gi") })
			set(s, "worker", func(r *Role) { r.Memory = resource.MustParse("68719476736") })
		}, nil},
		"memory and RDMA":       {func(s *Spec) { set(s, "worker", func(r *Role) { r.Memory, r.RDMA = resource.MustParse("8Gi"), true }) }, []string{`worker memory: memory is 8Gi, and that of role "master" is 0`, `worker rdma: rdma is true, and that of role "master" is false`}},
		"a launcher":            {func(s *Spec) { *s = vgg16() }, nil},
		"a launcher's CPU":      {func(s *Spec) { *s = vgg16(); set(s, "launcher", func(r *Role) { r.CPU = resource.MustParse("1") }) }, nil},
		"a master without GPUs": {func(s *Spec) { set(s, "master", func(r *Role) { r.GPUs = 0 }) }, []string{`worker gpus: gpus is 1, and that of role "master" is 0`}},
		"another mode":          {func(s *Spec) { s.Mode = Default; set(s, "worker", func(r *Role) { r.GPUs = 2 }) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			spec := distNCCL()
			test.change(&spec)
			var got []string
			for _, p := range spec.Unlike() {
				got = append(got, p.Role+" "+p.Field+": "+p.Text)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// both gives master and worker their CPU.
func both(s *Spec, master, worker string) {
	set(s, "master", func(r *Role) { r.CPU = resource.MustParse(master) })
	set(s, "worker", func(r *Role) { r.CPU = resource.MustParse(worker) })
}

// What a framework that does not exist has for roles, nobody knows.
func TestCheckOfAFrameworkThatDoesNotExist(t *testing.T) {
	for name, spec := range map[string]Spec{"mpi": vgg16(), "pytorch": shared()} {
		t.Run(name, func(t *testing.T) {
			spec.Framework = "tensorflow"
			assert.Empty(t, spec.Check())
		})
	}
}

func set(s *Spec, role string, change func(*Role)) {
	r := s.Roles[role]
	change(&r)
	s.Roles[role] = r
}

func TestStatus(t *testing.T) {
	obj, err := distNCCL().Render()
	require.NoError(t, err)
	condition := func(kind, status string) map[string]any {
		return map[string]any{"type": kind, "status": status, "message": kind + " it is", "lastTransitionTime": "2026-01-02T03:04:05Z"}
	}
	cases := map[string]struct {
		conditions []any
		active     int64
		phase      Phase
		allRunning bool
	}{
		"new":        {nil, 0, Pending, false},
		"created":    {[]any{condition("Created", "True")}, 0, Created, false},
		"master":     {[]any{condition("Created", "True"), condition("Running", "True")}, 1, Running, false},
		"running":    {[]any{condition("Created", "True"), condition("Running", "True")}, 2, Running, true},
		"evicted":    {[]any{condition("Created", "True"), condition("Running", "True")}, 0, Pending, false},
		"restarting": {[]any{condition("Running", "False"), condition("Restarting", "True")}, 1, Restarting, false},
		"suspended":  {[]any{condition("Created", "True"), condition("Running", "False"), condition("Suspended", "True")}, 0, Suspended, false},
		"resumed":    {[]any{condition("Running", "True"), condition("Suspended", "False")}, 2, Running, true},
		"succeeded":  {[]any{condition("Running", "False"), condition("Succeeded", "True")}, 0, Succeeded, false},
		"failed":     {[]any{condition("Running", "False"), condition("Failed", "True")}, 0, Failed, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			obj := obj.DeepCopy()
			obj.Object["status"] = map[string]any{
				"conditions":      c.conditions,
				"replicaStatuses": map[string]any{"Master": map[string]any{"active": min(c.active, 1)}, "Worker": map[string]any{"active": max(c.active-1, 0)}},
			}
			status, err := StatusOf(obj)
			require.NoError(t, err)
			assert.Equal(t, c.phase, status.Phase)
			assert.Equal(t, c.allRunning, status.Runs(0))
			assert.Equal(t, c.phase == Succeeded || c.phase == Failed, status.Finished())
			assert.Equal(t, int32(2), status.Wanted)
		})
	}
}

// A gang that may run with a part of its members runs with them, whether the leading one is of them or not.
func TestStatusOfAGangWithAMinimum(t *testing.T) {
	obj, err := shared().Render()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		condition       string
		workers, placed int32
		runs            bool
	}{
		"too few":              {"Created", 1, 0, false},
		"the minimum":          {"Created", 2, 0, true},
		"fewer than planned":   {"Created", 2, 3, false},
		"as planned":           {"Created", 3, 3, true},
		"the operator says so": {"Running", 2, 2, true},
		"about to be stopped":  {"Suspended", 3, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			obj := obj.DeepCopy()
			obj.Object["status"] = map[string]any{
				"conditions":      []any{map[string]any{"type": c.condition, "status": "True"}},
				"replicaStatuses": map[string]any{"Worker": map[string]any{"active": int64(c.workers)}},
			}
			status, err := StatusOf(obj)
			require.NoError(t, err)
			assert.Equal(t, int32(2), status.Wanted, "two of three members must run")
			assert.Equal(t, c.runs, status.Runs(c.placed))
		})
	}
}

// An MPI launcher that runs on makes no job run whose workers were evicted.
func TestStatusOfALauncherAlone(t *testing.T) {
	obj, err := Spec{
		Namespace: "default", Name: "j", Framework: MPI, Mode: Topology,
		Roles: map[string]Role{"worker": {Replicas: 2, Image: "train:1", GPUs: 1}},
	}.Render()
	require.NoError(t, err)
	for workers, phase := range []Phase{Pending, Running} {
		obj.Object["status"] = map[string]any{
			"conditions":      []any{map[string]any{"type": "Running", "status": "True"}},
			"replicaStatuses": map[string]any{"Launcher": map[string]any{"active": int64(1)}, "Worker": map[string]any{"active": int64(workers)}},
		}
		status, err := StatusOf(obj)
		require.NoError(t, err)
		assert.Equal(t, phase, status.Phase)
	}
}
