package trainingjob

import (
	"reflect"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// explicit is a job of which nothing is implied by anything else.
func explicit() job.Spec {
	return job.Spec{
		Namespace: "default", Name: "a", Framework: job.PyTorch, Mode: job.Topology, Gang: true, Minimum: 1,
		SchedulerName: contract.SchedulerName, DNSPolicy: corev1.DNSDefault, Port: 29500, ProcessesPerNode: "2", RestartPolicy: "Always", CleanPodPolicy: "All",
		Roles:       map[string]job.Role{"worker": {Replicas: 2, Image: "a", GPUs: 1, RDMA: true}, "master": {Replicas: 1, Image: "b", GPUs: 1}},
		Volumes:     map[string]job.Volume{"data": {Claim: "a", MountPath: "/data"}},
		Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}},
		CodeSync:    &job.CodeSync{Source: "git", URL: "a", Branch: "b", Revision: "c", Image: "d", Secret: "e"},
		TensorBoard: &job.TensorBoard{LogDir: "/a", Image: "b", ServiceType: "ClusterIP"},
	}
}

// Every field of a job is an attribute: a change of it is found, taken over, and read back. A
// new field needs one in the table.
func TestEveryFieldOfAJobIsAnAttribute(t *testing.T) {
	eachField(t, "", []string{"Owner", "Planned", "Version", "Ended"}, func(s *job.Spec) *job.Spec { return s }, func(s *job.Spec, _ job.Spec) {
		for i := range s.Tolerations {
			s.Tolerations[i].TolerationSeconds = nil // Kubernetes' own: Terraform does not have it
		}
	})
	eachField(t, "role ", nil, func(s *job.Spec) *job.Role {
		role := s.Roles["worker"]
		return &role
	}, func(s *job.Spec, role job.Role) { s.Roles["worker"] = role })
	eachField(t, "volume ", nil, func(s *job.Spec) *job.Volume {
		volume := s.Volumes["data"]
		return &volume
	}, func(s *job.Spec, volume job.Volume) { s.Volumes["data"] = volume })
	eachField(t, "code ", nil, func(s *job.Spec) *job.CodeSync {
		sync := *s.CodeSync
		return &sync
	}, func(s *job.Spec, sync job.CodeSync) { s.CodeSync = &sync })
	eachField(t, "tensorboard ", nil, func(s *job.Spec) *job.TensorBoard {
		board := *s.TensorBoard
		return &board
	}, func(s *job.Spec, board job.TensorBoard) { s.TensorBoard = &board })
	eachField(t, "toleration ", []string{"TolerationSeconds"}, func(s *job.Spec) *corev1.Toleration {
		return &s.Tolerations[0]
	}, func(*job.Spec, corev1.Toleration) {})
}

// eachField changes the fields of a part of a job, one after the other, but for those that are
// not the user's.
func eachField[T any](t *testing.T, prefix string, not []string, part func(*job.Spec) *T, set func(*job.Spec, T)) {
	for i := range reflect.TypeFor[T]().NumField() {
		name := reflect.TypeFor[T]().Field(i).Name
		if slices.Contains(not, name) {
			continue
		}
		t.Run(prefix+name, func(t *testing.T) {
			before, live := explicit(), explicit()
			changed := part(&live)
			alter(t, reflect.ValueOf(changed).Elem().Field(i))
			set(&live, *changed)
			found := differing(before, live)
			require.Len(t, found, 1, "the attributes that say this field: add one to the table")

			var m model
			m.take(before.Complete(), jobAttributes)
			m.take(live.Complete(), found)
			again, unknown, diags := m.spec(t.Context())
			require.Empty(t, diags)
			assert.Empty(t, unknown)
			assert.True(t, apiequality.Semantic.DeepEqual(live.Complete(), again), "%+v became %+v", live, again)
		})
	}
}

// alter gives a field another value, which is not zero.
func alter(t *testing.T, field reflect.Value) {
	if _, ok := field.Interface().(resource.Quantity); ok {
		field.Set(reflect.ValueOf(resource.MustParse("7Gi")))
		return
	}
	switch field.Kind() {
	case reflect.String:
		field.SetString(field.String() + "x")
	case reflect.Bool:
		field.SetBool(!field.Bool())
	case reflect.Int32, reflect.Int64:
		field.SetInt(field.Int() + 1)
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		alter(t, field.Elem())
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		alter(t, field.Index(0))
	case reflect.Map:
		value := reflect.New(field.Type().Elem()).Elem()
		alter(t, value)
		field.Set(reflect.MakeMap(field.Type()))
		field.SetMapIndex(reflect.ValueOf("x"), value)
	case reflect.Struct:
		for i := range field.NumField() {
			alter(t, field.Field(i))
		}
	default:
		require.Fail(t, "no value is known for a "+field.Type().String())
	}
}

func TestDifferences(t *testing.T) {
	a, b := specs()["shared"], specs()["shared"]
	b.Suspend, b.CleanPodPolicy = true, "Running"
	b.Roles = map[string]job.Role{"worker": {Replicas: 3, Image: "tune:2", MemoryGiB: 8, GPUs: 2, WorkingDir: "/src", RDMA: true}}
	b.Pools = []string{"t4"}
	replace, inPlace := differences(a, b)
	assert.Equal(t, []string{"roles", "pools"}, replace)
	assert.ElementsMatch(t, []string{"suspend", "clean_pod_policy"}, inPlace)

	b = specs()["shared"]
	role := b.Roles["worker"]
	role.CPU, role.Memory = resource.MustParse("0.5"), resource.MustParse("8192Mi")
	b.Roles["worker"] = role
	assert.Empty(t, differing(a, b), "equal quantities are equal however they are written")
}

// A job runs again for other triggers, and not for another way to write none.
func TestRerun(t *testing.T) {
	null, empty, unknown := types.MapNull(types.StringType), types.MapValueMust(types.StringType, map[string]attr.Value{}), types.MapUnknown(types.StringType)
	one, two := mapValue(map[string]string{"run": "1"}), mapValue(map[string]string{"run": "2"})
	for name, c := range map[string]struct {
		before, wanted types.Map
		want           []string
	}{
		"same":    {one, one, nil},
		"other":   {one, two, []string{"triggers"}},
		"first":   {null, one, []string{"triggers"}},
		"none":    {null, empty, nil},
		"unknown": {empty, unknown, []string{"triggers"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, rerun(model{Triggers: c.before}, model{Triggers: c.wanted}))
		})
	}
}
