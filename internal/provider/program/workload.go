package program

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func workloadKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
}

// Image is the image of a workload's container.
func Image(workload *unstructured.Unstructured) string {
	image, _ := container(workload)["image"].(string)
	return image
}

// Flag is the value of an argument "--name=value" of a workload's container, "" without it.
func Flag(workload *unstructured.Unstructured, name string) string {
	args, _ := container(workload)["args"].([]any)
	for _, arg := range args {
		text, _ := arg.(string)
		if value, ok := strings.CutPrefix(text, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// Switch is whether a workload's container has an argument "--name".
func Switch(workload *unstructured.Unstructured, name string) bool {
	args, _ := container(workload)["args"].([]any)
	return slices.Contains(args, any("--"+name))
}

func container(workload *unstructured.Unstructured) map[string]any {
	containers, _, _ := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return nil
	}
	c, _ := containers[0].(map[string]any)
	return c
}
