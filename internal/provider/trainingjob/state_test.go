package trainingjob

import (
	"fmt"
	"maps"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

func specs() map[string]job.Spec {
	return map[string]job.Spec{
		"mpi": {
			Namespace: "default", Name: "vgg16", Framework: job.MPI, Mode: job.Topology, Gang: true, Arena: true,
			SchedulerName: contract.SchedulerName,
			Roles: map[string]job.Role{
				"launcher": {Replicas: 1, Image: "a", Command: []string{"mpirun"}, Args: []string{"-np", "4"}, Env: map[string]string{"A": "1"}},
				"worker":   {Replicas: 4, Image: "a", GPUs: 1, Command: []string{"sshd"}, Env: map[string]string{"A": "1"}},
			},
		},
		"pytorch": {
			Namespace: "default", Name: "mnist", Framework: job.PyTorch, Mode: job.Default, SchedulerName: "default-scheduler",
			HostNetwork: true, HostIPC: true, HostPID: true, Port: 29500, Suspend: true, CleanPodPolicy: "All", RestartPolicy: "Never",
			Roles: map[string]job.Role{
				"master": {Replicas: 1, Image: "a", GPUs: 8, WorkingDir: "/a", Env: map[string]string{"A": "1"}},
				"worker": {Replicas: 3, Image: "b", GPUs: 8, Command: []string{"torchrun"}, Args: []string{"x"}},
			},
		},
		"minima of roles": {
			Namespace: "default", Name: "elastic", Framework: job.PyTorch, Mode: job.Topology, Gang: true, SchedulerName: contract.SchedulerName,
			Roles: map[string]job.Role{"master": {Replicas: 1, Image: "a", GPUs: 1}, "worker": {Replicas: 8, Minimum: 4, Image: "a", GPUs: 1}},
		},
		"minima of roles and of the gang": {
			Namespace: "default", Name: "elastic", Framework: job.PyTorch, Mode: job.Topology, Gang: true, Minimum: 6, SchedulerName: contract.SchedulerName,
			Roles: map[string]job.Role{"master": {Replicas: 1, Image: "a", GPUs: 1}, "worker": {Replicas: 8, Minimum: 4, Image: "a", GPUs: 1}},
		},
		"minima of all replicas": {
			Namespace: "default", Name: "whole", Framework: job.PyTorch, Mode: job.Topology, Gang: true, SchedulerName: contract.SchedulerName,
			Roles: map[string]job.Role{"master": {Replicas: 1, Minimum: 1, Image: "a", GPUs: 1}, "worker": {Replicas: 2, Minimum: 2, Image: "a", GPUs: 1}},
		},
		"shared": {
			Namespace: "research", Name: "tune", Framework: job.PyTorch, Mode: job.Shared, Gang: true, Minimum: 2,
			Quota: "vision", NonPreemptible: true, SchedulerName: contract.SchedulerName, PriorityClass: "high",
			Pools: []string{"a10"}, NodeSelector: map[string]string{"zone": "b"}, DNSPolicy: corev1.DNSDefault,
			Tolerations:  []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "x", Effect: corev1.TaintEffectNoSchedule}},
			BackoffLimit: ptr.To[int32](0), ActiveDeadlineSeconds: ptr.To[int64](60), TTLSecondsAfterFinished: ptr.To[int32](0),
			Labels: map[string]string{"team": "vision"}, Annotations: map[string]string{"note": "x"},
			ServiceAccount: "trainer", ImagePullSecrets: []string{"registry"}, SharedMemory: resource.MustParse("16Gi"),
			ImagePullPolicy: corev1.PullNever, ProcessesPerNode: "2", RDMADefaults: true,
			CodeSync:    &job.CodeSync{Source: job.CodeSyncGit, URL: "https://example.com/train.git", Branch: "main", Revision: "v1", Secret: "git"},
			TensorBoard: &job.TensorBoard{LogDir: "/out/run", ServiceType: corev1.ServiceTypeClusterIP},
			Volumes:     map[string]job.Volume{"data": {Claim: "imagenet", MountPath: "/data", ReadOnly: true}, "out": {Claim: "out", MountPath: "/out"}},
			Roles: map[string]job.Role{
				"worker": {Replicas: 3, Image: "a", MemoryGiB: 4, CorePercent: 25, CPU: resource.MustParse("500m"), Memory: resource.MustParse("8Gi"), RDMA: true},
			},
		},
	}
}

func TestAttributesSayWhatTheJobSays(t *testing.T) {
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			var m model
			m.take(spec.Complete(), jobAttributes)
			again, unknown, diags := m.spec(t.Context())
			require.Empty(t, diags)
			assert.Empty(t, unknown)
			replace, inPlace := differences(spec, again)
			assert.Empty(t, replace)
			assert.Empty(t, inPlace)
		})
	}
}

