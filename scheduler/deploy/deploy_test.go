package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	assert.Equal(t, int32(2), *deployment.Spec.Replicas)
	template := deployment.Spec.Template
	assert.Equal(t, contract.PartOfValue, template.Labels[contract.PartOfLabel])
	assert.Subset(t, template.Labels, deployment.Spec.Selector.MatchLabels)
	container := template.Spec.Containers[0]
	assert.Equal(t, contract.SchedulerName, container.Name)
	assert.Equal(t, "example.com/scheduler:1", container.Image)
	assert.Contains(t, container.Args, "--config=/etc/gpuplan/scheduler.yaml")
	assert.Contains(t, container.Args, "--secure-port=0")
	assert.Equal(t, map[string]string{
		contract.RoutePodsAnnotation: "false", contract.ReserveAfterAnnotation: "5m0s", contract.StaleAfterAnnotation: "0s",
	}, deployment.Annotations)
	assert.Nil(t, container.LivenessProbe)
}

func TestOptions(t *testing.T) {
	deployment := typed[appsv1.Deployment](t, objects(t, Options{Image: "a", Replicas: 3, LogLevel: 4, Port: 10259, UnreachableGrace: 90 * time.Second}), "Deployment")[0]
	assert.Equal(t, int32(3), *deployment.Spec.Replicas)
	container := deployment.Spec.Template.Spec.Containers[0]
	assert.Contains(t, container.Args, "--v=4")
	assert.Contains(t, container.Args, "--unreachable-grace=1m30s")
	assert.Contains(t, container.Args, "--secure-port=10259")
	require.NotNil(t, container.LivenessProbe)
	assert.Equal(t, container.Ports[0].Name, container.LivenessProbe.HTTPGet.Port.String())

	for wait, o := range map[string]Options{
		"reserveAfter: 5m0s\n|staleAfter: 0s\n":     {Image: "a"},
		"reserveAfter: 10m0s\n|staleAfter: 30m0s\n": {Image: "a", ReserveAfter: 10 * time.Minute, StaleAfter: 30 * time.Minute},
	} {
		config := typed[corev1.ConfigMap](t, objects(t, o), "ConfigMap")[0].Data["scheduler.yaml"]
		for line := range strings.SplitSeq(wait, "|") {
			assert.Contains(t, config, line)
		}
	}

	for name, o := range map[string]Options{
		"image":    {},
		"replicas": {Image: "a", Replicas: -1},
		"port":     {Image: "a", Port: -1},
	} {
		_, err := Objects(o)
		assert.ErrorContains(t, err, name)
	}
}

// What a user writes is text, whatever it looks like.
func TestImageIsText(t *testing.T) {
	const image = `a: "b" # {{ c }}`
	for _, deployment := range typed[appsv1.Deployment](t, objects(t, Options{Image: image}), "Deployment") {
		assert.Equal(t, image, deployment.Spec.Template.Spec.Containers[0].Image)
	}
}

// The pod obeys the restricted pod security standard.
func TestPodIsRestricted(t *testing.T) {
	for _, deployment := range typed[appsv1.Deployment](t, objects(t, Options{Image: "a"}), "Deployment") {
		requireRestricted(t, deployment.Spec.Template.Spec)
	}
}

