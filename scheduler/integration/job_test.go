package integration

import (
	"fmt"
	"strconv"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// job describes the pods of a job.
type job struct {
	name    string
	workers int
	// gpus is what each worker asks for, of the resource.
	gpus     int
	resource string
	labels   map[string]string
	change   func(*corev1.Pod)
}

// topologyGang is the topology document's spelling of a gang.
func topologyGang(name string, workers, gpus int) job {
	return job{name: name, workers: workers, gpus: gpus, resource: contract.ResourceTopologyGPU, labels: map[string]string{
		contract.TopologyGroupLabel:    name,
		contract.TopologyReplicasLabel: strconv.Itoa(workers),
	}}
}

// pods are the pods of a job as the training operator makes them.
func (s *testCluster) pods(j job) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range j.workers {
		labels := map[string]string{
			contract.JobNameLabel:         j.name,
			contract.JobReplicaTypeLabel:  "worker",
			contract.JobReplicaIndexLabel: strconv.Itoa(i),
		}
		for key, value := range j.labels {
			labels[key] = value
		}
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		if j.gpus > 0 {
			list[corev1.ResourceName(j.resource)] = *resource.NewQuantity(int64(j.gpus), resource.DecimalSI)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("%s-worker-%d", j.name, i), Labels: labels},
			Spec: corev1.PodSpec{
				SchedulerName:                 contract.SchedulerName,
				NodeSelector:                  map[string]string{contract.NodePoolNameLabel: s.namespace},
				TerminationGracePeriodSeconds: new(int64),
				Containers: []corev1.Container{{
					Name: "main", Image: "test",
					Resources: corev1.ResourceRequirements{Requests: list, Limits: list},
				}},
			},
		}
		if j.change != nil {
			j.change(pod)
		}
		pods = append(pods, pod)
	}
	return pods
}

func (s *testCluster) submit(j job) {
	s.t.Helper()
	for _, pod := range s.pods(j) {
		s.create(pod)
	}
}

func (s *testCluster) create(pod *corev1.Pod) {
	s.t.Helper()
	require.NoError(s.t, s.createPod(pod))
}

func (s *testCluster) createPod(pod *corev1.Pod) error {
	_, err := api().CoreV1().Pods(s.namespace).Create(s.t.Context(), pod, metav1.CreateOptions{})
	return err
}
