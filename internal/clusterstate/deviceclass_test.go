package clusterstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Pods ask for devices of a class by the name that it gives, and by one that each class has; of two classes of one name the
// other is left when one goes.
func TestDeviceClasses(t *testing.T) {
	s := newState(t, "a")
	class := func(name, extended string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &extended}}
	}
	delegated := func() (names []string) {
		for _, name := range []string{"example.com/foo", "example.com/bar", "deviceclass.resource.kubernetes.io/one", "deviceclass.resource.kubernetes.io/two"} {
			gang := placement.Gang{Roles: []placement.Role{{Request: placement.Request{Resources: placement.Resources{Extended: map[string]int64{name: 1}}}}}}
			if s.View.Delegates(&gang) {
				names = append(names, name)
			}
		}
		return names
	}
	assert.Empty(t, delegated())
	assert.Equal(t, Change{Freed: true}, s.SetDeviceClass(class("one", "example.com/foo")))
	assert.Equal(t, Change{}, s.SetDeviceClass(class("one", "example.com/foo")), "it is as it was")
	assert.Equal(t, []string{"example.com/foo", "deviceclass.resource.kubernetes.io/one"}, delegated())
	s.SetDeviceClass(class("two", "example.com/foo"))
	s.SetDeviceClass(class("one", "example.com/bar"))
	assert.Equal(t, []string{"example.com/foo", "example.com/bar", "deviceclass.resource.kubernetes.io/one", "deviceclass.resource.kubernetes.io/two"}, delegated())
	assert.Equal(t, Change{Freed: true}, s.RemoveDeviceClass("two"))
	assert.Equal(t, Change{}, s.RemoveDeviceClass("two"))
	assert.Equal(t, []string{"example.com/bar", "deviceclass.resource.kubernetes.io/one"}, delegated())
	s.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
	assert.Equal(t, []string{"deviceclass.resource.kubernetes.io/one"}, delegated())
}