func requireRestricted(t *testing.T, spec corev1.PodSpec) {
	t.Helper()
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

// granted lists what the scheduler may do beyond a kube-scheduler of the cluster's own
// version, and all that the queue controller may do. Whoever adds to the manifests adds here, and says in the manifests what for.
var granted = map[string][]string{
	"ClusterRole gpuplan-scheduler": {
		"gpuplan.dev/gpunodes: get list watch",
		"gpuplan.dev/gangreservations: get list watch delete",
		"gpuplan.dev/gangreservations/status: patch",
		"scheduling.sigs.k8s.io/elasticquotatrees: get list watch",
		"scheduling.x-k8s.io/podgroups: get list watch",
		"scheduling.x-k8s.io/podgroups/status: patch",
		"batch/jobs: list watch",
		"/events: list",
		"scheduling.x-k8s.io/queueunits: list",
		"scheduling.x-k8s.io/queues: list",
		"kubeflow.org/pytorchjobs: list",
		"kubeflow.org/mpijobs: list",
		"jobset.x-k8s.io/jobsets: list",
		"trainer.kubeflow.org/trainjobs: list",
		"apiextensions.k8s.io/customresourcedefinitions gpunodes.gpuplan.dev gangreservations.gpuplan.dev elasticquotatrees.scheduling.sigs.k8s.io podgroups.scheduling.x-k8s.io: get list watch",
	},
	"Role gpuplan-system/gpuplan-scheduler-lease": {
		"coordination.k8s.io/leases: create",
		"coordination.k8s.io/leases gpuplan-scheduler: get update",
	},
	"Role gpuplan-system/gpuplan-scheduler-workload": {
		"/configmaps: create",
		"/configmaps gpuplan-workload: list watch update",
	},
	"ClusterRole gpuplan-queue": {
		"/pods: get list watch",
		"/events: create patch",
		"scheduling.k8s.io/priorityclasses: get list watch",
		"apps/statefulsets: get list watch",
		"kubeflow.org/pytorchjobs: get list watch patch",
		"kubeflow.org/mpijobs: get list watch patch",
		"jobset.x-k8s.io/jobsets: get list watch patch",
		"trainer.kubeflow.org/trainjobs: get list watch patch",
		"batch/jobs: get list watch patch",
		"scheduling.x-k8s.io/queueunits: get list watch create update delete",
		"scheduling.x-k8s.io/queueunits/status: update",
		"apiextensions.k8s.io/customresourcedefinitions elasticquotatrees.scheduling.sigs.k8s.io queues.scheduling.x-k8s.io queueunits.scheduling.x-k8s.io pytorchjobs.kubeflow.org mpijobs.kubeflow.org jobsets.jobset.x-k8s.io trainjobs.trainer.kubeflow.org: get list watch",
	},
	"Role kube-queue/gpuplan-queue": {
		"scheduling.x-k8s.io/queues: get list watch create delete",
		"scheduling.x-k8s.io/queues/status: update",
	},
	"Role kube-system/gpuplan-queue": {
		"scheduling.sigs.k8s.io/elasticquotatrees: get list watch",
		"scheduling.sigs.k8s.io/elasticquotatrees/status: update",
	},
	"Role gpuplan-system/gpuplan-queue": {
		"coordination.k8s.io/leases: create",
		"coordination.k8s.io/leases gpuplan-queue: get update",
		"/configmaps: create",
		"/configmaps gpuplan-queue: get update",
	},
	// Nobody is given these two; an administrator binds them to people and to Prometheus.
	"ClusterRole gpuplan-explain": {
		"/nodes: list",
		"/pods: list",
		"/persistentvolumeclaims: list",
		"/persistentvolumes: list",
		"/events: list",
		"storage.k8s.io/storageclasses: list",
		"resource.k8s.io/resourceclaims: list",
		"resource.k8s.io/deviceclasses: list",
		"policy/poddisruptionbudgets: list",
		"batch/jobs: list",
		"kubeflow.org/pytorchjobs: list",
		"kubeflow.org/mpijobs: list",
		"jobset.x-k8s.io/jobsets: list",
		"trainer.kubeflow.org/trainjobs: list",
		"gpuplan.dev/gpunodes: list",
		"gpuplan.dev/gangreservations: list",
		"scheduling.sigs.k8s.io/elasticquotatrees: list",
		"scheduling.x-k8s.io/podgroups: list",
		"scheduling.x-k8s.io/queueunits: list",
		"scheduling.x-k8s.io/queues: list",
		"/configmaps gpuplan-workload: get",
		"apps/deployments gpuplan-scheduler: get",
		"coordination.k8s.io/leases gpuplan-scheduler: get",
		"/gpuplan/*: get",
	},
	"ClusterRole gpuplan-metrics": {"/metrics: get"},
}

// bound are the cluster's own roles that the scheduler is given.
var bound = []string{
	"ClusterRoleBinding gpuplan-scheduler: ClusterRole gpuplan-scheduler",
	"ClusterRoleBinding gpuplan-scheduler-as-kube-scheduler: ClusterRole system:kube-scheduler",
	"ClusterRoleBinding gpuplan-scheduler-as-volume-scheduler: ClusterRole system:volume-scheduler",
	"RoleBinding gpuplan-system/gpuplan-scheduler-lease: Role gpuplan-scheduler-lease",
	"RoleBinding gpuplan-system/gpuplan-scheduler-workload: Role gpuplan-scheduler-workload",
	"RoleBinding kube-system/gpuplan-scheduler-authentication-reader: Role extension-apiserver-authentication-reader",
	"ClusterRoleBinding gpuplan-queue: ClusterRole gpuplan-queue",
	"RoleBinding gpuplan-system/gpuplan-queue: Role gpuplan-queue",
	"RoleBinding kube-queue/gpuplan-queue: Role gpuplan-queue",
	"RoleBinding kube-system/gpuplan-queue: Role gpuplan-queue",
}

func TestRights(t *testing.T) {
	objs := objects(t, Options{Image: "a"})
	assert.Equal(t, granted, rightsIn(t, objs))
	assert.ElementsMatch(t, bound, bindingsIn(t, objs, contract.SchedulerName, contract.QueueControllerName))
}

// grantedOnHub lists what the programs of a fleet may do on its hub. The queue there holds jobs by their bindings alone.
var grantedOnHub = map[string][]string{
	"ClusterRole gpuplan-fleet-scheduler": {
		"/namespaces kube-system: get",
		"/events: create patch",
		"cluster.karmada.io/clusters: get list watch",
		"work.karmada.io/resourcebindings: get list watch patch",
		"work.karmada.io/resourcebindings/status: patch",
		"work.karmada.io/works: get",
		"kubeflow.org/*: get",
		"jobset.x-k8s.io/jobsets: get",
		"trainer.kubeflow.org/trainjobs: get",
		"batch/jobs: get",
		"apiextensions.k8s.io/customresourcedefinitions resourcebindings.work.karmada.io: get list watch",
	},
	"Role karmada-cluster/gpuplan-fleet-scheduler": {"/secrets: get"},
	"Role gpuplan-system/gpuplan-fleet-scheduler": {
		"coordination.k8s.io/leases: create",
		"coordination.k8s.io/leases gpuplan-fleet-scheduler: get update",
	},
	"ClusterRole gpuplan-fleet-queue": {
		"/pods: get list watch",
		"/events: create patch",
		"scheduling.k8s.io/priorityclasses: get list watch",
		"apps/statefulsets: get list watch",
		"kubeflow.org/pytorchjobs: get list watch",
		"kubeflow.org/mpijobs: get list watch",
		"jobset.x-k8s.io/jobsets: get list watch",
		"trainer.kubeflow.org/trainjobs: get list watch",
		"batch/jobs: get list watch",
		"work.karmada.io/resourcebindings: get list watch patch",
		"scheduling.x-k8s.io/queueunits: get list watch create update delete",
		"scheduling.x-k8s.io/queueunits/status: update",
		"apiextensions.k8s.io/customresourcedefinitions elasticquotatrees.scheduling.sigs.k8s.io queues.scheduling.x-k8s.io queueunits.scheduling.x-k8s.io pytorchjobs.kubeflow.org mpijobs.kubeflow.org jobsets.jobset.x-k8s.io trainjobs.trainer.kubeflow.org resourcebindings.work.karmada.io: get list watch",
	},
	"Role kube-queue/gpuplan-fleet-queue":     granted["Role kube-queue/gpuplan-queue"],
	"Role kube-system/gpuplan-fleet-queue":    granted["Role kube-system/gpuplan-queue"],
	"Role gpuplan-system/gpuplan-fleet-queue": granted["Role gpuplan-system/gpuplan-queue"],
}

func TestRightsOnAHub(t *testing.T) {
	objs, err := HubObjects()
	require.NoError(t, err)
	assert.Equal(t, grantedOnHub, rightsIn(t, objs))
	at := slices.IndexFunc(objs, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Namespace" && o.GetName() == contract.SystemNamespace
	})
	assert.Equal(t, "true", objs[at].GetLabels()[contract.KarmadaSkipsNamespaceLabel], "Karmada deletes no scheduler of a member with it")
	assert.ElementsMatch(t, []string{
		"ClusterRoleBinding gpuplan-fleet-scheduler: ClusterRole gpuplan-fleet-scheduler",
		"RoleBinding gpuplan-system/gpuplan-fleet-scheduler: Role gpuplan-fleet-scheduler",
		"RoleBinding karmada-cluster/gpuplan-fleet-scheduler: Role gpuplan-fleet-scheduler",
		"ClusterRoleBinding gpuplan-fleet-queue: ClusterRole gpuplan-fleet-queue",
		"RoleBinding gpuplan-system/gpuplan-fleet-queue: Role gpuplan-fleet-queue",
		"RoleBinding kube-queue/gpuplan-fleet-queue: Role gpuplan-fleet-queue",
		"RoleBinding kube-system/gpuplan-fleet-queue: Role gpuplan-fleet-queue",
	}, bindingsIn(t, objs, contract.FleetSchedulerName, contract.FleetQueueName))
}

