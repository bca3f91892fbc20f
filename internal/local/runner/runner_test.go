package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/simulate"
)

func TestRewrite(t *testing.T) {
	m := mounts{{"/etc/gpuplan/more", "/run/more"}, {"/etc/gpuplan", "/run/config"}}
	for _, test := range []struct{ text, want string }{
		{"--config=/etc/gpuplan/scheduler.yaml", "--config=/run/config/scheduler.yaml"},
		{"/etc/gpuplan", "/run/config"},
		{"/etc/gpuplan/more/x", "/run/more/x"},
		{"/etc/gpuplanner/x", "/etc/gpuplanner/x"},
		{"a=/etc/gpuplan/a,b=/etc/gpuplan/b:/etc/gpuplan/c", "a=/run/config/a,b=/run/config/b:/run/config/c"},
		{"see/etc/gpuplan", "see/etc/gpuplan"},
		{"--v=2", "--v=2"},
		{"", ""},
		{"=", "="},
	} {
		assert.Equal(t, test.want, m.rewrite(test.text), test.text)
	}
	assert.Equal(t, "/x", mounts(nil).rewrite("/x"))
}

// testRunner is a runner on a cluster with a ConfigMap and a Secret.
func testRunner(t *testing.T) *Runner {
	t.Helper()
	client := fake.NewClientset(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config", Namespace: "ns"}, Data: map[string]string{"a.yaml": "A", "b.yaml": "B"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret", Namespace: "ns"}, Data: map[string][]byte{"key": []byte("hidden")}},
	)
	return &Runner{client: client}
}

func testWorkload(t *testing.T, container corev1.Container, volumes ...corev1.Volume) *workload {
	t.Helper()
	return &workload{key: "ns.pod", dir: t.TempDir(), address: "127.0.0.3", first: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid-1", Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{NodeName: "node", ServiceAccountName: "sa", Containers: []corev1.Container{container}, Volumes: volumes},
	}}
}

func fieldRef(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func TestEnvironment(t *testing.T) {
	optional := true
	container := corev1.Container{Name: "prog", Env: []corev1.EnvVar{
		{Name: "PLAIN", Value: "1"},
		{Name: "COMPOSED", Value: "$(PLAIN)-$(MISSING)-$$(PLAIN)"},
		fieldRef("POD", "metadata.name"), fieldRef("NS", "metadata.namespace"), fieldRef("UID", "metadata.uid"),
		fieldRef("APP", "metadata.labels['app']"), fieldRef("NODE", "spec.nodeName"), fieldRef("SA", "spec.serviceAccountName"), fieldRef("IP", "status.podIP"),
		{Name: "CONFIG", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Key: "a.yaml"}}},
		{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "key"}}},
		{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "key", Optional: &optional}}},
	}}
	want := map[string]string{
		"PLAIN": "1", "COMPOSED": "1-$(MISSING)-$(PLAIN)", "POD": "pod", "NS": "ns", "UID": "uid-1", "APP": "x",
		"NODE": "node", "SA": "sa", "IP": "127.0.0.3", "CONFIG": "A", "SECRET": "hidden",
	}
	r, w := testRunner(t), testWorkload(t, container)
	resolve := func() map[string]string {
		env, err := r.environment(context.Background(), w, &container)
		require.NoError(t, err)
		got := map[string]string{}
		for _, v := range env {
			got[v.Name] = v.Value
		}
		return got
	}
	assert.Equal(t, want, resolve())
	w.shared = true
	delete(want, "NODE")
	assert.Equal(t, want, resolve(), "a shared process is on no one node")

	for name, env := range map[string]corev1.EnvVar{
		"no key":    {Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Key: "c"}}},
		"not found": {Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "c"}}},
		"only":      {Name: "X", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
	} {
		_, err := r.environment(context.Background(), w, &corev1.Container{Name: "prog", Env: []corev1.EnvVar{env}})
		assert.ErrorContains(t, err, name)
		assert.ErrorContains(t, err, "variable X")
	}
}

