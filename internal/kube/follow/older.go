package follow

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Older reports whether an object is as a known one was once: who takes in what the API server answers to its own writes knows that
// before a watch shows it. Another object of the name is never older, nor is one whose version cannot be compared.
func Older(object, known metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), known.GetResourceVersion())
	return err == nil && order < 0 && object.GetUID() == known.GetUID()
}