// rightsIn are the rights of each role.
func rightsIn(t *testing.T, objs []*unstructured.Unstructured) map[string][]string {
	t.Helper()
	rights := map[string][]string{}
	for _, obj := range objs {
		if obj.GetKind() == "ClusterRole" || obj.GetKind() == "Role" {
			role := typed[rbacv1.ClusterRole](t, []*unstructured.Unstructured{obj}, obj.GetKind())[0]
			for _, rule := range role.Rules {
				rights[keyOf(obj)] = append(rights[keyOf(obj)], rightsOf(rule)...)
			}
		}
	}
	return rights
}

// bindingsIn says who has which role: the queue what is named after it, the scheduler all else.
func bindingsIn(t *testing.T, objs []*unstructured.Unstructured, scheduler, queue string) (bindings []string) {
	t.Helper()
	for _, obj := range objs {
		if obj.GetKind() != "ClusterRoleBinding" && obj.GetKind() != "RoleBinding" {
			continue
		}
		binding, key := typed[rbacv1.ClusterRoleBinding](t, []*unstructured.Unstructured{obj}, obj.GetKind())[0], keyOf(obj)
		bindings = append(bindings, fmt.Sprintf("%s: %s %s", key, binding.RoleRef.Kind, binding.RoleRef.Name))
		for _, subject := range binding.Subjects {
			program := scheduler
			if strings.HasSuffix(key, queue) {
				program = queue
			}
			assert.Equal(t, "ServiceAccount gpuplan-system/"+program, subject.Kind+" "+subject.Namespace+"/"+subject.Name, key)
		}
	}
	return bindings
}

