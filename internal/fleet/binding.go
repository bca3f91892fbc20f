package fleet

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// BindingName is the name of the binding that Karmada makes of an object.
// https://github.com/karmada-io/karmada/blob/v1.17.1/pkg/util/names/names.go, GenerateBindingName
func BindingName(kind, name string) string { return strings.ToLower(name + "-" + kind) }

// JobOf is the name of the job that a unit of a queue is for: the queue of a hub refers to its binding.
func JobOf(consumer corev1.ObjectReference) string {
	if at := strings.LastIndex(consumer.Name, "-"); consumer.Kind == contract.ResourceBindingKind && at >= 0 {
		return consumer.Name[:at] // kinds have no dash
	}
	return consumer.Name
}
