package deploy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func objects(t *testing.T, o Options) []*unstructured.Unstructured {
	t.Helper()
	objs, err := Objects(o)
	require.NoError(t, err)
	return objs
}

// typed decodes all objects of a kind strictly: an unknown field fails.
func typed[T any](t *testing.T, objs []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var all []T
	for _, obj := range objs {
		if obj.GetKind() != kind {
			continue
		}
		var out T
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, &out, true), obj.GetName())
		all = append(all, out)
	}
	require.NotEmpty(t, all, kind)
	return all
}

func TestObjects(t *testing.T) {
	objs := objects(t, Options{Image: "example.com/scheduler:1"})
	for _, obj := range objs {
		assert.Equal(t, contract.ManagedByValue, obj.GetLabels()[contract.ManagedByLabel], obj.GetName())
		assert.Equal(t, contract.PartOfValue, obj.GetLabels()[contract.PartOfLabel], obj.GetName())
	}
	deployment := typed[appsv1.Deployment](t, objs, "Deployment")[0]
	assert.Equal(t, contract.SchedulerName, deployment.Name)
	assert.Equal(t, contract.SystemNamespace, deployment.Namespace)
	assert.Equal(t, int32(1), *deployment.Spec.Replicas)
	template := deployment.Spec.Template
	assert.Equal(t, contract.PartOfValue, template.Labels[contract.PartOfLabel])
	assert.Subset(t, template.Labels, deployment.Spec.Selector.MatchLabels)
	container := template.Spec.Containers[0]
	assert.Equal(t, contract.SchedulerName, container.Name)
	assert.Equal(t, "example.com/scheduler:1", container.Image)
	assert.Contains(t, container.Args, "--config=/etc/gpuplan/scheduler.yaml")
	assert.Contains(t, container.Args, "--secure-port=0")
	assert.Nil(t, container.LivenessProbe)
}

func TestOptions(t *testing.T) {
	deployment := typed[appsv1.Deployment](t, objects(t, Options{Image: "a", Replicas: 2, LogLevel: 4, Port: 10259}), "Deployment")[0]
	assert.Equal(t, int32(2), *deployment.Spec.Replicas)
	container := deployment.Spec.Template.Spec.Containers[0]
	assert.Contains(t, container.Args, "--v=4")
	assert.Contains(t, container.Args, "--secure-port=10259")
	require.NotNil(t, container.LivenessProbe)
	assert.Equal(t, container.Ports[0].Name, container.LivenessProbe.HTTPGet.Port.String())

	for name, o := range map[string]Options{
		"image":    {},
		"replicas": {Image: "a", Replicas: -1},
		"port":     {Image: "a", Port: -1},
	} {
		_, err := Objects(o)
		assert.ErrorContains(t, err, name)
	}
}

// The pod obeys the restricted pod security standard.
func TestPodIsRestricted(t *testing.T) {
	spec := typed[appsv1.Deployment](t, objects(t, Options{Image: "a"}), "Deployment")[0].Spec.Template.Spec
	assert.True(t, *spec.SecurityContext.RunAsNonRoot)
	assert.Equal(t, "RuntimeDefault", string(spec.SecurityContext.SeccompProfile.Type))
	assert.False(t, spec.HostNetwork)
	for _, volume := range spec.Volumes {
		assert.NotNil(t, volume.ConfigMap, volume.Name)
	}
	security := spec.Containers[0].SecurityContext
	assert.False(t, *security.AllowPrivilegeEscalation)
	assert.True(t, *security.ReadOnlyRootFilesystem)
	assert.Equal(t, "ALL", string(security.Capabilities.Drop[0]))
}

func TestRightsAreNarrow(t *testing.T) {
	objs := objects(t, Options{Image: "a"})
	var rules []rbacv1.PolicyRule
	for _, role := range typed[rbacv1.ClusterRole](t, objs, "ClusterRole") {
		rules = append(rules, role.Rules...)
	}
	for _, role := range typed[rbacv1.Role](t, objs, "Role") {
		rules = append(rules, role.Rules...)
	}
	for _, rule := range rules {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			assert.NotContains(t, list, "*")
		}
		assert.NotContains(t, rule.Resources, "secrets")
	}
}

func TestCRDsMatchTheContract(t *testing.T) {
	crds := typed[apiextensionsv1.CustomResourceDefinition](t, objects(t, Options{Image: "a"}), "CustomResourceDefinition")
	for _, want := range []struct{ group, version, kind, resource string }{
		{contract.QuotaTreeGroup, contract.QuotaTreeVersion, contract.QuotaTreeKind, contract.QuotaTreeResource},
		{contract.PodGroupGroup, contract.PodGroupVersion, contract.PodGroupKind, contract.PodGroupResource},
	} {
		i := slices.IndexFunc(crds, func(c apiextensionsv1.CustomResourceDefinition) bool { return c.Name == want.resource+"."+want.group })
		require.GreaterOrEqual(t, i, 0, want.kind)
		assert.Equal(t, want.kind, crds[i].Spec.Names.Kind)
		assert.Equal(t, want.version, crds[i].Spec.Versions[0].Name)
		assert.NotNil(t, crds[i].Spec.Versions[0].Subresources.Status)
	}
}

// The configuration's hash makes a change of it roll the pods.
func TestConfigHash(t *testing.T) {
	objs := objects(t, Options{Image: "a"})
	deployment := typed[appsv1.Deployment](t, objs, "Deployment")[0]
	assert.NotEmpty(t, deployment.Spec.Template.Annotations[contract.ConfigHashAnnotation])
}
