package localtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

// probeProgram writes what it was given to the file named by its variable REPORT,
// and runs until it is told to end.
const probeProgram = `#!/bin/sh
trap 'echo ended >> "$REPORT"; exit 0' TERM
{
  echo "start $*"
  for file in "$@"; do case $file in --config=*) cat "${file#--config=}"; echo;; esac; done
  env
} >> "$REPORT"
case "$*" in *--fail*) echo this is the last word; exit 9;; esac
while :; do sleep 0.05; done
`

// withProgram is an instance with a program of the test's own.
func withProgram(t *testing.T) instance {
	t.Helper()
	i := newInstance(t)
	built := i.programs
	i.programs = t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(built, "gpuplan-joboperator"), filepath.Join(i.programs, "gpuplan-joboperator")))
	require.NoError(t, os.WriteFile(filepath.Join(i.programs, "probe"), []byte(probeProgram), 0o700))
	i.must("up")
	return i
}

func template(report string, args ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "probe", contract.PartOfLabel: contract.PartOfValue}},
		Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "probe", Image: "example.com/probe:1", Args: args,
				Env: []corev1.EnvVar{
					{Name: "REPORT", Value: report},
					{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/probe"}},
			}},
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "probe"}},
			}}},
		},
	}
}

func configMap(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps("default").Create(context.Background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Data: map[string]string{"settings": "colour: green"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func probePods(t *testing.T, client kubernetes.Interface) []corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{LabelSelector: "app=probe"})
	require.NoError(t, err)
	return pods.Items
}

// readyContainer returns the container of the only probe pod once it is ready.
func readyContainer(t *testing.T, client kubernetes.Interface) (pod corev1.Pod, pid int) {
	t.Helper()
	eventually(t, "one pod is ready", func() error {
		pods := probePods(t, client)
		if len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		pod = pods[0]
		status := pod.Status.ContainerStatuses[0]
		if !status.Ready || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is %s: %+v", pod.Name, pod.Status.Phase, status)
		}
		var err error
		pid, err = strconv.Atoi(strings.TrimPrefix(status.ContainerID, "process://"))
		return err
	})
	return pod, pid
}

func gone(pid int) error {
	if _, err := process.Identify(pid); err == nil {
		return fmt.Errorf("process %d runs", pid)
	}
	return nil
}

func TestDeploymentRunsAsProcess(t *testing.T) {
	t.Parallel()
	i := withProgram(t)
	client, ctx := i.client(), context.Background()
	configMap(t, client)
	report := filepath.Join(t.TempDir(), "report")
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       appsv1.DeploymentSpec{Selector: labels, Template: template(report, "--config=/etc/probe/settings", "--me=$(POD)")},
	}
	_, err := client.AppsV1().Deployments("default").Create(ctx, deployment, metav1.CreateOptions{})
	require.NoError(t, err)

	pod, pid := readyContainer(t, client)
	assert.Equal(t, "gpuplan-local", pod.Spec.NodeName, "it lands on the node of this machine")
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), "--me="+pod.Name)
	assert.Contains(t, string(text), "colour: green")
	assert.Contains(t, string(text), "NODE_NAME=gpuplan-local")
	assert.NotContains(t, string(text), "ALIBABA", "nothing of the platform's own environment")
	useServiceAccount(t, string(text))

	// Killed three times, it is there again each time, at once.
	for kill := range 3 {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		eventually(t, "it is restarted", func() error {
			status := probePods(t, client)[0].Status.ContainerStatuses[0]
			if status.State.Waiting != nil {
				assert.NotEqual(t, "CrashLoopBackOff", status.State.Waiting.Reason)
			}
			if status.RestartCount != int32(kill+1) || status.State.Running == nil {
				return fmt.Errorf("%+v", status)
			}
			return nil
		})
		pod, pid = readyContainer(t, client)
		last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
		require.NotNil(t, last)
		assert.EqualValues(t, 137, last.ExitCode)
	}

	// After the platform's restart it runs again.
	i.must("down")
	require.NoError(t, gone(pid))
	i.must("up")
	eventually(t, "it is started again", func() error {
		if pods := probePods(t, client); len(pods) != 1 || pods[0].Status.ContainerStatuses[0].RestartCount != 4 {
			return fmt.Errorf("%+v", pods)
		}
		return nil
	})
	_, pid = readyContainer(t, client)

	// A change of the template replaces the process. The controller writes its status meanwhile.
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		changed, err := client.AppsV1().Deployments("default").Get(ctx, "probe", metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed.Spec.Template.Annotations = map[string]string{contract.ConfigHashAnnotation: "2"}
		_, err = client.AppsV1().Deployments("default").Update(ctx, changed, metav1.UpdateOptions{})
		return err
	}))
	eventually(t, "the old process ends", func() error { return gone(pid) })
	_, pid = readyContainer(t, client)

	foreground := metav1.DeletePropagationForeground
	require.NoError(t, client.AppsV1().Deployments("default").Delete(ctx, "probe", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	eventually(t, "the process ends", func() error { return gone(pid) })
	eventually(t, "the pod is gone", func() error {
		if pods := probePods(t, client); len(pods) > 0 {
			return errors.New(pods[0].Name)
		}
		return nil
	})
	text, err = os.ReadFile(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), "ended", "it was asked to end before it was killed")
	entries, err := os.ReadDir(filepath.Join(i.dir, "run", "pods"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// useServiceAccount uses the kubeconfig that the program was given.
func useServiceAccount(t *testing.T, environment string) {
	t.Helper()
	_, rest, found := strings.Cut(environment, "KUBECONFIG=")
	require.True(t, found)
	path, _, _ := strings.Cut(rest, "\n")
	client := clientFor(t, path)
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), selfReview(), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "system:serviceaccount:default:default", review.Status.UserInfo.Username)
}

func TestCrashLoop(t *testing.T) {
	t.Parallel()
	i := withProgram(t)
	client, ctx := i.client(), context.Background()
	configMap(t, client)
	spec := template(filepath.Join(t.TempDir(), "report"), "--fail")
	_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fails", Labels: spec.Labels}, Spec: spec.Spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the pod backs off", func() error {
		pod := probePods(t, client)[0]
		if len(pod.Status.ContainerStatuses) == 0 {
			return errors.New("no status")
		}
		status := pod.Status.ContainerStatuses[0]
		if status.State.Waiting == nil || status.State.Waiting.Reason != "CrashLoopBackOff" || status.RestartCount == 0 {
			return fmt.Errorf("%+v", status)
		}
		assert.False(t, status.Ready)
		require.NotNil(t, status.LastTerminationState.Terminated)
		assert.EqualValues(t, 9, status.LastTerminationState.Terminated.ExitCode)
		assert.Contains(t, status.LastTerminationState.Terminated.Message, "this is the last word")
		return nil
	})

	missing := template("", "")
	missing.Spec.Containers[0].Name = "no-such-program"
	_, err = client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "missing", Labels: map[string]string{contract.PartOfLabel: contract.PartOfValue}}, Spec: missing.Spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the missing program is reported", func() error {
		pod, err := client.CoreV1().Pods("default").Get(ctx, "missing", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, status := range pod.Status.ContainerStatuses {
			if waiting := status.State.Waiting; waiting != nil && strings.Contains(waiting.Message, "run make build") {
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status)
	})
}

