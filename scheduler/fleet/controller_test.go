package fleet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// A cluster takes no new job as long as its picture lacks the place of one that was sent there before.
func TestPlacesThatAreNotKnownYet(t *testing.T) {
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	c := newController(t.Context(), client)
	for name, text := range map[string]string{
		"sent":    `{metadata: {name: sent, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}, clusters: [{name: a}]}}`,
		"known":   `{metadata: {name: known, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}, clusters: [{name: b}]}}`,
		"waiting": `{metadata: {name: waiting, namespace: default}, spec: {schedulerName: gpuplan-fleet-scheduler, placement: {}}}`,
	} {
		c.setBinding(t.Context(), object(t, text))
		c.sent["default/"+name] = name == "known"
	}
	assert.Equal(t, map[string]bool{"a": true}, c.incomplete())
	c.sent["default/sent"] = true
	assert.Empty(t, c.incomplete())

	m := newMember(t)
	m.end = func() {}
	c.members["b"] = m
	c.forget("b", m)
	assert.Equal(t, map[string]bool{"b": true}, c.incomplete(), "the next picture of the cluster lacks it")
	c.removeBinding(object(t, `{metadata: {name: known, namespace: default}}`))
	assert.Empty(t, c.incomplete())
}
