package kube

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Field is the path of a field within maps: "spec", "replicas".
type Field []string

// String is the field as a [Conflict] has it.
func (f Field) String() string { return "." + strings.Join(f, ".") }

// Managers are who owns a field of an object, as the API server has written it down.
func Managers(obj *unstructured.Unstructured, field Field) (managers []string) {
	path := make([]string, len(field))
	for i, name := range field {
		path[i] = "f:" + name
	}
	for _, entry := range obj.GetManagedFields() {
		owned := map[string]any{}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(owned, path...); found {
			managers = append(managers, entry.Manager)
		}
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}
