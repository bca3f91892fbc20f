package preflight_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

const namespace = "preflight"

// plain is a job that a cluster with the operator takes.
func plain() job.Spec {
	return job.Spec{
		Namespace: namespace, Name: "j", Framework: job.PyTorch, Mode: job.Topology, Gang: true, SchedulerName: "gpuplan-scheduler",
		Roles: map[string]job.Role{"worker": {Replicas: 2, Image: "x", GPUs: 1}},
	}
}

// said are the headlines and details of findings, with a mark on those that are warnings.
func said(findings []preflight.Finding) (out []string) {
	for _, f := range findings {
		text := f.Attribute + ": " + f.Summary + ": " + f.Detail
		if f.Warning {
			text = "warning " + text
		}
		out = append(out, text)
	}
	return out
}

func TestJobOnTheLocalPlatform(t *testing.T) {
	platform := localtest.Start(t)
	client, err := kube.New(platform.Config(t))
	require.NoError(t, err)
	core := client.Typed.CoreV1()
	for _, name := range []string{namespace, "strict", "full", "small", "busy", "scoped", "lasting", "bare", "denied", "taken"} {
		labels := map[string]string{}
		if name == "strict" {
			labels["pod-security.kubernetes.io/enforce"] = "baseline"
		}
		_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = client.Typed.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, quota := range []corev1.ResourceQuota{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "scoped", Name: "high"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: quantity.MustParse("3")},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
				{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"high"}}}}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "scoped", Name: "ending"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: quantity.MustParse("1")}, Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "scoped", Name: "bare"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: quantity.MustParse("1")}, Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "lasting", Name: "lasting"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: quantity.MustParse("1")}, Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}}},
	} {
		_, err := core.ResourceQuotas(quota.Namespace).Create(t.Context(), &quota, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for name, hard := range map[string]corev1.ResourceList{
		"bare": {corev1.ResourceServices: quantity.MustParse("1"), "count/configmaps": quantity.MustParse("0"), "count/jobs.batch": quantity.MustParse("0")},
		"full": {corev1.ResourcePods: quantity.MustParse("0")}, "small": {"requests.aliyun.com/gpu": quantity.MustParse("3")},
		"denied": {"count/roles.rbac.authorization.k8s.io": quantity.MustParse("0"), "count/rolebindings.rbac.authorization.k8s.io": quantity.MustParse("0"), "count/statefulsets.apps": quantity.MustParse("0"),
			corev1.ResourceSecrets: quantity.MustParse("0")},
		"busy": {corev1.ResourcePods: quantity.MustParse("2"), corev1.ResourceRequestsCPU: quantity.MustParse("64"), "count/jobs.batch": quantity.MustParse("3")},
	} {
		_, err := core.ResourceQuotas(name).Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for name, mode := range map[string]corev1.PersistentVolumeAccessMode{"once": corev1.ReadWriteOnce, "pod": corev1.ReadWriteOncePod, "free": corev1.ReadWriteOncePod, "read": corev1.ReadOnlyMany, "many": corev1.ReadWriteMany} {
		_, err := core.PersistentVolumeClaims(namespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: new(string), // nobody makes a volume for it
				AccessModes:      []corev1.PersistentVolumeAccessMode{mode},
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse("1Gi")}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, secret := range []corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: "token"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")}},
	} {
		_, err := core.Secrets(namespace).Create(t.Context(), &secret, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	nodes, err := core.Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, nodes.Items)
	_, err = core.Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "mounts-it"},
		Spec: corev1.PodSpec{NodeName: nodes.Items[0].Name, Containers: []corev1.Container{{Name: "c", Image: "c"}}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pod"}}}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	await := func(check func() bool) { // controllers fill in what admission needs
		require.Eventually(t, check, time.Minute, 50*time.Millisecond)
	}
	for _, name := range []string{namespace, "strict", "full", "small", "busy", "scoped", "lasting", "bare", "denied", "taken"} {
		await(func() bool {
			_, err := core.ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
			return err == nil
		})
	}
	_, err = core.ResourceQuotas("taken").Create(t.Context(), &corev1.ResourceQuota{ // after the ServiceAccount, which it counts then
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/serviceaccounts": quantity.MustParse("1")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"full", "small", "busy", "scoped", "lasting", "bare", "denied", "taken"} {
		await(func() bool {
			quotas, err := core.ResourceQuotas(name).List(t.Context(), metav1.ListOptions{})
			return err == nil && !slices.ContainsFunc(quotas.Items, func(q corev1.ResourceQuota) bool { return len(q.Status.Hard) == 0 })
		})
	}
	_, err = core.Pods("busy").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.PodSpec{
		SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("1")}}}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	await(func() bool {
		q, err := core.ResourceQuotas("taken").Get(t.Context(), "none", metav1.GetOptions{})
		used := q.Status.Used["count/serviceaccounts"]
		return err == nil && used.Value() == 1
	})
	await(func() bool {
		q, err := core.ResourceQuotas("busy").Get(t.Context(), "none", metav1.GetOptions{})
		used := q.Status.Used[corev1.ResourcePods]
		return err == nil && used.Value() == 1
	})
	workers := func(namespace string, replicas, minimum int32) func(*job.Spec) {
		return func(s *job.Spec) {
			s.Namespace, s.Minimum = namespace, minimum
			s.Roles = map[string]job.Role{"worker": {Replicas: replicas, Image: "x", GPUs: 1, CPU: quantity.MustParse("1")}}
		}
	}
	volume := func(claim string) func(*job.Spec) {
		return func(s *job.Spec) { s.Volumes = map[string]job.Volume{"data": {Claim: claim, MountPath: "/data"}} }
	}

	volumeOfOne := func(claim string) func(*job.Spec) {
		return func(s *job.Spec) {
			volume(claim)(s)
			s.Roles = map[string]job.Role{"worker": {Replicas: 1, Image: "x", GPUs: 1}}
		}
	}

	for name, test := range map[string]struct {
		change func(*job.Spec)
		want   []string // of each finding
	}{
		"nothing is wrong": {func(*job.Spec) {}, nil},
		"no namespace":     {func(s *job.Spec) { s.Namespace = "nowhere" }, []string{"warning namespace: Namespace does not exist: Job nowhere/j needs the Namespace nowhere"}},
		"no PriorityClass": {func(s *job.Spec) { s.PriorityClass = "nope" }, []string{"warning priority_class: PriorityClass does not exist: Job preflight/j needs the PriorityClass nope"}},
		"no account":       {func(s *job.Spec) { s.ServiceAccount = "nope" }, []string{"warning service_account: ServiceAccount does not exist: Job preflight/j needs the ServiceAccount preflight/nope"}},
		"no secret":        {func(s *job.Spec) { s.ImagePullSecrets = []string{"nope"} }, []string{"warning image_pull_secrets: Secret does not exist"}},
		"secret of a token": {
			func(s *job.Spec) { s.ImagePullSecrets = []string{"registry", "token"} },
			[]string{"warning image_pull_secrets: Secret is none for images: The Secret preflight/token has the type Opaque."},
		},
		"no claim":      {volume("nope"), []string{"warning volumes: PersistentVolumeClaim does not exist: Job preflight/j needs the PersistentVolumeClaim preflight/nope"}},
		"unknown claim": {volume("unknown"), nil},
		"claim of one node": {volume("once"), []string{
			"warning volumes: Volume claim is not bound", `volumes: Volume claim is for one node: Volume "data" of job preflight/j is the claim preflight/once, which one node can mount (ReadWriteOnce), and the members are planned on several nodes.`,
		}},
		"claim of one pod, in use": {func(s *job.Spec) {
			volume("pod")(s)
			s.Roles = map[string]job.Role{"worker": {Replicas: 1, Image: "x", GPUs: 1}}
		}, []string{"warning volumes: Volume claim is not bound", "warning volumes: Volume claim is in use: Volume \"data\" of job preflight/j is the claim preflight/pod, which one pod can mount (ReadWriteOncePod), and pod preflight/mounts-it has it"}},
		"claim of one pod":  {volume("pod"), []string{"warning volumes: Volume claim is not bound", "volumes: Volume claim is for one pod"}},
		"claim for reading": {volume("read"), []string{"warning volumes: Volume claim is not bound", "volumes: Volume claim is read-only"}},
		"claim of many":     {volume("many"), []string{"warning volumes: Volume claim is not bound"}},
		"pod security": {
			func(s *job.Spec) { s.Namespace, s.HostNetwork = "strict", true },
			[]string{`roles: The cluster refuses the job: The cluster would not create the pods of role worker: pods "j-worker-0" is forbidden: violates PodSecurity "baseline:latest"`},
		},
		"pod security, RDMA": {
			func(s *job.Spec) {
				s.Namespace, s.RDMADefaults = "strict", true
				s.Roles = map[string]job.Role{"worker": {Replicas: 2, Image: "x", GPUs: 1, RDMA: true}}
			},
			[]string{`roles: The cluster refuses the job: The cluster would not create the pods of role worker: pods "j-worker-0" is forbidden: violates PodSecurity "baseline:latest": non-default capabilities (container "pytorch" must not include "IPC_LOCK" in securityContext.capabilities.add). With rdma_defaults = false the pods do without the capability.`},
		},
		"resource quota": {
			func(s *job.Spec) { s.Namespace = "full" },
			[]string{"roles: The namespace's quota is too small: The pods that job full/j needs ask for 2 of pods together, and the ResourceQuota full/none allows 0, of which 0 is used: the job never starts."},
		},
		"quota for less than the gang": {
			workers("small", 4, 0),
			[]string{"roles: The namespace's quota is too small: The pods that job small/j needs ask for 4 of requests.aliyun.com/gpu together, and the ResourceQuota small/none allows 3, of which 0 is used: the job never starts."},
		},
		"quota for what the gang needs": {workers("small", 4, 3), nil},
		"quota for pods on their own":   {func(s *job.Spec) { workers("small", 4, 0)(s); s.Mode, s.Gang = job.Default, false }, nil},
		"quota that is partly used": {
			workers("busy", 2, 0),
			[]string{"warning roles: No quota now: The pods that job busy/j needs ask for 2 of pods together, and the ResourceQuota busy/none allows 2, of which 1 is used: the job waits until there is room"},
		},
		"quota for a class": {
			func(s *job.Spec) { workers("scoped", 4, 0)(s); s.PriorityClass = "high" },
			[]string{"roles: The namespace's quota is too small: The pods that job scoped/j needs ask for 4 of requests.cpu together, and the ResourceQuota scoped/high allows 3, of which 0 is used: the job never starts."},
		},
		"quota for a class, enough": {func(s *job.Spec) { workers("scoped", 4, 3)(s); s.PriorityClass = "high" }, nil},
		"quota for another class":   {workers("scoped", 4, 0), nil},
		"quota for best effort":     {func(s *job.Spec) { s.Namespace = "scoped" }, []string{"roles: The namespace's quota is too small: The pods that job scoped/j needs ask for 2 of pods together, and the ResourceQuota scoped/bare allows 1"}},
		"quota for what lasts":      {workers("lasting", 2, 0), []string{"roles: The namespace's quota is too small: The pods that job lasting/j needs ask for 2 of pods together, and the ResourceQuota lasting/lasting allows 1"}},
		"a launcher":                {func(s *job.Spec) { s.Framework = job.MPI }, nil},
		"quota for Services": {
			func(s *job.Spec) { s.Namespace = "bare" },
			[]string{"roles: The namespace's quota is too small: Beside its pods job bare/j takes 2 of services, and the ResourceQuota bare/none allows 1, of which 0 is used: there is never room for it, and the job does not get far. Raise the quota"},
		},
		"quota for ConfigMaps": {
			func(s *job.Spec) { s.Namespace, s.Framework = "bare", job.MPI },
			[]string{"roles: The namespace's quota is too small: Beside its pods job bare/j takes 1 of count/configmaps, and the ResourceQuota bare/none allows 0"},
		},
		"quota for child Jobs": {
			func(s *job.Spec) { s.Namespace, s.Framework = "bare", job.JobSet },
			[]string{"roles: The namespace's quota is too small: Beside its pods job bare/j takes 1 of count/jobs.batch, and the ResourceQuota bare/none allows 0"},
		},
		"no quota for Jobs of its own": {
			func(s *job.Spec) { s.Namespace, s.Framework = "bare", job.Batch },
			[]string{"framework: The namespace's quota is too small: The cluster would never create Job bare/j: jobs.batch \"j\" is forbidden: exceeded quota: none, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0. Raise the quota."},
		},
		"quota for what the training operator makes": {
			func(s *job.Spec) { s.Namespace, s.Framework = "denied", job.MPI },
			[]string{
				"roles: The namespace's quota is too small: Beside its pods job denied/j takes 1 of count/rolebindings.rbac.authorization.k8s.io, and",
				"roles: The namespace's quota is too small: Beside its pods job denied/j takes 1 of count/roles.rbac.authorization.k8s.io, and",
			},
		},
		"quota for ServiceAccounts that is used": {
			func(s *job.Spec) { s.Namespace, s.Framework = "taken", job.MPI },
			[]string{"warning roles: No quota now: Beside its pods job taken/j takes 1 of count/serviceaccounts, and the ResourceQuota taken/none allows 1, of which 1 is used: the job waits until there is room"},
		},
		"quota for what MPIJobs of v1alpha1 take": {
			func(s *job.Spec) { s.Namespace, s.Framework, s.Version = "denied", job.MPI, contract.MPIAlphaVersion },
			[]string{
				"roles: The namespace's quota is too small: Beside its pods job denied/j takes 1 of count/rolebindings.rbac.authorization.k8s.io, and",
				"roles: The namespace's quota is too small: Beside its pods job denied/j takes 1 of count/roles.rbac.authorization.k8s.io, and",
				"roles: The namespace's quota is too small: Beside its pods job denied/j takes 1 of count/statefulsets.apps, and",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := plain()
			test.change(&spec)
			got := said(preflight.Job(t.Context(), client, spec.Complete(), "unknown", nil).Findings(2))
			require.Len(t, got, len(test.want), "%s", got)
			for i, want := range test.want {
				assert.True(t, strings.HasPrefix(got[i], want), "%s", got[i])
			}
		})
	}
	for name, test := range map[string]struct {
		change func(*job.Spec)
		want   []string // of what, asked, left
	}{
		"nothing":                    {func(*job.Spec) {}, nil},
		"of a quota that has it":     {workers("busy", 1, 0), []string{"of pods in ResourceQuota busy/none 1 1", "of requests.cpu in ResourceQuota busy/none 1 63"}},
		"of one that has not enough": {workers("busy", 2, 0), []string{"of requests.cpu in ResourceQuota busy/none 2 63"}},
		"of one for jobs": {func(s *job.Spec) { workers("busy", 1, 0)(s); s.Framework = job.Batch },
			[]string{"of count/jobs.batch in ResourceQuota busy/none 1 3", "of pods in ResourceQuota busy/none 1 1", "of requests.cpu in ResourceQuota busy/none 1 63"}},
		"a claim for one pod":         {volumeOfOne("free"), []string{"mounts of claim preflight/free (ReadWriteOncePod) 1 1"}},
		"one that another pod mounts": {volumeOfOne("pod"), nil},
		"one for many":                {volumeOfOne("many"), nil},
	} {
		t.Run("takes "+name, func(t *testing.T) {
			spec := plain()
			test.change(&spec)
			var got []string
			for _, d := range preflight.Job(t.Context(), client, spec.Complete(), "unknown", nil).Draws {
				got = append(got, fmt.Sprintf("%s %s %s", d.Of, d.Asked.String(), d.Left.String()))
			}
			assert.Equal(t, test.want, got)
		})
	}
	pods, err := core.Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "training.kubeflow.org/job-name=j"})
	require.NoError(t, err)
	assert.Empty(t, pods.Items, "nothing was created")

	t.Run("quota for what the MPI operator makes", func(t *testing.T) {
		spec := plain()
		spec.Namespace, spec.Framework, spec.Version = "denied", job.MPI, contract.MPIOperatorVersion
		got := said(preflight.Resume(t.Context(), client, spec.Complete(), "", nil).Findings(1)) // the platform does not serve it
		require.Len(t, got, 1)
		assert.Contains(t, got[0], "Beside its pods job denied/j takes 1 of secrets, and the ResourceQuota denied/none allows 0")
	})

	t.Run("what has gone since the plan", func(t *testing.T) {
		spec := plain()
		assert.Empty(t, preflight.Missing(t.Context(), client, spec.Complete(), "unknown"))
		spec.PriorityClass, spec.ServiceAccount, spec.ImagePullSecrets = "nope", "nope", []string{"token", "nope"}
		spec.Volumes = map[string]job.Volume{"data": {Claim: "nope", MountPath: "/data"}, "later": {Claim: "unknown", MountPath: "/later"}, "one": {Claim: "once", MountPath: "/once"}}
		var summaries []string
		for _, f := range preflight.Missing(t.Context(), client, spec.Complete(), "unknown") {
			summaries = append(summaries, f.Summary)
			assert.True(t, f.Warning, "another resource may create it")
		}
		assert.Equal(t, []string{"PriorityClass does not exist", "ServiceAccount does not exist", "Secret does not exist", "PersistentVolumeClaim does not exist"}, summaries)
		spec.Namespace = "nowhere"
		assert.Empty(t, preflight.Missing(t.Context(), client, spec.Complete(), "unknown"), "whoever creates the job is told")
	})

	t.Run("what admission adds", func(t *testing.T) { admission(t, client, plain()) })

	t.Run("a right is missing", func(t *testing.T) {
		config := platform.Config(t)
		config.Impersonate = rest.ImpersonationConfig{UserName: "viewer"}
		viewer, err := kube.New(config)
		require.NoError(t, err)
		bind(t, client, "view")
		spec := plain()
		spec.Arena = true
		got := said(preflight.Job(t.Context(), viewer, spec.Complete(), "", nil).Findings(2))
		require.NotEmpty(t, got)
		assert.Contains(t, got[0], "may not: get, list, watch, create, patch, delete pytorchjobs.kubeflow.org in namespace preflight; delete pods in namespace preflight; create, patch, delete configmaps in namespace preflight.")
		got = said(preflight.JobChange(t.Context(), viewer, plain(), spec))
		require.Len(t, got, 1)
		assert.Contains(t, got[0], "may not: get, list, watch, patch pytorchjobs.kubeflow.org in namespace preflight; patch pods in namespace preflight; create, patch, delete configmaps in namespace preflight.")
		assert.Empty(t, preflight.JobChange(t.Context(), client, plain(), spec))
		assert.Empty(t, preflight.NodeChange(t.Context(), client))
		got = said(preflight.NodeLabels(t.Context(), viewer))
		require.Len(t, got, 1)
		assert.Contains(t, got[0], "may not: get, list, watch, patch nodes.")
		assert.Empty(t, preflight.NodeLabels(t.Context(), client))
	})

	t.Run("an older schema", func(t *testing.T) {
		patchCRD(t, client, "pytorchjobs.kubeflow.org",
			`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/runPolicy/properties/suspend"}]`)
		await(func() bool { // the server takes the new schema up in its own time
			got := said(preflight.Job(t.Context(), client, plain().Complete(), "", nil).Findings(2))
			return len(got) == 1 && strings.HasPrefix(got[0], "framework: The served kind lacks fields") && strings.Contains(got[0], `unknown field "spec.runPolicy.suspend"`)
		})
	})

	t.Run("another version", func(t *testing.T) {
		patchCRD(t, client, "mpijobs.kubeflow.org", `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`)
		spec := plain()
		spec.Framework = job.MPI
		await(func() bool {
			fresh, err := kube.New(platform.Config(t))
			require.NoError(t, err)
			got := said(preflight.Job(t.Context(), fresh, spec.Complete(), "", nil).Findings(2))
			return len(got) == 1 && strings.HasPrefix(got[0], "framework: The job's kind is served in another version: The cluster serves MPIJob in version v1alpha1")
		})
	})
}

