package localtest

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Install gives the platform the custom resources and namespaces of manifests, without
// the programs that the manifests run, and returns a client.
func (p *Platform) Install(t testing.TB, manifests []*unstructured.Unstructured) (*kube.Client, error) {
	t.Helper()
	config := p.Config(t)
	config.QPS = -1 // the tests' own calls do not wait for each other
	client, err := kube.New(config)
	if err != nil {
		return nil, err
	}
	objects := slices.DeleteFunc(slices.Clone(manifests), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "CustomResourceDefinition" && o.GetKind() != "Namespace"
	})
	return client, client.ApplyAll(t.Context(), objects, nil)
}
