package fleet

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

// bringFrom makes a job of the name in the member as the Karmada of some hub does it, from an object of that UID.
func (w *memberWorld) bringFrom(t *testing.T, uid string) {
	t.Helper()
	there := w.job.DeepCopy()
	there.SetLabels(map[string]string{contract.KarmadaManagedLabel: "true"})
	there.SetAnnotations(map[string]string{contract.KarmadaTemplateAnnotation: uid, contract.KarmadaWorkNamespaceAnnotation: "karmada-es-m", contract.KarmadaWorkNameAnnotation: "a-work"})
	_, err := w.jobs().Create(t.Context(), there, metav1.CreateOptions{})
	require.NoError(t, err)
}

// bound has the hub have the binding of the job, from the object of the test, and a Work of that name from an object of that UID, "" for none.
func (w *memberWorld) bound(t *testing.T, work string) {
	t.Helper()
	b := w.bindings["default/a"].object.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(b.Object, string(w.job.GetUID()), "spec", "resource", "uid"))
	w.setBinding(t.Context(), b)
	if work == "" {
		return
	}
	_, err := w.controller.hub.Dynamic.Resource(works).Namespace("karmada-es-m").Create(t.Context(), object(t, `{apiVersion: work.karmada.io/v1alpha1, kind: Work, metadata: {name: a-work, namespace: karmada-es-m},
  spec: {workload: {manifests: [{metadata: {annotations: {resourcetemplate.karmada.io/uid: `+work+`}}}]}}}`), metav1.CreateOptions{})
	require.NoError(t, err)
}

// A job goes to no cluster that has another one of its name, whose ever that is: Karmada would change that into this one. Only an earlier
// one of the same fleet, which is about to go, has it wait elsewhere, too.
func TestAnotherJobOfTheName(t *testing.T) {
	for name, test := range map[string]struct {
		bring func(*testing.T, *memberWorld)
		work  string
		// refuses is what the cluster has against the job, "" for nothing; waits means that the job waits for all other clusters as well.
		refuses string
		waits   bool
	}{
		"none":                     {bring: func(*testing.T, *memberWorld) {}},
		"it itself":                {bring: func(t *testing.T, w *memberWorld) { w.bringFrom(t, "first") }, waits: true},
		"of someone":               {bring: func(t *testing.T, w *memberWorld) { w.bring(t, "") }, refuses: "it has a job of that name that is not of the fleet"},
		"of another fleet":         {bring: func(t *testing.T, w *memberWorld) { w.bringFrom(t, "elsewhere") }, refuses: "it has a job of that name that another fleet has sent there"},
		"of another fleet, beside": {bring: func(t *testing.T, w *memberWorld) { w.bringFrom(t, "elsewhere") }, work: "first", refuses: "another fleet has sent there"},
		"an earlier one":           {bring: func(t *testing.T, w *memberWorld) { w.bringFrom(t, "zeroth") }, work: "zeroth", refuses: "an earlier job of its name is there still", waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMemberWorld(t)
			w.bound(t, test.work)
			test.bring(t, w)
			require.NoError(t, w.decide(t, w.job))
			assert.Equal(t, test.refuses == "", w.reservation(t) != nil, "nobody is asked to keep a place that it does not get")
			if test.refuses == "" {
				assert.Empty(t, w.refused("default/a", "m"))
			} else {
				assert.Contains(t, w.refused("default/a", "m"), test.refuses)
			}
			pods := gang(t, "a", 2, 1)
			for _, pod := range pods {
				pod.UID = types.UID(pod.Name)
				w.m.state.SetPod(pod)
			}
			if name == "none" {
				return
			}
			assert.Equal(t, test.waits, w.controller.leaves(t.Context(), w.bindings["default/a"], w.job, newToCome(pods)) != "")
		})
	}
}

// Two fleets that share a cluster keep their hands off each other's reservations.
func TestAReservationOfAnotherFleet(t *testing.T) {
	w := newMemberWorld(t)
	client := w.m.client.Dynamic.Resource(gangreservation.Resource).Namespace("default")
	theirs := object(t, `{apiVersion: gpu.gpuplan.dev/v1, kind: GangReservation, metadata: {name: a, namespace: default, labels: {gpuplan.dev/fleet: another}}, spec: {epoch: 1, job: {}}}`)
	theirs.SetAPIVersion(gangreservation.Resource.GroupVersion().String())
	_, err := client.Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	untouched := func() {
		t.Helper()
		there, err := client.Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		assert.JSONEq(t, text(t, theirs.Object), text(t, there.Object))
	}

	require.NoError(t, w.decide(t, w.job))
	assert.Empty(t, w.sentTo(t))
	assert.Contains(t, w.refused("default/a", "m"), "GangReservation default/a is of another fleet, which has a job of that name: give one of them another name")
	untouched()

	// It was asked for a place, does not answer, and what is there by now is not what was asked for.
	require.NoError(t, w.takeBack(t.Context(), "default/a", w.m, nil))
	untouched()

	// Nor is what is there by now, under the same number, what is shown of it still.
	w.m.setReservation(object(t, strings.Replace(text(t, theirs.Object), "another", "hub", 1)))
	for _, fenced := range []bool{false, true} {
		_, _, err = w.m.reserve(t.Context(), "default/a", w.id, w.job, fenced)
		require.Error(t, err)
		untouched()
	}
}
