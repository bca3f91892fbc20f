package live_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// limited is a namespace with a LimitRange, which admission applies a while after it was told.
type limited struct {
	*kube.Client
	name string
}

func newLimited(t *testing.T, client *kube.Client) limited {
	t.Helper()
	l := limited{client, "limited"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.name}}
	_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, client.Typed.CoreV1().Namespaces().Delete(context.Background(), l.name, metav1.DeleteOptions{}))
	})
	return l
}

// request has admission give every container without requests so much CPU, "" for no LimitRange.
func (l limited) request(t *testing.T, cpu string) {
	t.Helper()
	core := l.Typed.CoreV1()
	require.NoError(t, core.LimitRanges(l.name).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	want := "0"
	if cpu != "" {
		want = cpu
		_, err := core.LimitRanges(l.name).Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "defaults-"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type:           corev1.LimitTypeContainer,
				Default:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("60")},
				DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	require.Eventually(t, func() bool {
		made, err := core.Pods(l.name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && made.Spec.Containers[0].Resources.Requests.Cpu().String() == want
	}, time.Minute, 50*time.Millisecond)
}

// What admission adds to the pods of a job decides whether the plan passes, and never where
// it puts them.
func TestRequestsThatAdmissionAdds(t *testing.T) {
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	cluster := setting{size: 2}.config()
	with := func(more string) string {
		return cluster + fmt.Sprintf(`
resource "gpuplan_training_job" "a" {
  name       = "a"
  namespace  = "limited"
  framework  = "pytorch"
  image      = "train:1"
  pools      = [gpuplan_node_pool.v100.capacity]
  timeouts   = { create = "10m" }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
  %s
}
`, more)
	}
	plain := with("roles = { worker = { replicas = 4, gpus = 1 } }")
	l := newLimited(t, client)
	t.Cleanup(func() {
		cli.Write(t, cluster)
		cli.Must(t, "destroy", "-auto-approve")
	})
	const moved, added = "Job will not start where it is planned", "cpu %s (role worker). Set cpu in the role"
	run := func(t *testing.T, fails bool, args ...string) string {
		t.Helper()
		output, err := cli.Run(args...)
		require.Equal(t, fails, err != nil, output)
		return strings.ReplaceAll(acctest.Unwrapped(output), "Warning: Members cannot use the NVLink", "") // of PyTorch it is so, whatever is added
	}
	gone := func(t *testing.T) {
		t.Helper()
		cli.Write(t, cluster)
		cli.Must(t, "apply", "-auto-approve")
		cli.Write(t, plain)
	}

	// Behind the back of a plan that makes the nodes, too.
	cli.Write(t, plain)
	assert.NotContains(t, run(t, false, "plan", "-out=saved"), "Placement")
	l.request(t, "50")
	output := run(t, true, "apply", "saved")
	assert.Contains(t, output, "oes not fit any more. 2 of 4 members fit")
	assert.Contains(t, output, fmt.Sprintf(added, "50"))

	for _, test := range []struct {
		cpu, config, want string
		fails             bool
	}{
		{"50", plain, "Job limited/a does not fit: 2 of 4 members fit", true},
		{"40", plain, moved, false},
		{"10", plain, "", false},
		{"50", with(`roles = { worker = { replicas = 4, gpus = 1, cpu = "8" } }`), "", false},
		{"50", with("placement_check = \"warn\"\n  roles = { worker = { replicas = 4, gpus = 1 } }"), "Job limited/a does not fit: 2 of 4 members fit", false},
		{"40", with("suspend = true\n  roles = { worker = { replicas = 4, gpus = 1 } }"), "", false},
	} {
		l.request(t, test.cpu)
		cli.Write(t, test.config)
		output := run(t, test.fails, "plan")
		if test.want == "" {
			assert.NotContains(t, output, "Warning")
			continue
		}
		assert.Contains(t, output, test.want)
		assert.Contains(t, output, fmt.Sprintf(added, test.cpu))
		if !test.fails {
			assert.Contains(t, output, "+ planned_node_count = 1", "the promise is what it was")
		}
	}

	// Announced by the plan, the job runs elsewhere; nothing of it is left to do.
	l.request(t, "40")
	cli.Write(t, plain)
	assert.Contains(t, run(t, false, "apply", "-auto-approve"), moved)
	assert.Equal(t, "false", asPlanned(t, cli, "a"))
	assert.NotContains(t, run(t, false, "plan", "-detailed-exitcode"), "Warning")

	// A job that takes the place of itself meets its own pods, and its successor is told the same.
	cli.Write(t, strings.ReplaceAll(plain, "train:1", "train:2"))
	assert.Contains(t, run(t, false, "plan"), moved)
	l.request(t, "50")
	assert.Contains(t, run(t, true, "plan"), "Job limited/a does not fit: 2 of 4 members fit")
	gone(t)

	// A LimitRange that comes after the plan.
	for _, late := range []struct {
		cpu, want string
		fails     bool
	}{
		{"50", "2 of 4 members fit: 2 nodes have too little CPU left", true},
		{"40", "It is placed on other nodes or GPUs", false},
	} {
		l.request(t, "")
		assert.NotContains(t, run(t, false, "plan", "-out=saved"), "Warning")
		l.request(t, late.cpu)
		output := run(t, late.fails, "apply", "saved")
		assert.Contains(t, output, late.want)
		assert.Contains(t, output, fmt.Sprintf(added, late.cpu))
	}
	gone(t)
	cli.Write(t, cluster)
}