// What the operator makes for a job under a name that someone else's object has it does not make at all.
func TestNamesThatTheOperatorNeeds(t *testing.T) {
	meta := func(name, kind, owner string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: namespace, Name: name}
		if kind != "" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: kind, Name: owner, UID: "1", Controller: new(true)}}
		}
		return m
	}
	service := func(name, kind, owner string) runtime.Object {
		return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta(name, kind, owner)}
	}
	config := func(kind string) runtime.Object {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta("j-config", kind, "j")}
	}
	taken := service("j-worker-0", "", "").(*corev1.Service)
	taken.Labels = map[string]string{"training.kubeflow.org/job-name": "j", "training.kubeflow.org/operator-name": "pytorchjob-controller"}
	leaving := service("j-worker-0", "", "").(*corev1.Service)
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.Now()), []string{"x/y"}
	mpi, alpha := job.Spec{Framework: job.MPI}, job.Spec{Framework: job.MPI, Version: contract.MPIAlphaVersion}
	operator := job.Spec{Framework: job.MPI, Version: contract.MPIOperatorVersion}
	torch := job.Spec{Framework: job.PyTorch}
	set := job.Spec{Framework: job.JobSet}
	child := func(owner, name string) *batchv1.Job {
		return &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta("j-worker-0", owner, name)}
	}
	account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta("j-launcher", "", "")}
	chosen := mpi
	chosen.ServiceAccount = "own"
	queued := job.Spec{Framework: job.Batch, Queue: true}
	units := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "queueunits.scheduling.x-k8s.io"},
		"spec": map[string]any{
			"group": contract.QueueGroup, "scope": "Namespaced", "names": map[string]any{"kind": contract.QueueUnitKind, "plural": contract.QueueUnitResource},
			"versions": []any{map[string]any{"name": contract.QueueVersion, "served": true}},
		},
	}}
	unit := func(kind, owner string) runtime.Object {
		m := meta("j", kind, owner)
		unit := &unstructured.Unstructured{Object: map[string]any{"apiVersion": contract.QueueGroup + "/" + contract.QueueVersion, "kind": contract.QueueUnitKind}}
		unit.SetNamespace(m.Namespace)
		unit.SetName(m.Name)
		unit.SetOwnerReferences(m.OwnerReferences)
		return unit
	}
	for name, test := range map[string]struct {
		spec job.Spec
		live runtime.Object
		want string // "" for nothing
	}{
		"a service":                   {torch, service("j-worker-1", "", ""), "name: Service exists already: The operator makes a Service j-worker-1 for job preflight/j, and there is one of that name that is not the job's: the operator does not take it"},
		"a service of someone":        {torch, service("j-worker-1", "Gateway", "g"), "that is not the job's but of the Gateway g: the operator"},
		"a service of the job":        {torch, service("j-worker-1", "PyTorchJob", "j"), ""},
		"a service of another job":    {torch, service("j-worker-1", "PyTorchJob", "k"), "that is not the job's but of the PyTorchJob k"},
		"a service that it takes":     {torch, taken, ""},
		"a service that is leaving":   {torch, leaving, ""},
		"a service of more replicas":  {torch, service("j-worker-2", "", ""), ""},
		"a service beside an MPIJob":  {mpi, service("j-worker-1", "", ""), ""},
		"a ConfigMap":                 {mpi, config(""), "name: ConfigMap exists already: The operator makes a ConfigMap j-config"},
		"a ConfigMap of the job":      {mpi, config("MPIJob"), ""},
		"a ConfigMap beside PyTorch":  {torch, config(""), ""},
		"a Role":                      {mpi, &rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}, ObjectMeta: meta("j-launcher", "", "")}, "name: Role exists already"},
		"a RoleBinding":               {mpi, &rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}, ObjectMeta: meta("j-launcher", "", "")}, "name: RoleBinding exists already"},
		"an account":                  {mpi, account, "warning name: ServiceAccount exists already: The launcher of job preflight/j runs as the ServiceAccount j-launcher"},
		"an account, another is used": {chosen, account, ""},
		"an account, v1alpha1":        {alpha, account, "name: ServiceAccount exists already: The operator makes a ServiceAccount j-launcher"},
		"a StatefulSet, v1alpha1":     {alpha, &appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, ObjectMeta: meta("j-worker", "", "")}, "name: StatefulSet exists already"},
		"a batch job, v1alpha1":       {alpha, &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta("j-launcher", "", "")}, "name: Job exists already"},
		"a ConfigMap, v2beta1":        {operator, config(""), "name: ConfigMap exists already: The operator makes a ConfigMap j-config"},
		"a batch job, v2beta1":        {operator, &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta("j-launcher", "", "")}, "name: Job exists already"},
		"a service, v2beta1":          {operator, service("j", "", ""), "name: Service exists already: The operator makes a Service j for job"},
		"the job's service, v2beta1":  {operator, service("j", "MPIJob", "j"), ""},
		"an account, v2beta1":         {operator, account, ""},
		"a role of a JobSet":          {set, child("", ""), "name: Job exists already: The operator makes a Job j-worker-0 for job preflight/j"},
		"a role of the JobSet":        {set, child("JobSet", "j"), ""},
		"the service of a JobSet":     {set, service("j", "", ""), "warning name: Service exists already: The pods of job preflight/j find each other by a Service j"},
		"the JobSet's own service":    {set, service("j", "JobSet", "j"), ""},
		"the unit of another job":     {queued, unit("PyTorchJob", "i"), "warning name: Unit of the queue exists already: The job queue keeps job preflight/j by a QueueUnit j, and there is one of that name that is not the job's but of the PyTorchJob i: the job stays suspended"},
		"no unit is needed":           {job.Spec{Framework: job.Batch}, unit("PyTorchJob", "i"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubetest.Start(t)
			server.Put(units)
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(test.live)
			require.NoError(t, err)
			server.Put(&unstructured.Unstructured{Object: content})
			client, err := kube.New(server.Config())
			require.NoError(t, err)
			spec := plain()
			spec.Framework, spec.Version, spec.ServiceAccount, spec.Queue = test.spec.Framework, test.spec.Version, test.spec.ServiceAccount, test.spec.Queue
			got := said(preflight.Taken(t.Context(), client, spec.Complete()))
			if test.want == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			assert.Contains(t, got[0], test.want)
		})
	}
}

