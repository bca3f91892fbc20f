package acctest

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Saying matches an error of terraform that contains these words in this order, over
// the line breaks and frames that terraform puts in.
func Saying(words string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)` + wrapped(words))
}

// SayingAt matches an error that shows the line of an attribute and then says these words.
func SayingAt(attribute, words string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)\d+:\s+` + regexp.QuoteMeta(attribute) + `\s.*` + wrapped(words))
}

func wrapped(words string) string {
	var pattern []string
	for _, w := range strings.Fields(words) {
		pattern = append(pattern, regexp.QuoteMeta(w))
	}
	return strings.Join(pattern, `[\s│]+`)
}

// GangPod is a running pod of a gang that holds GPUs of a node, in mode topology.
func GangPod(gang, name, node string, gpus ...int) *corev1.Pod {
	record, err := contract.Allocation{Gang: "default/" + gang, Node: node, GPUs: gpus, Visible: gpus}.Annotations()
	if err != nil {
		panic(err) // a record of integers always encodes
	}
	request := corev1.ResourceList{contract.ResourceTopologyGPU: *resource.NewQuantity(int64(len(gpus)), resource.DecimalSI)}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Annotations: record,
			Labels: map[string]string{contract.TopologyGroupLabel: gang, contract.TopologyReplicasLabel: "1"},
		},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: request, Limits: request}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// Forgotten is a configuration that takes a resource out of the state and leaves its object
// alone: what remains is what an apply leaves that is killed before it can save the state.
func Forgotten(address string) string {
	return "removed {\n  from = " + address + "\n  lifecycle { destroy = false }\n}\n"
}

// Owner is a provider block with that owner.
func Owner(stamp string) string { return "provider \"gpuplan\" {\n  owner = \"" + stamp + "\"\n}\n" }

// Put stores an object in the API server.
func (c *Cloud) Put(t testing.TB, object runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	c.API.Put(&unstructured.Unstructured{Object: content})
}

// Publish stores the hardware of a node as its node agent publishes it.
func (c *Cloud) Publish(t testing.TB, node string, status contract.GPUNodeStatus) {
	t.Helper()
	c.API.Put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gpunodes." + contract.GPUNodeGroup},
		"spec": map[string]any{
			"group": contract.GPUNodeGroup, "scope": "Cluster", "names": map[string]any{"kind": contract.GPUNodeKind, "plural": "gpunodes"},
			"versions": []any{map[string]any{"name": contract.GPUNodeVersion, "served": true}},
		},
	}})
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&contract.GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: contract.GPUNodeGroup + "/" + contract.GPUNodeVersion, Kind: contract.GPUNodeKind},
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status:     status,
	})
	require.NoError(t, err)
	c.API.Put(&unstructured.Unstructured{Object: content})
}

// NodeNames lists the nodes of the API server.
func (c *Cloud) NodeNames(t testing.TB) []string {
	t.Helper()
	list, err := c.Kube.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names
}

// StateMissing checks that a text is nowhere in the state.
func StateMissing(text string) func(*terraform.State) error {
	return func(state *terraform.State) error {
		if strings.Contains(state.String(), text) {
			return errors.New("the state contains what must not be in it")
		}
		return nil
	}
}