func TestDaemonSetSharesOneProcess(t *testing.T) {
	t.Parallel()
	i := withProgram(t)
	client, ctx := i.client(), context.Background()
	configMap(t, client)
	for _, node := range []string{"n1", "n2", "n3"} {
		simulatedNode(t, client, node)
	}
	report := filepath.Join(t.TempDir(), "report")
	pods := template(report)
	pods.Spec.NodeSelector = map[string]string{"simulated": "yes"}
	for _, node := range []string{"n1", "n2", "n3"} {
		patch := []byte(`{"metadata":{"labels":{"simulated":"yes"}}}`)
		_, err := client.CoreV1().Nodes().Patch(ctx, node, "application/merge-patch+json", patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}}, Template: pods},
	}
	_, err := client.AppsV1().DaemonSets("default").Create(ctx, set, metav1.CreateOptions{})
	require.NoError(t, err)

	ids := map[string]bool{}
	eventually(t, "three pods are ready", func() error {
		set, err := client.AppsV1().DaemonSets("default").Get(ctx, "probe", metav1.GetOptions{})
		if err == nil && set.Status.NumberReady != 3 {
			err = fmt.Errorf("%d are", set.Status.NumberReady)
		}
		return err
	})
	for _, pod := range probePods(t, client) {
		ids[pod.Status.ContainerStatuses[0].ContainerID] = true
	}
	assert.Len(t, ids, 1, "all pods are one process")
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), "GPUPLAN_HARDWARE_DIR="+filepath.Join(i.dir, "hardware"))
	assert.NotContains(t, string(text), "NODE_NAME", "it serves all nodes")
	assert.Equal(t, 1, strings.Count(string(text), "start"))

	// A node leaves the set: the process stays for the others.
	unlabel := []byte(`{"metadata":{"labels":{"simulated":null}}}`)
	_, err = client.CoreV1().Nodes().Patch(ctx, "n1", "application/merge-patch+json", unlabel, metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "its pod goes", func() error {
		if n := len(probePods(t, client)); n != 2 {
			return fmt.Errorf("there are %d pods", n)
		}
		return nil
	})
	for _, pod := range probePods(t, client) {
		assert.True(t, ids[pod.Status.ContainerStatuses[0].ContainerID])
		assert.True(t, pod.Status.ContainerStatuses[0].Ready)
	}
	var pid int
	for id := range ids {
		pid, err = strconv.Atoi(strings.TrimPrefix(id, "process://"))
		require.NoError(t, err)
	}
	require.NoError(t, client.AppsV1().DaemonSets("default").Delete(ctx, "probe", metav1.DeleteOptions{}))
	eventually(t, "the process ends with the last pod", func() error { return gone(pid) })
}

// A pod that is none of gpuplan's programs, and tolerates every taint, may be bound to the node of this machine, as the
// launcher of a job with such a toleration is: it runs and ends there as on other nodes.
func TestOtherPodsOnTheNodeOfThisMachine(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.must("up")
	client, ctx := i.client(), context.Background()
	_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "launcher"},
		Spec: corev1.PodSpec{
			NodeName: "gpuplan-local", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "main", Image: "example.com/launcher:1"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the pod runs", func() error {
		pod, err := client.CoreV1().Pods("default").Get(ctx, "launcher", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = errors.New(string(pod.Status.Phase))
		}
		return err
	})
	log, err := client.CoreV1().Pods("default").GetLogs("launcher", &corev1.PodLogOptions{}).DoRaw(ctx)
	require.NoError(t, err)
	assert.Contains(t, string(log), "This pod is simulated")
	require.NoError(t, client.CoreV1().Pods("default").Delete(ctx, "launcher", metav1.DeleteOptions{}))
	eventually(t, "the pod is gone", func() error {
		if _, err := client.CoreV1().Pods("default").Get(ctx, "launcher", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	node, err := client.CoreV1().Nodes().Get(ctx, "gpuplan-local", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Len(t, node.Spec.Taints, 1)
	assert.Equal(t, "16", node.Status.Allocatable.Cpu().String(), "the simulation leaves its resources")
}