// admission asks what becomes of the pods of a job without and with what adds to them.
func admission(t *testing.T, client *kube.Client, spec job.Spec) {
	t.Helper()
	spec.Namespace = "added"
	spec.Roles = map[string]job.Role{"master": {Replicas: 1, Image: "x", GPUs: 1, CPU: quantity.MustParse("2")}, "worker": {Replicas: 2, Image: "x", GPUs: 1}}
	spec = spec.Complete()
	core := client.Typed.CoreV1()
	added := func() string {
		text, attributes := preflight.Admission(t.Context(), client, spec).Added()
		return text + strings.Join(attributes, ",")
	}
	_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spec.Namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(preflight.Admission(t.Context(), client, spec)) == 2 }, time.Minute, 50*time.Millisecond)
	assert.Empty(t, added())

	configured, err := spec.PlannerGang(nil)
	require.NoError(t, err)
	same, err := spec.AdmittedGang(nil, preflight.Admission(t.Context(), client, spec), nil)
	require.NoError(t, err)
	assert.Equal(t, configured, same, "what the API server gives to every pod is nothing that is added")

	_, err = core.LimitRanges(spec.Namespace).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:           corev1.LimitTypeContainer,
			Default:        corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("60"), corev1.ResourceMemory: quantity.MustParse("1Gi")},
			DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("50")},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	const want = "memory 1Gi (role master); cpu 50 instead of 50m, memory 1Gi instead of 10Mi (role worker)memory,cpu"
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, want, added()) }, time.Minute, 50*time.Millisecond)

	admitted, err := spec.AdmittedGang(nil, preflight.Admission(t.Context(), client, spec), nil)
	require.NoError(t, err)
	require.Len(t, admitted.Roles, 2)
	for i, cpu := range []int64{2000, 50000} {
		assert.Equal(t, cpu, admitted.Roles[i].Request.MilliCPU)
		assert.Equal(t, configured.Roles[i].Members, admitted.Roles[i].Members)
	}

	taken, err := spec.Sample()
	require.NoError(t, err)
	taken[1].Spec.InitContainers[0].Image = "operator"
	_, err = core.Pods(spec.Namespace).Create(t.Context(), taken[1], metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, want, added(), "also beside the pod of a job that is replaced")
}

