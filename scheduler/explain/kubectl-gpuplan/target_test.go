package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// All programs write a gang as namespace/name, which is to mean the same when it is asked about.
func TestParseTarget(t *testing.T) {
	for name, test := range map[string]struct {
		text, given string
		want        target
		refused     string
	}{
		"name":                      {text: "sweep", want: target{"default", "sweep"}},
		"namespace":                 {text: "research/sweep", want: target{"research", "sweep"}},
		"namespace twice":           {text: "research/sweep", given: "research", want: target{"research", "sweep"}},
		"another namespace":         {text: "research/sweep", given: "default", refused: "research/sweep is in namespace research, and -n says default: leave out one of them"},
		"kind":                      {text: "pod/sweep-0", want: target{"default", "sweep-0"}},
		"kind in a namespace":       {text: "job/sweep", given: "research", want: target{"research", "sweep"}},
		"kind as its object has it": {text: "PyTorchJob/sweep", want: target{"default", "sweep"}},
		"kind with group":           {text: "pytorchjobs.kubeflow.org/sweep", want: target{"default", "sweep"}},
		"kind with version":         {text: "jobs.v1.batch/sweep", want: target{"default", "sweep"}},
		"kind of another group":     {text: "jobs.batch.volcano.sh/sweep", refused: `"jobs.batch.volcano.sh" is no kind`},
		"unknown kind":              {text: "sparkapplications.sparkoperator.k8s.io/sweep", refused: "there are pod, job, pytorchjob, mpijob, jobset, trainjob and podgroup"},
		"nothing before":            {text: "/sweep", refused: `"/sweep" is none of NAME, NAMESPACE/NAME and KIND/NAME`},
		"nothing behind":            {text: "research/", refused: `"research/" is none of`},
		"nothing":                   {text: "", refused: `"" is none of`},
		"three parts":               {text: "research/pod/sweep", refused: `"research/pod/sweep" is none of`},
	} {
		t.Run(name, func(t *testing.T) {
			current := "default"
			if test.given != "" {
				current = test.given
			}
			got, err := parseTarget(test.text, test.given, current)
			if test.refused != "" {
				assert.ErrorContains(t, err, test.refused)
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

// twoSweeps is a cluster with a pod sweep in the namespaces default and research.
func twoSweeps(t *testing.T) *clusterstate.Snapshot {
	t.Helper()
	cache := clustercache.New()
	for _, namespace := range []string{"default", "research"} {
		cache.SetPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sweep", UID: types.UID(namespace)},
			Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("1")}},
			}}},
		})
	}
	return cache.Snapshot()
}

// The answer is about the job of the namespace before the slash, and of no other.
func TestAnswersForANamespaceBeforeTheName(t *testing.T) {
	here := &seen{namespace: "default", clusters: []cluster{{snapshot: twoSweeps(t)}}}
	for text, want := range map[string]string{"sweep": "Pod default/sweep", "pod/sweep": "Pod default/sweep", "research/sweep": "Pod research/sweep"} {
		var out strings.Builder
		a := asker{out: &out}
		require.NoError(t, a.fits(here, []string{text}))
		assert.Contains(t, out.String(), want, text)
	}
	a := asker{}
	assert.EqualError(t, a.fits(here, []string{"vision/sweep"}),
		`namespace vision has no gang, job or pod "sweep" that asks for GPUs; see kubectl gpuplan gangs -A`)
}

// In a fleet each answer says which cluster it is about, and a question that is about one cluster wants to know which.
func TestAnswersOfAFleet(t *testing.T) {
	here := &seen{namespace: "default", fleet: true, clusters: []cluster{{name: "member-1", snapshot: twoSweeps(t)}, {name: "member-2", snapshot: twoSweeps(t)}}}
	var out strings.Builder
	a := asker{out: &out, all: true, output: "text"}
	require.NoError(t, a.gangs(here, nil))
	assert.Regexp(t, `(?s)^GANG +CLUSTER +STATE .*\ndefault/sweep +member-1 +Waiting .*\ndefault/sweep +member-2 +Waiting .*\nresearch/sweep +member-1 .*\nresearch/sweep +member-2 `, out.String())

	out.Reset()
	require.NoError(t, a.why(here, []string{"sweep"}))
	assert.Regexp(t, `(?s)cluster +member-1.*cluster +member-2`, out.String())

	out.Reset()
	a.output = "table"
	require.NoError(t, a.gpus(here, nil))
	assert.Regexp(t, `(?s)^Cluster member-1\n.*\nCluster member-2\n`, out.String())
	out.Reset()
	a.output = "json"
	require.NoError(t, a.gpus(here, nil))
	assert.Regexp(t, `(?s)^{\s+"member-1": {.*"member-2": {`, out.String())

	a.output = "svg"
	const which = "this is about one cluster, and the kubeconfig leads to the hub of a fleet: say which with --member"
	assert.EqualError(t, a.gpus(here, nil), which)
	assert.EqualError(t, a.without(here, []string{"n"}), which)
}

// A fleet of which no cluster could be read is not one in which nothing runs.
func TestAFleetThatCouldNotBeRead(t *testing.T) {
	here := &seen{namespace: "default", fleet: true, unread: []string{"cluster member-1 is not in the answer: it is away"}}
	for _, output := range []string{"text", "json"} {
		a := asker{output: output}
		require.EqualError(t, a.gangs(here, nil), "the fleet has no cluster that could be read")
		require.EqualError(t, a.gpus(here, nil), "the fleet has no cluster that could be read")
		require.EqualError(t, a.why(here, []string{"sweep"}),
			`what could be read of the fleet has in namespace default no gang, job or pod "sweep" that asks for GPUs; see kubectl gpuplan gangs -A`)
	}
	assert.Equal(t, "the kubeconfig does not lead to the hub of a fleet", choices(nil, false))
	assert.Equal(t, "the fleet has no clusters", choices(nil, true))
}
