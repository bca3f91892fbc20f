package mpialpha

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const version = "v1alpha1"

var kind = schema.GroupVersionKind{Group: "kubeflow.org", Version: version, Kind: "MPIJob"}

const (
	suspendAnnotation = "scheduling.x-k8s.io/suspend"

	groupLabel = "group_name"
	jobLabel   = "mpi_job_name"
	roleLabel  = "mpi_role_type"

	kubexecFile  = "kubexec.sh"
	hostsFile    = "hostfile"
	configVolume = "mpi-job-config"
	configMount  = "/etc/mpi"
	kubectlName  = "kubectl-delivery"
	kubectlDir   = "/opt/kube"
	kubectlImage = "mpioperator/kubectl-delivery:v0.2.3"
)

// spec is what is read of an MPIJob.
type spec struct {
	Replicas              *int32                 `json:"replicas"`
	SlotsPerWorker        *int32                 `json:"slotsPerWorker"`
	BackoffLimit          *int32                 `json:"backoffLimit"`
	ActiveDeadlineSeconds *int64                 `json:"activeDeadlineSeconds"`
	CleanPodPolicy        string                 `json:"cleanPodPolicy"`
	LauncherOnMaster      bool                   `json:"launcherOnMaster"`
	Template              corev1.PodTemplateSpec `json:"template"`
}

// job is an MPIJob of this version.
type job struct {
	object *unstructured.Unstructured
	spec   spec
}

// read returns nil for an object of another version's shape.
func read(object *unstructured.Unstructured) (*job, error) {
	content, _, err := unstructured.NestedMap(object.Object, "spec")
	if err != nil {
		return nil, err
	}
	j := &job{object: object}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &j.spec); err != nil {
		return nil, fmt.Errorf("read MPIJob %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	if len(j.spec.Template.Spec.Containers) == 0 {
		return nil, nil
	}
	return j, nil
}

func (j *job) suspended() bool { return j.object.GetAnnotations()[suspendAnnotation] == "true" }

// workers is how many workers the job has now: none once it is done, unless they are kept.
func (j *job) workers(done bool) int32 {
	if done && j.spec.CleanPodPolicy != "" && j.spec.CleanPodPolicy != "None" {
		return 0
	}
	return ptr.Deref(j.spec.Replicas, 1)
}

func (j *job) launcherName() string { return j.object.GetName() + "-launcher" }
func (j *job) workerName() string   { return j.object.GetName() + "-worker" }
func (j *job) configName() string   { return j.object.GetName() + "-config" }

// meta is the metadata of an object that goes with the job.
func (j *job) meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: j.object.GetNamespace(), Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j.object, kind)},
	}
}

func (j *job) labels(role string) map[string]string {
	return map[string]string{groupLabel: kind.Group, jobLabel: j.object.GetName(), roleLabel: role}
}

// template is the pod template of a role.
func (j *job) template(role string) corev1.PodTemplateSpec {
	template := *j.spec.Template.DeepCopy()
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	for key, value := range j.labels(role) {
		template.Labels[key] = value
	}
	main := &template.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: configVolume, MountPath: configMount})
	template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: configVolume, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: j.configName()}, DefaultMode: ptr.To[int32](0o555),
		},
	}})
	return template
}

// support returns what the launcher needs to reach the workers.
func (j *job) support() []client.Object {
	workers := j.workers(false)
	names, hosts := []string{}, strings.Builder{}
	for i := range workers {
		name := fmt.Sprintf("%s-%d", j.workerName(), i)
		names = append(names, name)
		fmt.Fprintf(&hosts, "%s slots=%d\n", name, j.slots())
	}
	labels := map[string]string{"app": j.object.GetName()}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: j.meta(j.configName(), labels), Data: map[string]string{
			hostsFile:   hosts.String(),
			kubexecFile: "#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n" + kubectlDir + "/kubectl exec ${POD_NAME} -- /bin/sh -c \"$*\"\n",
		}},
		&corev1.ServiceAccount{ObjectMeta: j.meta(j.launcherName(), labels)},
		&rbacv1.Role{ObjectMeta: j.meta(j.launcherName(), labels), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: names, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"pods/exec"}, ResourceNames: names, Verbs: []string{"create"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: j.meta(j.launcherName(), labels),
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: j.object.GetNamespace(), Name: j.launcherName()}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: j.launcherName()},
		},
	}
}

// slots is how many processes a worker runs: one per GPU.
func (j *job) slots() int64 {
	if j.spec.SlotsPerWorker != nil {
		return int64(*j.spec.SlotsPerWorker)
	}
	for name, amount := range j.spec.Template.Spec.Containers[0].Resources.Limits {
		if strings.HasSuffix(string(name), "/gpu") {
			return max(1, amount.Value())
		}
	}
	return 1
}

func (j *job) worker(replicas int32) *appsv1.StatefulSet {
	template := j.template("worker")
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	template.Spec.Containers[0].Command, template.Spec.Containers[0].Args = []string{"sleep"}, []string{"365d"}
	return &appsv1.StatefulSet{
		ObjectMeta: j.meta(j.workerName(), j.labels("worker")),
		Spec: appsv1.StatefulSetSpec{
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Replicas:            ptr.To(replicas),
			ServiceName:         j.workerName(),
			Selector:            &metav1.LabelSelector{MatchLabels: j.labels("worker")},
			Template:            template,
		},
	}
}

func (j *job) launcher() *batchv1.Job {
	template := j.template("launcher")
	pod := &template.Spec
	pod.ServiceAccountName = j.launcherName()
	if pod.RestartPolicy != corev1.RestartPolicyNever {
		pod.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	kubectl := corev1.VolumeMount{Name: kubectlName, MountPath: kubectlDir}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: kubectlName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name: kubectlName, Image: kubectlImage,
		Env:          []corev1.EnvVar{{Name: "TARGET_DIR", Value: kubectlDir}},
		VolumeMounts: []corev1.VolumeMount{kubectl},
	})
	main := &pod.Containers[0]
	main.Resources = corev1.ResourceRequirements{}
	main.VolumeMounts = append(main.VolumeMounts, kubectl)
	main.Env = append(main.Env,
		corev1.EnvVar{Name: "OMPI_MCA_plm_rsh_agent", Value: configMount + "/" + kubexecFile},
		corev1.EnvVar{Name: "OMPI_MCA_orte_default_hostfile", Value: configMount + "/" + hostsFile})
	if j.spec.LauncherOnMaster {
		const master = "node-role.kubernetes.io/master"
		pod.Tolerations = []corev1.Toleration{{Key: master, Effect: corev1.TaintEffectNoSchedule}}
		pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: master, Operator: corev1.NodeSelectorOpExists}},
			}}},
		}}
	}
	return &batchv1.Job{
		ObjectMeta: j.meta(j.launcherName(), j.labels("launcher")),
		Spec:       batchv1.JobSpec{BackoffLimit: j.spec.BackoffLimit, ActiveDeadlineSeconds: j.spec.ActiveDeadlineSeconds, Template: template},
	}
}