// patchCRD changes a kind until the end of the test.
func patchCRD(t *testing.T, client *kube.Client, name, patch string) {
	t.Helper()
	crds := client.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	before, err := crds.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	_, err = crds.Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		now, err := crds.Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(t, err)
		now.Object["spec"] = before.Object["spec"]
		_, err = crds.Update(context.Background(), now, metav1.UpdateOptions{})
		require.NoError(t, err)
		plural, _, _ := strings.Cut(name, ".")
		require.Eventually(t, func() bool { // it is served as before
			list, err := client.Typed.Discovery().ServerResourcesForGroupVersion("kubeflow.org/v1")
			return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
		}, time.Minute, 50*time.Millisecond)
	})
}

// bind makes a user "viewer" who may read what the role says.
func bind(t *testing.T, client *kube.Client, role string) {
	t.Helper()
	name := "viewer-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	bindings := client.Typed.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "viewer"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, bindings.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	require.Eventually(t, func() bool {
		config := rest.CopyConfig(client.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: "viewer"}
		viewer, err := kube.New(config)
		require.NoError(t, err)
		has, err := viewer.Has(t.Context(), kube.Right{Verb: "get", Resource: "pods", Namespace: "default"})
		return err == nil && has
	}, time.Minute, 50*time.Millisecond)
}

