package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// carryOut makes and describes units as a plan says.
func (s *state) carryOut(t *testing.T, p plan) {
	t.Helper()
	w, _ := refusing(s, func(string, string) error { return nil })
	for _, e := range p.enqueue {
		require.NoError(t, w.createUnit(t.Context(), e))
	}
	for _, e := range p.describe {
		_, err := w.client.Resource(units()).Namespace(e.unit.Namespace).Create(t.Context(), e.unit.object, metav1.CreateOptions{})
		require.NoError(t, err)
		next := e.unit.object.DeepCopy()
		next.SetResourceVersion(e.unit.ResourceVersion + "0")
		e.unit.object = next
		require.NoError(t, w.describe(t.Context(), e))
	}
}

// edit changes the unit of job a as someone does it.
func (s *state) edit(t *testing.T, change func(*unstructured.Unstructured)) {
	t.Helper()
	next := s.units["team/a"].object.DeepCopy()
	next.SetResourceVersion(next.GetResourceVersion() + "0")
	change(next)
	require.NoError(t, s.setUnit(next))
}

// The priority of a unit is what the job's pods will have: it follows their class while the job waits,
// unless someone has edited it. While there is no such class the job is not in line: the API server would
// refuse its pods.
func TestPriorityFollowsTheClass(t *testing.T) {
	named := func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = "high" }
	high := func(value int32) func(*testing.T, *state) {
		return func(_ *testing.T, s *state) {
			s.setClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: value})
		}
	}
	byDefault := func(name string, value int32) func(*testing.T, *state) {
		return func(_ *testing.T, s *state) {
			s.setClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: true})
		}
	}
	gone := func(_ *testing.T, s *state) {
		s.removeClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}})
	}
	edited := func(t *testing.T, s *state) {
		s.edit(t, func(o *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(o.Object, int64(7), "spec", "priority"))
		})
	}
	resumed := func(t *testing.T, s *state) {
		j := object("a", both(named, released))
		j.ResourceVersion = "9"
		s.put(t, j)
	}
	none := "there is no PriorityClass high, which its pods name"
	for name, test := range map[string]struct {
		job      func(*batchv1.Job)
		steps    []func(*testing.T, *state)
		priority int32
		message  string
	}{
		"its class is there":                      {named, []func(*testing.T, *state){high(100)}, 100, ""},
		"its class comes later":                   {named, []func(*testing.T, *state){nil, high(100)}, 100, ""},
		"there is no such class":                  {named, []func(*testing.T, *state){nil}, 0, none},
		"its class goes":                          {named, []func(*testing.T, *state){high(100), gone}, 100, none},
		"its class is made again":                 {named, []func(*testing.T, *state){high(100), gone, high(5)}, 5, ""},
		"someone edits it":                        {named, []func(*testing.T, *state){high(100), edited, high(5)}, 7, ""},
		"someone edits it before its class comes": {named, []func(*testing.T, *state){nil, edited, high(5)}, 7, ""},
		"its class is made again when it is out":  {named, []func(*testing.T, *state){high(100), resumed, high(5)}, 100, ""},
		"it names no class":                       {nil, []func(*testing.T, *state){high(100)}, 0, ""},
		"a default comes later":                   {nil, []func(*testing.T, *state){nil, byDefault("usual", 3)}, 3, ""},
		"two defaults":                            {nil, []func(*testing.T, *state){byDefault("usual", 3), byDefault("other", 2)}, 2, ""},
		"a default, and its own":                  {named, []func(*testing.T, *state){byDefault("usual", 3), high(100)}, 100, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			s.put(t, object("running", released)) // so that the other waits
			s.put(t, object("a", test.job))
			for _, step := range test.steps {
				if step != nil {
					step(t, s)
				}
				s.carryOut(t, s.plan(patient, now, nil))
			}
			p := s.plan(patient, now, nil)
			assert.Empty(t, p.describe)
			u := s.units["team/a"]
			assert.Equal(t, test.priority, priority(u.Spec))
			assert.Equal(t, test.job != nil, u.Spec.PriorityClassName == "high")
			if test.message != "" {
				require.Len(t, p.phases, 1)
				assert.Equal(t, test.message, p.phases[0].status.Message)
				assert.Equal(t, contract.UnitEnqueued, p.phases[0].status.Phase)
			}
		})
	}
}
