package trainingjob

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

func TestFirstEnd(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC)) }
	terminated := func(second int, code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: at(second)}}
	}
	pod := func(name string, created int, now, last corev1.ContainerState) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(created)},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: now, LastTerminationState: last}}},
		}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	var never corev1.ContainerState
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want string // the command that shows its log, "" for none
	}{
		"nothing ended":     {[]corev1.Pod{pod("a", 10, running, never)}, ""},
		"one succeeded":     {[]corev1.Pod{pod("a", 10, terminated(20, 0), never)}, ""},
		"one failed":        {[]corev1.Pod{pod("a", 10, running, never), pod("b", 10, terminated(20, 1), never)}, "`kubectl -n n logs b -c main`"},
		"the first of two":  {[]corev1.Pod{pod("a", 10, terminated(30, 1), never), pod("b", 10, terminated(20, 1), never)}, "`kubectl -n n logs b -c main`"},
		"both at once":      {[]corev1.Pod{pod("b", 10, terminated(20, 1), never), pod("a", 10, terminated(20, 1), never)}, "`kubectl -n n logs a -c main`"},
		"started again":     {[]corev1.Pod{pod("a", 10, running, terminated(20, 1))}, "`kubectl -n n logs a -c main --previous`"},
		"of an earlier job": {[]corev1.Pod{pod("a", 1, terminated(2, 1), never)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			first, found := firstEnd(test.pods, at(5))
			assert.Equal(t, test.want != "", found)
			if found {
				assert.Equal(t, test.want, first.command("n"))
				assert.Equal(t, "exit code 1 (Error)", first.String())
			}
		})
	}
}

func TestTail(t *testing.T) {
	var long strings.Builder
	for range 100 {
		long.WriteString("line\n")
	}
	for name, test := range map[string]struct {
		log  string
		want []string
	}{
		"nothing":        {"", nil},
		"blank":          {"\n \n", nil},
		"lines":          {"a\n\nb\n", []string{"a", "", "b"}},
		"of Windows":     {"a\r\nb\r\n", []string{"a", "b"}},
		"a progress bar": {"start\n 10%\r 50%\r100%\nend", []string{"start", "100%", "end"}},
		"colours":        {"\x1b[31;1mRuntimeError\x1b[0m: \x1b[2Jout of memory", []string{"RuntimeError: out of memory"}},
		"other commands": {"a\x07\x1b]0;title\u202eb\tc", []string{"a]0;titleb\tc"}},
		"no text":        {"a\xff\xfeb", []string{"a?b"}},
		"a long line":    {strings.Repeat("ä", lineLength+1), []string{strings.Repeat("ä", lineLength) + "…"}},
		"many lines":     {long.String(), strings.Split(strings.Repeat("line ", logLines-1)+"line", " ")},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, tail(test.log, logLines)) })
	}
}

// Of long lines the end is what says why a program failed.
func TestEnding(t *testing.T) {
	reset := errors.New("connection reset")
	long := strings.Repeat("x", logBytes)
	for name, test := range map[string]struct {
		log  io.Reader
		want string
		err  error
	}{
		"nothing":             {strings.NewReader(""), "", nil},
		"all of it":           {strings.NewReader("a\nb\n"), "a\nb\n", nil},
		"as much as is kept":  {strings.NewReader(long), long, nil},
		"more than that":      {strings.NewReader("begin\n" + long[:logBytes-4] + "\nend"), "…" + long[:logBytes-4] + "\nend", nil},
		"in small pieces":     {iotest.OneByteReader(strings.NewReader("begin" + long[:logBytes-3] + "end")), "…" + long[:logBytes-3] + "end", nil},
		"until an error":      {io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(reset)), "a\n", reset},
		"long until an error": {io.MultiReader(strings.NewReader(long+"end"), iotest.ErrReader(reset)), "…" + long[3:] + "end", reset},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ending(test.log)
			assert.Equal(t, test.err, err)
			assert.True(t, test.want == got, "%d characters, not %d, which end with %q", len(got), len(test.want), got[max(0, len(got)-10):])
		})
	}
}

// The diagnostic of a failed pod has the last words, however much came before them.
func TestLastLinesOfAChattyPod(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "20", r.URL.Query().Get("tailLines"))
		for range logLines - 1 {
			fmt.Fprintln(w, strings.Repeat("loss ", logBytes/5))
		}
		fmt.Fprintln(w, "RuntimeError: out of memory")
	}))
	t.Cleanup(server.Close)
	typed, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	lines, err := readLog(t.Context(), &kube.Client{Typed: typed}, "n", "a", corev1.PodLogOptions{Container: "main"}, logLines)
	require.NoError(t, err)
	assert.Equal(t, "RuntimeError: out of memory", lines[len(lines)-1])
}