func TestDriftTakesOverWhatOthersChanged(t *testing.T) {
	var m model
	spec := specs()["shared"].Complete()
	m.take(spec, jobAttributes)
	before := m

	live := spec
	live.Suspend = true
	live.Labels = map[string]string{"team": "sound", "added-by": "others"}
	obj, err := live.Render()
	require.NoError(t, err)
	require.Empty(t, m.drift(t.Context(), obj))
	assert.True(t, m.Suspend.ValueBool())
	assert.Equal(t, mapValue(map[string]string{"team": "sound"}), m.Labels, "what others added is theirs")
	m.Suspend, m.Labels = before.Suspend, before.Labels
	assert.Equal(t, before, m)
}

// Of the roles of a job only those show as changed that are, whatever the configuration leaves out of the others.
func TestDriftOfOneRole(t *testing.T) {
	written := func(said map[string]attr.Value) attr.Value {
		all := map[string]attr.Value{}
		for name, kind := range roleType.AttrTypes {
			null, err := kind.ValueFromTerraform(t.Context(), tftypes.NewValue(kind.TerraformType(t.Context()), nil))
			require.NoError(t, err)
			all[name] = null
		}
		maps.Copy(all, said)
		return types.ObjectValueMust(roleType.AttrTypes, all)
	}
	nothing := written(nil)
	worker := written(map[string]attr.Value{"replicas": types.Int32Value(4), "gpus": types.Int64Value(1)})
	five := written(map[string]attr.Value{"replicas": types.Int32Value(5), "gpus": types.Int64Value(1)})
	more := func(role *job.Role) { role.Replicas = 5 }
	for name, test := range map[string]struct {
		framework job.Framework
		roles     map[string]attr.Value
		change    func(*job.Role)
		want      map[string]attr.Value // nil: each as it is
	}{
		"a launcher that is not written":     {job.MPI, map[string]attr.Value{"worker": worker}, more, map[string]attr.Value{"worker": five}},
		"a launcher without replicas":        {job.MPI, map[string]attr.Value{"launcher": nothing, "worker": worker}, more, map[string]attr.Value{"launcher": nothing, "worker": five}},
		"a master without replicas":          {job.PyTorch, map[string]attr.Value{"master": nothing, "worker": worker}, more, map[string]attr.Value{"master": nothing, "worker": five}},
		"what the job says of all its roles": {job.PyTorch, map[string]attr.Value{"master": nothing, "worker": worker}, func(role *job.Role) { role.Image = "another" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var m model
			m.take(job.Spec{Namespace: "default", Name: "a", Framework: test.framework, Mode: job.Topology, Gang: true}, jobAttributes)
			m.Image, m.Roles = types.StringValue("train:1"), types.MapValueMust(roleType, test.roles)
			live, _, diags := m.spec(t.Context())
			require.Empty(t, diags)
			changed := live.Roles["worker"]
			test.change(&changed)
			live.Roles["worker"] = changed
			obj, err := live.Render()
			require.NoError(t, err)
			require.Empty(t, m.drift(t.Context(), obj))
			if test.want != nil {
				assert.Equal(t, types.MapValueMust(roleType, test.want), m.Roles)
			}
			again, _, diags := m.spec(t.Context())
			require.Empty(t, diags)
			assert.Equal(t, live.Roles, again.Roles)
		})
	}
}

// What the queue does to a job is no drift, and its marks are not the user's annotations.
func TestQueuedJobDoesNotDrift(t *testing.T) {
	var m model
	spec := specs()["mpi"]
	spec.Queue = true
	spec = spec.Complete()
	m.take(spec, jobAttributes)
	before := m
	obj, err := spec.Render()
	require.NoError(t, err)
	for _, suspended := range []bool{true, false} {
		require.NoError(t, unstructured.SetNestedField(obj.Object, suspended, "spec", "runPolicy", "suspend"))
		require.Empty(t, m.drift(t.Context(), obj))
		assert.Equal(t, before, m)
	}
	assert.True(t, m.Queue.ValueBool())
	assert.False(t, m.Suspend.ValueBool())
	assert.True(t, m.Annotations.IsNull())
}

// Nor is what Kueue does to a job that has its label.
func TestJobOfKueueDoesNotDrift(t *testing.T) {
	var m model
	spec := specs()["shared"]
	spec.Labels = map[string]string{contract.KueueQueueLabel: "research"}
	spec = spec.Complete()
	m.take(spec, jobAttributes)
	before := m
	obj, err := spec.Render()
	require.NoError(t, err)
	for _, suspended := range []bool{true, false} {
		require.NoError(t, job.Hold(obj, suspended))
		require.Empty(t, m.drift(t.Context(), obj))
		assert.Equal(t, before, m)
	}
}

