package kubetest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// leaves maps the path of each field that is not a map to its value, except what
// identifies the object.
func leaves(data map[string]any) map[string]any {
	found := map[string]any{}
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for name, value := range m {
			path := prefix + "." + escape(name)
			if sub, ok := value.(map[string]any); ok && len(sub) > 0 {
				walk(path, sub)
				continue
			}
			switch path {
			case ".apiVersion", ".kind", ".metadata.name", ".metadata.namespace", ".metadata.uid", ".metadata.resourceVersion":
			default:
				found[path] = value
			}
		}
	}
	walk("", data)
	return found
}

// unset removes the field at a path of [leaves].
func unset(data map[string]any, path string) {
	names := strings.Split(strings.TrimPrefix(path, "."), ".")
	for _, name := range names[:len(names)-1] {
		sub, ok := data[unescape(name)].(map[string]any)
		if !ok {
			return
		}
		data = sub
	}
	delete(data, unescape(names[len(names)-1]))
}

// merge puts the patch's leaves into data.
func merge(data, patch map[string]any) {
	for name, value := range patch {
		sub, ok := value.(map[string]any)
		if !ok {
			data[name] = value
			continue
		}
		into, ok := data[name].(map[string]any)
		if !ok {
			into = map[string]any{}
			data[name] = into
		}
		merge(into, sub)
	}
}

// keepConditions adds to a patch that has conditions those of data of other types, in the order that
// data has them in: schemas make them a map by type.
func keepConditions(data, patch map[string]any) {
	sent, found, _ := unstructured.NestedSlice(patch, "status", "conditions")
	if !found {
		return
	}
	typeOf := func(condition any) any {
		fields, _ := condition.(map[string]any)
		return fields["type"]
	}
	next, _, _ := unstructured.NestedSlice(data, "status", "conditions")
	for _, condition := range sent {
		same := func(c any) bool { return typeOf(c) == typeOf(condition) }
		if i := slices.IndexFunc(next, same); i >= 0 {
			next[i] = condition
		} else {
			next = append(next, condition)
		}
	}
	_ = unstructured.SetNestedSlice(patch, next, "status", "conditions") // that status is a map was seen above
}

// Label keys contain dots, which separate the names of a path.
func escape(name string) string   { return strings.ReplaceAll(name, ".", "\x00") }
func unescape(name string) string { return strings.ReplaceAll(name, "\x00", ".") }
