package trainingjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Of a log a diagnostic has so many lines, and so many characters of each.
const (
	logLines   = 20
	lineLength = 200
)

// logBytes bounds what is kept of the last lines while they are read, logPatience for how long that is.
const (
	logBytes    = 256 << 10
	logPatience = 10 * time.Second
)

// lastWords says how the first pod of a job failed that did, with the end of its log, in sentences; "" where
// that cannot be found out. What a program writes may be secret: it is for a diagnostic alone, which no state has.
func lastWords(ctx context.Context, client *kube.Client, spec job.Spec, created metav1.Time) string {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	pods, err := client.Typed.CoreV1().Pods(spec.Namespace).List(ctx, metav1.ListOptions{LabelSelector: podLabels(spec).String()})
	if err != nil {
		return ""
	}
	first, found := firstEnd(pods.Items, created)
	if !found {
		return ""
	}
	text := fmt.Sprintf("Pod %s/%s failed first, with %s.", spec.Namespace, first.pod, first)
	lines, err := readLog(ctx, client, spec.Namespace, first.pod, corev1.PodLogOptions{Container: first.container, Previous: first.restarted}, logLines)
	switch {
	case len(lines) > 0: // all that came before an error
	case err != nil:
		return fmt.Sprintf("%s Its log cannot be read: %s.", text, strings.TrimSuffix(err.Error(), "."))
	default:
		return text + " It has no log."
	}
	// Terraform leaves lines as they are that begin with a space.
	return fmt.Sprintf("%s The end of its log, which is stored nowhere:\n\n  %s\n\nAll of it: %s.", text, strings.Join(lines, "\n  "), first.command(spec.Namespace))
}

// end is how a container ended.
type end struct {
	pod, container string
	*corev1.ContainerStateTerminated
	// restarted means that the container was started again since.
	restarted bool
}

func (e end) String() string {
	if e.Reason == "" {
		return fmt.Sprintf("exit code %d", e.ExitCode)
	}
	return fmt.Sprintf("exit code %d (%s)", e.ExitCode, e.Reason)
}

// readLog returns the last lines that a container wrote, as they can be shown, and what it could not read of them.
func readLog(ctx context.Context, client *kube.Client, namespace, pod string, of corev1.PodLogOptions, lines int64) ([]string, error) {
	of.TailLines = &lines
	stream, err := client.Typed.CoreV1().Pods(namespace).GetLogs(pod, &of).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	text, err := ending(stream)
	return tail(text, int(lines)), err
}

// ending reads a log to its end, or to an error, and returns the last [logBytes] of what it has read at most. A line
// that is cut begins with an ellipsis.
func ending(log io.Reader) (text string, err error) {
	var kept []byte
	ellipsis, chunk := "", make([]byte, logBytes)
	keep := func() {
		if over := len(kept) - logBytes; over > 0 {
			kept, ellipsis = append(kept[:0], kept[over:]...), "…"
		}
	}
	for err == nil {
		var n int
		n, err = log.Read(chunk)
		if kept = append(kept, chunk[:n]...); len(kept) > 2*logBytes {
			keep()
		}
	}
	keep()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return ellipsis + string(kept), err
}

// command is how a user reads the whole log.
func (e end) command(namespace string) string {
	previous := ""
	if e.restarted {
		previous = " --previous"
	}
	return fmt.Sprintf("`kubectl -n %s logs %s -c %s%s`", namespace, e.pod, e.container, previous)
}

// firstEnd returns the first failure of a container among the pods of a job, since what fails later mostly fails
// for it. Of several at one time it is that of the first pod by name, which is that of the leading role. Pods from
// before the job was created are those of an earlier one of its name.
func firstEnd(pods []corev1.Pod, created metav1.Time) (first end, found bool) {
	var ends []end
	for _, pod := range pods {
		if pod.CreationTimestamp.Before(&created) {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			for restarted, state := range map[bool]*corev1.ContainerStateTerminated{false: c.State.Terminated, true: c.LastTerminationState.Terminated} {
				if state != nil && state.ExitCode != 0 {
					ends = append(ends, end{pod.Name, c.Name, state, restarted})
				}
			}
		}
	}
	if len(ends) == 0 {
		return end{}, false
	}
	return slices.MinFunc(ends, func(a, b end) int {
		return cmp.Or(a.FinishedAt.Compare(b.FinishedAt.Time), cmp.Compare(a.pod, b.pod))
	}), true
}

// escapes are what terminals take for commands.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// tail returns the last lines of a log as they can be shown: without what is meant for a terminal, and none too long.
func tail(log string, count int) (lines []string) {
	for line := range strings.SplitSeq(strings.TrimRight(log, "\r\n"), "\n") {
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndex(line, "\r")+1:] // a progress bar writes one line again and again
		line = strings.Map(func(r rune) rune {
			if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				return -1
			}
			return r
		}, strings.ToValidUTF8(escapes.ReplaceAllString(line, ""), "?"))
		if runes := []rune(line); len(runes) > lineLength {
			line = string(runes[:lineLength]) + "…"
		}
		lines = append(lines, line)
	}
	if strings.TrimSpace(strings.Join(lines, "")) == "" {
		return nil
	}
	return lines[max(0, len(lines)-count):]
}