func TestQueuePosition(t *testing.T) {
	unit := func(phase contract.QueueUnitPhase, position int32) contract.QueueUnit {
		return contract.QueueUnit{
			Spec:   contract.QueueUnitSpec{Queue: "root-a-x1"},
			Status: contract.QueueUnitStatus{Phase: phase, Position: position, Message: "quota root/a: full"},
		}
	}
	assert.Equal(t, "suspended, position 3 in queue root-a-x1: quota root/a: full", queuePosition(unit(contract.UnitEnqueued, 3)))
	assert.Equal(t, "suspended, in no queue: quota root/a: full", queuePosition(unit(contract.UnitEnqueued, 0)))
	assert.Equal(t, "quota root/a: full", queuePosition(unit(contract.UnitBackoff, 0)))
	assert.Empty(t, queuePosition(unit(contract.UnitRunning, 0)))
}

func TestAsPlanned(t *testing.T) {
	on := func(member, node string, gpus ...int64) assignment.Model {
		return assignment.Model{Member: member, Node: node, GPUs: gpus}
	}
	planned := []assignment.Model{on("worker-0", "v100[0]", 0), on("worker-1", "v100[1]", 1)}
	names := map[string]string{"v100[0]": "n1", "v100[1]": "n2"}
	cases := map[string]struct {
		planned, actual []assignment.Model
		want            types.Bool
	}{
		"as planned":         {planned, []assignment.Model{on("worker-0", "n1", 0), on("worker-1", "n2", 1)}, types.BoolValue(true)},
		"other GPU":          {planned, []assignment.Model{on("worker-0", "n1", 0), on("worker-1", "n2", 2)}, types.BoolValue(false)},
		"other node":         {planned, []assignment.Model{on("worker-0", "n2", 0), on("worker-1", "n1", 1)}, types.BoolValue(false)},
		"not all placed":     {planned, []assignment.Model{on("worker-0", "n1", 0)}, types.BoolNull()},
		"nothing promised":   {nil, []assignment.Model{on("worker-0", "n1", 0)}, types.BoolNull()},
		"nodes that existed": {[]assignment.Model{on("worker-0", "n1", 0)}, []assignment.Model{on("worker-0", "n1", 0)}, types.BoolValue(true)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, asPlanned(c.planned, c.actual, names)) })
	}
}

func TestReached(t *testing.T) {
	obj, err := specs()["mpi"].Render()
	require.NoError(t, err)
	status := func(kind string, workers int64) map[string]any {
		return map[string]any{
			"conditions":      []any{map[string]any{"type": kind, "status": "True", "message": "because"}},
			"replicaStatuses": map[string]any{"Launcher": map[string]any{"active": min(workers, 1)}, "Worker": map[string]any{"active": workers}},
		}
	}
	cases := map[string]struct {
		status map[string]any
		goal   string
		done   bool
		err    string
	}{
		"launcher alone runs":    {status("Running", 0), waitRunning, false, ""},
		"some workers run":       {status("Running", 3), waitRunning, false, ""},
		"all run":                {status("Running", 4), waitRunning, true, ""},
		"over before we saw it":  {status("Succeeded", 0), waitRunning, true, ""},
		"running is no success":  {status("Running", 4), waitSucceeded, false, ""},
		"succeeded":              {status("Succeeded", 0), waitSucceeded, true, ""},
		"failed":                 {status("Failed", 0), waitRunning, false, "the job has failed: because"},
		"suspended":              {status("Suspended", 0), waitSuspended, true, ""},
		"suspended, pods remain": {status("Suspended", 2), waitSuspended, false, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: obj.DeepCopy().Object}
			o.Object["status"] = c.status
			done, text, err := reached(o, c.goal, 0)
			assert.Equal(t, c.done, done)
			assert.NotEmpty(t, text)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
		})
	}
}

// Whoever scales a job changes its gang as well, which needs as many members as before: both show at once, not only one of them, and
// the other by the next plan.
func TestDriftOfReplicasShowsTheGang(t *testing.T) {
	for name, spec := range specs() {
		for role := range spec.Roles {
			for _, replicas := range []int32{1, 2, 9} {
				t.Run(fmt.Sprintf("%s, %d of %s", name, replicas, role), func(t *testing.T) {
					var m model
					m.take(spec.Complete(), jobAttributes)
					known, _, diags := m.spec(t.Context())
					require.Empty(t, diags)
					obj, err := known.Render()
					require.NoError(t, err)
					live, err := job.Parse(obj)
					require.NoError(t, err)
					scaled := live.Roles[role]
					scaled.Replicas = replicas
					live.Roles[role] = scaled
					scaledObj, err := live.Render()
					require.NoError(t, err)
					require.Empty(t, m.drift(t.Context(), scaledObj))
					again, _, diags := m.spec(t.Context())
					require.Empty(t, diags)
					replace, inPlace := differences(again, live)
					assert.Empty(t, replace)
					assert.Empty(t, inPlace)
				})
			}
		}
	}
}