func TestVolumes(t *testing.T) {
	container := corev1.Container{Name: "prog", VolumeMounts: []corev1.VolumeMount{
		{Name: "all", MountPath: "/all/"}, {Name: "picked", MountPath: "/picked"}, {Name: "secret", MountPath: "/secret"},
		{Name: "empty", MountPath: "/empty"}, {Name: "host", MountPath: "/var/lib/kubelet"},
		{Name: "kube-api-access-x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
	}}
	ref := corev1.LocalObjectReference{Name: "config"}
	w := testWorkload(t, container,
		corev1.Volume{Name: "all", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref}}},
		corev1.Volume{Name: "picked", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref, Items: []corev1.KeyToPath{{Key: "b.yaml", Path: "deep/b"}}}}},
		corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}},
		corev1.Volume{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet"}}},
		corev1.Volume{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
		corev1.Volume{Name: "nfs", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}},
	)
	r := testRunner(t)
	m, err := r.mount(context.Background(), w, &container)
	require.NoError(t, err)
	for path, content := range map[string]string{"/all/a.yaml": "A", "/all/b.yaml": "B", "/picked/deep/b": "B", "/secret/key": "hidden"} {
		place := m.rewrite(path)
		require.True(t, strings.HasPrefix(place, w.dir), "%s is at %s", path, place)
		data, err := os.ReadFile(place)
		require.NoError(t, err)
		assert.Equal(t, content, string(data))
		info, err := os.Stat(place)
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077)
	}
	assert.NoFileExists(t, m.rewrite("/picked/a.yaml"))
	assert.DirExists(t, m.rewrite("/empty"))
	assert.NotEqual(t, "/var/lib/kubelet", m.rewrite("/var/lib/kubelet"), "a simulated node's paths are not this machine's")

	_, err = r.mount(context.Background(), w, &corev1.Container{Name: "prog", VolumeMounts: []corev1.VolumeMount{{Name: "nfs", MountPath: "/nfs"}}})
	assert.ErrorContains(t, err, "volume nfs")
	_, err = r.mount(context.Background(), w, &corev1.Container{Name: "prog", VolumeMounts: []corev1.VolumeMount{{Name: "lost", MountPath: "/x"}}})
	assert.ErrorContains(t, err, `"lost"`)
}

func TestDirectoriesOfRealNodes(t *testing.T) {
	const plugins = "/var/lib/kubelet/device-plugins"
	container := corev1.Container{Name: "prog", VolumeMounts: []corev1.VolumeMount{{Name: "plugins", MountPath: "/plugins"}, {Name: "other", MountPath: "/other"}}}
	w := testWorkload(t, container,
		corev1.Volume{Name: "plugins", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: plugins}}},
		corev1.Volume{Name: "other", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}})
	w.node = &realnode.Node{Dir: t.TempDir()}
	m, err := testRunner(t).mount(t.Context(), w, &container)
	require.NoError(t, err)
	assert.Equal(t, "--dir="+w.node.DevicePlugins()+"/x.sock", m.rewrite("--dir=/plugins/x.sock"))
	assert.DirExists(t, w.node.DevicePlugins())
	assert.Contains(t, m.rewrite("/other"), w.dir, "others are not this machine's")
}

func TestKeyOf(t *testing.T) {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "1", Labels: map[string]string{"controller-revision-hash": "h1"}}}
	key, shared := keyOf(pod, nil)
	assert.Equal(t, "ns.p.1", key)
	assert.False(t, shared)
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: &yes}}
	key, shared = keyOf(pod, nil)
	assert.Equal(t, "ns.agent.h1", key)
	assert.True(t, shared)
	key, shared = keyOf(pod, &realnode.Node{})
	assert.Equal(t, "ns.p.1", key, "a real node has a process of its own")
	assert.False(t, shared)
}

func TestUnsupported(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
	assert.Empty(t, unsupported(pod))
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	assert.Contains(t, unsupported(pod), "restartPolicy")
	pod = &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, InitContainers: []corev1.Container{{}}}}
	assert.Contains(t, unsupported(pod), "init containers")
}

func TestPodStatus(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "prog", Image: "i"}}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	show := func(state containerState) corev1.ContainerStatus {
		pod.Status = runningStatus(pod, []containerState{state}, now)
		require.Len(t, pod.Status.ContainerStatuses, 1)
		return pod.Status.ContainerStatuses[0]
	}
	condition := func(kind corev1.PodConditionType) corev1.ConditionStatus {
		for _, c := range pod.Status.Conditions {
			if c.Type == kind {
				return c.Status
			}
		}
		return ""
	}
	running := func(pid int) process.Status {
		return process.Status{Running: &process.Process{Identity: process.Identity{PID: pid}}, StartedAt: now}
	}

	c := show(containerState{})
	assert.Equal(t, reasonCreating, c.State.Waiting.Reason)
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)

	c = show(containerState{Status: process.Status{StartError: errors.New("no such program"), BackOff: time.Second}})
	assert.Equal(t, reasonCannotCreate, c.State.Waiting.Reason)
	assert.Equal(t, "no such program", c.State.Waiting.Message)
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)

	c = show(containerState{Status: running(10)})
	assert.NotNil(t, c.State.Running)
	assert.False(t, c.Ready)
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	assert.Equal(t, corev1.ConditionFalse, condition(corev1.PodReady))

	c = show(containerState{Status: running(10), ready: true})
	assert.True(t, c.Ready)
	assert.Zero(t, c.RestartCount)
	assert.Equal(t, corev1.ConditionTrue, condition(corev1.PodReady))
	assert.Equal(t, corev1.ConditionTrue, condition(corev1.ContainersReady))
	assert.Equal(t, pod.Status, runningStatus(pod, []containerState{{Status: running(10), ready: true}}, now.Add(time.Hour)), "nothing changes, nothing is written")

	crashed := process.Status{Last: &process.Exit{Code: 2, StartedAt: now, FinishedAt: now}, BackOff: 4 * time.Second, Restarts: 3}
	c = show(containerState{Status: crashed, tail: "panic: oh no"})
	assert.Equal(t, reasonCrashLoop, c.State.Waiting.Reason)
	assert.Contains(t, c.State.Waiting.Message, "4s")
	assert.EqualValues(t, 2, c.LastTerminationState.Terminated.ExitCode)
	assert.Equal(t, "panic: oh no", c.LastTerminationState.Terminated.Message)
	assert.Equal(t, corev1.ConditionFalse, condition(corev1.PodReady))
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase, "a pod that has run does not go back to Pending")

	again := running(11)
	again.Last = crashed.Last
	c = show(containerState{Status: again, ready: true, tail: "panic: oh no"})
	assert.EqualValues(t, 1, c.RestartCount)
	c = show(containerState{Status: again, ready: true, tail: "panic: oh no"})
	assert.EqualValues(t, 1, c.RestartCount, "one restart counts once")

	// The platform has been restarted: the process is another one, of which nothing is known.
	c = show(containerState{Status: running(12)})
	assert.EqualValues(t, 2, c.RestartCount)
}

func TestOutputKeepsTheEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog.log")
	o := newOutput(file)
	o.begin("first")
	for range 1000 {
		o.Write([]byte("a line of the first run\n"))
	}
	o.Write([]byte("the last word\n"))
	tail := o.tail(false)
	assert.LessOrEqual(t, len(tail), tailBytes)
	assert.True(t, strings.HasPrefix(tail, "a line"), "whole lines")
	assert.True(t, strings.HasSuffix(tail, "the last word"))
	o.begin("second")
	o.Write([]byte("hello\n"))
	assert.Equal(t, tail, o.tail(true), "while the second runs, the last one that ended is the first")
	assert.Equal(t, "hello", o.tail(false))
	o.fail(errors.New("no configuration"))
	o.close()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, 1000, strings.Count(string(data), "a line of the first run"))
	assert.Contains(t, string(data), "start of second")
	assert.Contains(t, string(data), "cannot start: no configuration")
}

// Another program of the machine, as of a second platform, has the port already.
func TestFreeAddressBesideOthers(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, other.Close()) }()
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(other.Addr().(*net.TCPAddr).Port)}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{LivenessProbe: probe}}}}
	assert.Equal(t, "127.0.0.2", (&Runner{workloads: map[string]*workload{}}).freeAddress(pod))
}

// Two platforms that look for an address at the same moment find the same one free: who then cannot listen gets another one for the
// next start. An address that the processes of the workload themselves use stays.
func TestReaddress(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, listener.Close()) }()
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: port}}}, {}}}}
	w := &workload{first: pod, address: "127.0.0.1", statuses: make([]process.Status, 2)}
	r := &Runner{workloads: map[string]*workload{"w": w}}

	w.statuses[0].Running = &process.Process{}
	r.readdress(w)
	assert.Equal(t, "127.0.0.1", r.addressOf(w), "it may be its own")

	w.statuses[0] = process.Status{Restarts: 1}
	r.readdress(w)
	assert.Equal(t, "127.0.0.2", r.addressOf(w))
	r.readdress(w)
	assert.Equal(t, "127.0.0.2", r.addressOf(w), "it is free")
}

// Pods with the same port get addresses of their own, others share the first one.
func TestFreeAddress(t *testing.T) {
	pod := func(ports ...int32) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
		for _, port := range ports {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: port})
		}
		return p
	}
	r := &Runner{workloads: map[string]*workload{}}
	for i, test := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{pod(1), "127.0.0.1"}, {pod(1, 2), "127.0.0.2"}, {pod(), "127.0.0.1"}, {pod(2), "127.0.0.1"}, {pod(1), "127.0.0.3"}, {pod(2), "127.0.0.3"},
	} {
		address := r.freeAddress(test.pod)
		assert.Equal(t, test.want, address, "pod %d", i)
		r.workloads[fmt.Sprint(i)] = &workload{first: test.pod, address: address}
	}
}

// The node of this machine is simulated for pods that are not ours, on a platform that had it before as well.
func TestHostNode(t *testing.T) {
	r := &Runner{client: fake.NewClientset()}
	for range 2 {
		require.NoError(t, r.ensureHostNode(t.Context()))
		node, err := r.client.CoreV1().Nodes().Get(t.Context(), HostNode, metav1.GetOptions{})
		require.NoError(t, err)
		assert.True(t, simulate.IsSimulated(node))
		assert.Equal(t, controlPlaneLabel, node.Spec.Taints[0].Key)
		node.Annotations = map[string]string{"example.com/other": "kept"} // as it was
		_, err = r.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}