// With rights to read alone every plan that would create something fails, and says what is missing.
func TestPlansOfAViewer(t *testing.T) {
	client := acctest.OnPlatform(t)
	bind(t, client, "view")
	t.Setenv("KUBECONFIG", asViewer(t, localtest.Start(t)))
	const missing = "because the user of the kubeconfig may not: "
	for says, config := range map[string]string{
		missing + "create, patch, delete namespaces; get, list, watch, create, patch, delete customresourcedefinitions.apiextensions.k8s.io": "resource \"gpuplan_scheduler\" \"this\" {\n  image = \"x\"\n}\n",
		"create, patch, delete serviceaccounts in namespace gpuplan-system":                                                                  "resource \"gpuplan_node_agent\" \"this\" {\n  image = \"x\"\n}\n",
		"create, patch, delete pytorchjobs.kubeflow.org in namespace default; delete pods in namespace default":                              "resource \"gpuplan_training_job\" \"j\" {\n  name = \"j\"\n  framework = \"pytorch\"\n  image = \"x\"\n  roles = { worker = { gpus = 1 } }\n}\n",
	} {
		resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{{
			ProtoV6ProviderFactories: acctest.Providers(), Config: config, PlanOnly: true, ExpectError: acctest.Saying(says),
		}}})
	}
}

