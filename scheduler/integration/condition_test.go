package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Each writer of a PodGroup's conditions has seen the object before the others wrote.
func TestConditionsOfSeveralWriters(t *testing.T) {
	s := newTestCluster(t)
	s.createPodGroup("job", 2)
	groups := cluster.client.Dynamic.Resource(podGroups).Namespace(s.namespace)
	seen, err := groups.Get(t.Context(), "job", metav1.GetOptions{})
	require.NoError(t, err)
	write := func(owner, conditionType string, status metav1.ConditionStatus, text string) {
		written, err := condition.Apply(t.Context(), cluster.client.Dynamic, contract.PodGroupResource, owner, seen, metav1.Condition{
			Type: conditionType, Status: status, Reason: "Test", Message: text,
		})
		require.NoError(t, err)
		assert.True(t, written)
	}
	write("one", "Scheduled", metav1.ConditionFalse, "waits")
	write("two", contract.DegradedCondition, metav1.ConditionTrue, "lost a node")
	write("one", "Scheduled", metav1.ConditionTrue, "runs")

	now, err := groups.Get(t.Context(), "job", metav1.GetOptions{})
	require.NoError(t, err)
	for conditionType, text := range map[string]string{"Scheduled": "runs", contract.DegradedCondition: "lost a node"} {
		have, err := condition.Find(now, conditionType)
		require.NoError(t, err)
		require.NotNil(t, have, conditionType)
		assert.Equal(t, text, have.Message)
	}

	require.NoError(t, groups.Delete(t.Context(), "job", metav1.DeleteOptions{}))
	write("one", "Scheduled", metav1.ConditionFalse, "too late")
}
