package simulate

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// KubeletAddress is the address of every simulated node for the API server, which asks
// kubelets for logs.
const KubeletAddress = "localhost"

// Kubelet answers what the API server asks the kubelets of simulated nodes: for logs,
// which say that there are none. logDir is where the programs that do run write theirs.
func Kubelet(client kubernetes.Interface, logDir string) http.Handler {
	mux := http.NewServeMux()
	k := &kubelet{client, logDir}
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	return mux
}

type kubelet struct {
	client kubernetes.Interface
	logDir string
}

func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	pod, err := k.client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
	if err != nil {
		code := http.StatusInternalServerError
		if apierrors.IsNotFound(err) {
			code = http.StatusNotFound
		}
		http.Error(w, err.Error(), code)
		return
	}
	query := r.URL.Query()
	lines := k.lines(pod, r.PathValue("container"))
	if tail, err := strconv.Atoi(query.Get("tailLines")); err == nil && tail >= 0 {
		lines = lines[len(lines)-min(tail, len(lines)):]
	}
	var text strings.Builder
	for _, line := range lines {
		if query.Get("timestamps") == "true" {
			fmt.Fprintf(&text, "%s ", started(pod).UTC().Format(time.RFC3339Nano))
		}
		fmt.Fprintln(&text, line)
	}
	out := text.String()
	if limit, err := strconv.Atoi(query.Get("limitBytes")); err == nil {
		out = out[:min(limit, len(out))]
	}
	if _, err := io.WriteString(w, out); err != nil {
		return
	}
	if flusher, ok := w.(http.Flusher); ok && query.Get("follow") == "true" {
		flusher.Flush()
		k.awaitEnd(r.Context(), pod)
	}
}

// lines is all that a simulated container prints.
func (k *kubelet) lines(pod *corev1.Pod, container string) []string {
	if pod.Labels[contract.PartOfLabel] == contract.PartOfValue {
		return []string{fmt.Sprintf("This pod runs as a process of this machine, and its log is a file in %s.", k.logDir)}
	}
	lines := []string{
		"This pod is simulated by gpuplan-local: nothing runs, so there is no log.",
		fmt.Sprintf("Pod %s/%s, container %s, on node %s since %s.", pod.Namespace, pod.Name, container, pod.Spec.NodeName, started(pod).UTC().Format(time.RFC3339)),
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			lines = append(lines, "It would run: "+strings.Join(append(c.Command, c.Args...), " "))
		}
	}
	if gpus, ok := pod.Annotations[contract.GPUsAnnotation]; ok {
		lines = append(lines, "on the GPUs "+gpus+" of the node.")
	}
	return append(lines, fmt.Sprintf("It ends when an annotation says so: %s=90s lets it succeed after that time, %s=90s lets it fail.",
		contract.RunForAnnotation, contract.FailAfterAnnotation))
}

func started(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// awaitEnd returns when the pod has ended or gone, or nobody follows any more.
func (k *kubelet) awaitEnd(ctx context.Context, pod *corev1.Pod) {
	changes, err := k.client.CoreV1().Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String(),
	})
	if err != nil {
		return
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		now, ok := change.Object.(*corev1.Pod)
		if !ok || change.Type == watch.Deleted || now.UID != pod.UID || now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed {
			return
		}
	}
}
