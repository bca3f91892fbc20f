package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Pods returns the pods that the training operator 1.9 makes of a PyTorchJob or
// MPIJob, or Kubernetes of a Job or the Jobs of a JobSet or a TrainJob, as far as a scheduler looks at them: names, labels, requests with those
// of the operator's init containers, ports and constraints, with the defaults that
// the API server fills in. They are in the order of role and index.
//
// Sources: training-operator v1.9.3 pkg/controller.v1/{common/pod.go,
// pytorch/initcontainer.go, mpi/mpijob_controller.go}, pkg/apis/kubeflow.org/v1 defaults;
// mpi-operator v0.2.3 pkg/controllers/v1alpha1/mpi_job_controller.go and v0.6.0 pkg/controller/mpi_job_controller.go;
// jobset v0.7.3 pkg/controllers/jobset_controller.go.
func Pods(obj *unstructured.Unstructured) ([]*corev1.Pod, error) {
	roles, err := Replicas(obj)
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for _, role := range roles {
		for i := range role.Count {
			pods = append(pods, role.Pod(i))
		}
	}
	return pods, nil
}

// Expected returns the pods that a job will have, which someone else wrote, where admission routes them to our scheduler
// unless they name another one. An error says why it cannot be told.
func Expected(obj *unstructured.Unstructured) ([]*corev1.Pod, error) {
	roles, err := Replicas(obj)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, role := range roles {
		if role.Count > MaxReplicas-total {
			return nil, fmt.Errorf("the job has more than %d replicas", MaxReplicas)
		}
		total += max(role.Count, 0)
	}
	pods, err := Pods(obj)
	for _, pod := range pods {
		if pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName {
			pod.Spec.SchedulerName = contract.SchedulerName
		}
	}
	return pods, err
}

// ReplicaSpec is one role of a job: its pods differ in their names and labels alone.
type ReplicaSpec struct {
	// Pod makes the pod with an index.
	Pod func(index int) *corev1.Pod
	// Count is how many the job asks for, which nobody has checked.
	Count int
}

// Replicas returns the roles of a job with the pods that [Pods] would make, sorted by name.
func Replicas(obj *unstructured.Unstructured) ([]ReplicaSpec, error) {
	o, framework, err := decode(obj)
	if err != nil {
		return nil, err
	}
	replicas, version := o.Spec.replicas(framework), VersionOf(obj)
	var roles []ReplicaSpec
	for _, name := range slices.Sorted(maps.Keys(replicas)) {
		role, replica := strings.ToLower(name), replicas[name]
		if len(replica.Template.Spec.Containers) == 0 {
			return nil, fmt.Errorf("%s %s/%s: role %s has no container", obj.GetKind(), o.Namespace, o.Name, role)
		}
		made := func(index int) *corev1.Pod { return pod(o, framework, role, index, replica.Template) }
		switch {
		case version == contract.MPIAlphaVersion:
			made = func(index int) *corev1.Pod { return alphaPod(o, role, index, replica.Template) }
		case version == contract.MPIOperatorVersion:
			made = func(index int) *corev1.Pod { return operatorPod(o, role, index, replica.Template) }
		case framework == Batch:
			made = func(index int) *corev1.Pod { return batchPod(o, o.Name, index, replica.Template) }
		case framework.AsJobSet():
			made = func(index int) *corev1.Pod { return jobSetPod(o, role, index, replica) }
		}
		roles = append(roles, ReplicaSpec{Pod: made, Count: int(ptr.Deref(replica.Replicas, 1))})
	}
	return roles, nil
}

func pod(o *object, framework Framework, role string, index int, template corev1.PodTemplateSpec) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace,
			Name:      objectName(o.Name, role, index),
			Labels: merge(template.Labels, map[string]string{
				contract.JobOperatorNameLabel: framework.object().operator,
				contract.JobNameLabel:         o.Name,
				contract.JobReplicaTypeLabel:  role,
				contract.JobReplicaIndexLabel: strconv.Itoa(index),
			}),
			Annotations: template.Annotations,
		},
		Spec: *template.Spec.DeepCopy(),
	}
	switch {
	case framework == MPI && role == contract.ReplicaLauncher:
		p.Name = o.Name + "-" + role
		delete(p.Labels, contract.JobReplicaIndexLabel)
		p.Labels[contract.JobRoleLabel] = "master"
		p.Spec.InitContainers = append(p.Spec.InitContainers, initContainer("kubectl-delivery", "100m", "512Mi", "5Gi"))
	case framework == PyTorch:
		_, hasMaster := o.Spec.PyTorch[camel(contract.ReplicaMaster)]
		if role == contract.ReplicaMaster || !hasMaster && index == 0 {
			p.Labels[contract.JobRoleLabel] = "master"
		}
		if role == contract.ReplicaWorker && hasMaster {
			p.Spec.InitContainers = append(p.Spec.InitContainers, initContainer("init-pytorch", "50m", "10Mi", ""))
		}
		addMasterPort(&p.Spec)
	}
	SetDefaults(&p.Spec)
	return p
}

// initContainer returns an init container of the operator with its requests.
func initContainer(name, cpu, memory, disk string) corev1.Container {
	requests := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
	}
	if disk != "" {
		requests[corev1.ResourceEphemeralStorage] = resource.MustParse(disk)
	}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
}

// addMasterPort does what the operator does to a replica that has no port of the master's name.
func addMasterPort(spec *corev1.PodSpec) {
	if masterPort(*spec) != 0 {
		return
	}
	i := max(0, slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == contract.PyTorchContainerName }))
	spec.Containers[i].Ports = append(spec.Containers[i].Ports, corev1.ContainerPort{
		Name: contract.PyTorchPortName, ContainerPort: contract.PyTorchPort,
	})
}

// SetDefaults fills in what the API server does and a scheduler looks at: limits are
// requests too, and with the host's network every port is the host's.
func SetDefaults(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			Request(c, c.Resources.Limits)
			for j := range c.Ports {
				port := &c.Ports[j]
				if port.Protocol == "" {
					port.Protocol = corev1.ProtocolTCP
				}
				if spec.HostNetwork && port.HostPort == 0 {
					port.HostPort = port.ContainerPort
				}
			}
		}
	}
}

// Request has a container ask for amounts where it does not say for how much it asks.
func Request(c *corev1.Container, amounts corev1.ResourceList) {
	for name, amount := range amounts {
		if _, ok := c.Resources.Requests[name]; ok {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = amount
	}
}
