package acctest

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Jobs lists the training jobs of a namespace, "" for all, of every framework that the cluster serves. What operators make of
// them has owners, and is none of them.
func Jobs(t testing.TB, client *kube.Client, namespace string) (all []unstructured.Unstructured) {
	t.Helper()
	for _, framework := range job.Frameworks() {
		items, err := client.List(t.Context(), framework.GVK(), namespace, "")
		if errors.Is(err, kube.ErrNotServed) {
			continue
		}
		require.NoError(t, err)
		all = append(all, items...)
	}
	return slices.DeleteFunc(all, func(obj unstructured.Unstructured) bool { return len(obj.GetOwnerReferences()) > 0 })
}