// keyOf is an object's kind and name.
func keyOf(obj *unstructured.Unstructured) string {
	if obj.GetNamespace() == "" {
		return obj.GetKind() + " " + obj.GetName()
	}
	return obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName()
}

// rightsOf renders a rule as "group/resource names: verbs" per resource.
func rightsOf(rule rbacv1.PolicyRule) (rights []string) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			what := append([]string{group + "/" + resource}, rule.ResourceNames...)
			rights = append(rights, strings.Join(what, " ")+": "+strings.Join(rule.Verbs, " "))
		}
	}
	for _, url := range rule.NonResourceURLs {
		rights = append(rights, url+": "+strings.Join(rule.Verbs, " "))
	}
	return rights
}

func TestCRDsMatchTheContract(t *testing.T) {
	crds := typed[apiextensionsv1.CustomResourceDefinition](t, objects(t, Options{Image: "a"}), "CustomResourceDefinition")
	for _, want := range []struct{ group, version, kind, resource string }{
		{contract.QuotaTreeGroup, contract.QuotaTreeVersion, contract.QuotaTreeKind, contract.QuotaTreeResource},
		{contract.PodGroupGroup, contract.PodGroupVersion, contract.PodGroupKind, contract.PodGroupResource},
		{contract.QueueGroup, contract.QueueVersion, contract.QueueKind, contract.QueueResource},
		{contract.QueueGroup, contract.QueueVersion, contract.QueueUnitKind, contract.QueueUnitResource},
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

// Budgets and spreading select the Deployments' pods.
func TestPodsAreKeptApart(t *testing.T) {
	objs := objects(t, Options{Image: "a"})
	budgets := map[string]*metav1.LabelSelector{}
	for _, budget := range typed[policyv1.PodDisruptionBudget](t, objs, "PodDisruptionBudget") {
		budgets[budget.Name] = budget.Spec.Selector
	}
	deployments := typed[appsv1.Deployment](t, objs, "Deployment")
	for _, deployment := range deployments {
		assert.Equal(t, deployment.Spec.Selector, budgets[deployment.Name], deployment.Name)
		for _, spread := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
			assert.Equal(t, deployment.Spec.Selector, spread.LabelSelector, deployment.Name)
		}
		assert.Len(t, deployment.Spec.Template.Spec.TopologySpreadConstraints, 2, deployment.Name)
	}
	assert.Len(t, budgets, len(deployments))
}

// The queue controller is the same program in the same image, with flags of its own.
func TestQueueController(t *testing.T) {
	deployments := typed[appsv1.Deployment](t, objects(t, Options{Image: "a", Replicas: 2, LogLevel: 4, Port: 10259}), "Deployment")
	require.Len(t, deployments, 2)
	assert.Equal(t, contract.SchedulerName, deployments[0].Name)
	deployment := deployments[1]
	assert.Equal(t, contract.QueueControllerName, deployment.Name)
	assert.Equal(t, int32(2), *deployment.Spec.Replicas)
	assert.Equal(t, contract.QueueControllerName, deployment.Spec.Template.Spec.ServiceAccountName)
	assert.Subset(t, deployment.Spec.Template.Labels, deployment.Spec.Selector.MatchLabels)
	container := deployment.Spec.Template.Spec.Containers[0]
	assert.Equal(t, "a", container.Image)
	assert.Equal(t, []string{"queue", "--v=4", "--metrics-bind-address=[$(POD_IP)]:10259"}, container.Args)
	assert.Equal(t, int32(10259), container.Ports[0].ContainerPort)
	assert.Equal(t, container.Ports[0].Name, container.ReadinessProbe.HTTPGet.Port.String())
	assert.Equal(t, corev1.URISchemeHTTP, container.ReadinessProbe.HTTPGet.Scheme)
}