// asViewer is a kubeconfig of the viewer.
func asViewer(t *testing.T, platform *localtest.Platform) string {
	t.Helper()
	raw, err := clientcmd.LoadFromFile(platform.Kubeconfig)
	require.NoError(t, err)
	for _, user := range raw.AuthInfos {
		user.Impersonate = "viewer"
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*raw, path))
	return path
}

// readers lets the viewer read everything.
func readers(t *testing.T, client *kube.Client) {
	t.Helper()
	roles := client.Typed.RbacV1().ClusterRoles()
	_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, roles.Delete(context.Background(), "reader", metav1.DeleteOptions{})) })
	bind(t, client, "reader")
}

// Who may read everything learns at plan that he may not change what exists, and what is
// left as it is needs no right to change it.
func TestChangesOfAViewer(t *testing.T) {
	readers(t, acctest.OnPlatform(t))

	const pool = `resource "gpuplan_node_pool" "viewed" {
  name          = "viewed"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  vswitch_ids   = ["vsw-1"]
`
	const job = `resource "gpuplan_training_job" "j" {
  name      = "viewed"
  framework = "pytorch"
  image     = "x"
  suspend   = true
  roles     = { worker = { gpus = 1 } }
`
	terraform := acctest.StartCLI(t)
	terraform.Write(t, pool+"}\n"+job+"}\n")
	terraform.Must(t, "apply", "-auto-approve")
	admin := os.Getenv("KUBECONFIG")
	t.Setenv("KUBECONFIG", asViewer(t, localtest.Start(t)))

	terraform.Must(t, "plan", "-detailed-exitcode")
	terraform.Write(t, pool+"  labels = { team = \"a\" }\n}\n"+job+"}\n")
	assert.Contains(t, acctest.Unwrapped(terraform.Must(t, "plan")), "and the user of the kubeconfig may not: patch nodes.")
	for _, change := range []string{"labels = { team = \"a\" }", "wait_for = \"none\"", "arena_compatible = true"} {
		terraform.Write(t, pool+"}\n"+job+"  "+change+"\n}\n")
		output, err := terraform.Run("plan")
		require.Error(t, err, change)
		assert.Contains(t, acctest.Unwrapped(output), "may not: patch pytorchjobs.kubeflow.org in namespace default", change)
	}

	// No check stands in the way of a destroy: what the cluster refuses shows, and stays.
	terraform.Write(t, pool+"}\n"+job+"}\n")
	output, err := terraform.Run("destroy", "-auto-approve", "-target=gpuplan_training_job.j")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(output), "Error: Job was not deleted")
	assert.Contains(t, acctest.Unwrapped(output), "cannot delete resource")
	assert.Contains(t, terraform.Must(t, "state", "list"), "gpuplan_training_job.j")

	t.Setenv("KUBECONFIG", admin)
	terraform.Must(t, "destroy", "-auto-approve")
}

