package gangreservation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// What comes of a job after it has left does not start, for anybody's room, until it comes back.
func TestFence(t *testing.T) {
	w := newWorld(t)
	w.ask("r", "one", 1, jobOf("gang", 8))
	require.Equal(t, contract.PhaseReserved, w.decide("r").Phase)
	w.fence("r", "one", 2, jobOf("gang", 8))
	fenced := w.decide("r")
	require.Equal(t, contract.PhaseFenced, fenced.Phase)
	require.NotNil(t, fenced.Expires)
	assert.Empty(t, fenced.Gangs)
	assert.False(t, w.cache.Granted("ns/gang"), "its place is free")

	pods := w.arrive("gang")
	assert.Zero(t, w.place("gang"))
	assert.Contains(t, w.cache.GangStatus("ns/gang", pods[0].UID).MissingText, "the job has left this cluster: its fleet lets nothing of it start here, by GangReservation ns/r")
	assert.Empty(t, w.cache.Pending(), "nobody waits behind it")
	for _, pod := range pods {
		w.cache.RemovePod(pod.UID)
	}
	w.ask("other", "two", 1, jobOf("other", 8))
	require.Equal(t, contract.PhaseReserved, w.decide("other").Phase)
	w.ask("r", "one", 3, jobOf("gang", 8))
	assert.Equal(t, contract.PhaseRefused, w.decide("r").Phase, "it may come back, where there is room")
	w.arrive("gang")
	assert.Empty(t, w.cache.GangStatus("ns/gang", pods[0].UID).MissingText)
}

// A fence is told of when nothing of the job has a node, nor is about to get one.
func TestFenceOfAJobThatRuns(t *testing.T) {
	w := newWorld(t)
	pods := w.arrive("gang")
	require.Equal(t, 1, w.place("gang"))
	w.fence("r", "one", 1, jobOf("gang", 8))
	assert.Empty(t, w.decide("r").Phase, "it is being bound")
	bound := pods[0].DeepCopy()
	bound.Spec.NodeName = "n"
	w.cache.SetPod(bound)
	assert.Empty(t, w.decide("r").Phase, "it runs")
	now := metav1.Now()
	leaving := bound.DeepCopy()
	leaving.DeletionTimestamp = &now
	w.cache.SetPod(leaving)
	assert.Empty(t, w.decide("r").Phase, "it has not ended")
	w.cache.RemovePod(bound.UID)
	assert.Equal(t, contract.PhaseFenced, w.decide("r").Phase)
}

// A fence stands until its time is over, or its object goes; another one of the same gang keeps its own.
func TestFenceEnds(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "r"}
	for name, end := range map[string]func(w *world){
		"expired": func(w *world) {
			w.now = func() time.Time { return time.Now().Add(601 * time.Second) }
			assert.Equal(w, contract.PhaseExpired, w.decide("r").Phase)
			w.now = func() time.Time { return time.Now().Add(601*time.Second + keptFor) }
			require.NoError(w, w.reconcile(w.Context(), key))
			_, err := w.client().Resource(Resource).Namespace("ns").Get(w.Context(), "r", metav1.GetOptions{})
			assert.Error(w, err, "who asks no more is forgotten")
		},
		"deleted": func(w *world) {
			object, err := w.client().Resource(Resource).Namespace("ns").Get(w.Context(), "r", metav1.GetOptions{})
			require.NoError(w, err)
			w.remove(object)
			require.NoError(w, w.reconcile(w.Context(), key))
		},
		"of another job": func(w *world) {
			w.fence("r", "one", 2, jobOf("other", 8))
			assert.Equal(w, contract.PhaseFenced, w.decide("r").Phase)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fence("r", "one", 1, jobOf("gang", 8))
			require.Equal(t, contract.PhaseFenced, w.decide("r").Phase)
			w.arrive("gang")
			require.Zero(t, w.place("gang"))
			w.fence("second", "two", 1, jobOf("gang", 8))
			require.Equal(t, contract.PhaseFenced, w.decide("second").Phase)
			end(w)
			assert.Zero(t, w.place("gang"))
			w.open(types.NamespacedName{Namespace: "ns", Name: "second"})
			assert.Equal(t, 1, w.place("gang"))
		})
	}
}

// No place is kept for a gang that another reservation fences, as that of another fleet's job of the same name: it could not start there.
func TestReservationOfAGangThatIsFenced(t *testing.T) {
	w := newWorld(t)
	w.fence("r", "one", 1, jobOf("gang", 8))
	require.Equal(t, contract.PhaseFenced, w.decide("r").Phase)
	w.ask("other", "two", 1, jobOf("gang", 8))
	asked := w.decide("other")
	assert.Equal(t, contract.PhaseRefused, asked.Phase)
	assert.Contains(t, asked.Message, "gang ns/gang: reservation ns/r lets nothing of that name start")
	w.fence("r", "one", 2, jobOf("another", 8))
	require.Equal(t, contract.PhaseFenced, w.decide("r").Phase)
	w.ask("other", "two", 2, jobOf("gang", 8))
	assert.Equal(t, contract.PhaseReserved, w.decide("other").Phase)
}

// A scheduler that starts fences before it places anything, whether a predecessor has answered or not.
func TestFenceOfAPredecessor(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "asked for": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fence("r", "one", 1, jobOf("gang", 8))
			if answered {
				require.Equal(t, contract.PhaseFenced, w.decide("r").Phase)
			}
			next := newWorld(t)
			next.Controller.client = w.client()
			next.synced = func() bool { return true }
			next.arrive("gang")
			require.NoError(t, next.Restore(t.Context()))
			assert.Zero(t, next.place("gang"))
			assert.Equal(t, contract.PhaseFenced, next.decide("r").Phase)
			assert.Zero(t, next.place("gang"))
		})
	}
}

// What cannot be read fences nothing.
func TestFenceOfWhatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	job := jobOf("gang", 8)
	job["kind"] = "Unknown"
	w.fence("r", "one", 1, job)
	status := w.decide("r")
	assert.Equal(t, contract.PhaseRefused, status.Phase)
	assert.Contains(t, status.Message, "what the job runs cannot be read")
	assert.Empty(t, w.fenced)
}
