package fleet

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Managed reports whether an object of a member cluster is one that the Karmada of some hub has brought there, and goes on to look after.
func Managed(there *unstructured.Unstructured) bool {
	return there.GetLabels()[contract.KarmadaManagedLabel] == "true"
}

// Brought reports whether an object of a member cluster was brought there from the hub's object of that UID, "" for any: not from an
// earlier one of its name, nor from one of another hub that has the cluster as a member, too.
func Brought(there *unstructured.Unstructured, from types.UID) bool {
	of := there.GetAnnotations()[contract.KarmadaTemplateAnnotation]
	return Managed(there) && (of == "" || from == "" || of == string(from))
}