// A launcher needs a place beside the members.
func TestLauncherThatFitsNowhere(t *testing.T) {
	acctest.OnPlatform(t)
	config := func(asks string) string {
		return `resource "gpuplan_node_pool" "launched" {
  name          = "launched"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_training_job" "j" {
  name      = "launched"
  framework = "mpi"
  image     = "x"
  pools     = [gpuplan_node_pool.launched.capacity]
  roles = {
    launcher = { ` + asks + ` }
    worker   = { replicas = 2, gpus = 1, cpu = "4" }
  }
}
`
	}
	says := acctest.Saying("The members of job default/launched fit, but what starts once they run does not fit beside them")
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{Config: config(`cpu = "90"`), PlanOnly: true, ExpectError: says},
		{Config: config(`memory = "900Gi"`), PlanOnly: true, ExpectError: says},
		{Config: config(`cpu = "4", memory = "9Gi"`), PlanOnly: true, ExpectNonEmptyPlan: true},
	}})
}

// The hub of a fleet keeps the object of a job, and is asked about that alone.
func TestJobOnAHub(t *testing.T) {
	server := kubetest.Start(t)
	hub, err := kube.New(server.Config())
	require.NoError(t, err)
	spec := plain()
	spec.PriorityClass, spec.ServiceAccount = "high", "trainer" // which its member clusters have
	on := func() []string { return said(preflight.OnHub(t.Context(), hub, spec)) }
	assert.Equal(t, []string{"warning framework: The job's kind is not served: The hub serves no PyTorchJob now, without which job preflight/j cannot be created: it needs the CRD of that kind, as its member clusters have it, and no operator."}, on())
	put := func(object map[string]any) { server.Put(&unstructured.Unstructured{Object: object}) }
	put(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "pytorchjobs.kubeflow.org"}, "spec": map[string]any{
		"group": contract.KubeflowGroup, "scope": "Namespaced", "names": map[string]any{"kind": contract.PyTorchJobKind, "plural": "pytorchjobs"},
		"versions": []any{map[string]any{"name": contract.KubeflowVersion, "served": true, "storage": true}},
	}})
	hub, err = kube.New(server.Config())
	require.NoError(t, err)
	require.Len(t, on(), 1)
	assert.Contains(t, on()[0], "warning namespace: Namespace does not exist")
	put(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
	assert.Empty(t, on())
}
