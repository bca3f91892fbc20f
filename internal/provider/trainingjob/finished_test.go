package trainingjob_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// succeed reports, as its operator, that the PyTorchJob j has succeeded.
func succeed(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	status := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{"type": "Succeeded", "status": "True"}},
	}}}
	status.SetGroupVersionKind(job.PyTorch.GVK())
	status.SetNamespace("default")
	status.SetName("j")
	jobs := schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: "v1", Resource: contract.PyTorchJobResource}
	_, err := cloud.Kube.Dynamic.Resource(jobs).Namespace("default").ApplyStatus(t.Context(), "j", status, metav1.ApplyOptions{FieldManager: "operator", Force: true})
	require.NoError(t, err)
}

// A job that is over neither ends nor starts when suspend changes: it needs no place, and keeps what is known of it.
func TestFinishedJobIsNotResumed(t *testing.T) {
	for name, test := range map[string]struct{ cleanedUp, anothers, busy bool }{
		"its object is there":                {},
		"cleaned up":                         {cleanedUp: true},
		"cleaned up, another has its name":   {cleanedUp: true, anothers: true},
		"its object is there, no room is":    {busy: true},
		"cleaned up, and there is no room":   {cleanedUp: true, busy: true},
		"another has its name, and its room": {cleanedUp: true, anothers: true, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			cli := acctest.StartCLI(t)
			write := func(more string) {
				cli.Write(t, oneJob("pytorch", "require_immediate = true\n  ttl_seconds_after_finished = 60\n  "+more, ""))
			}
			write("")
			cli.Must(t, "apply", "-auto-approve")
			succeed(t, cloud)
			cli.Must(t, "apply", "-auto-approve", "-refresh-only")
			if test.cleanedUp {
				cloud.API.Remove(job.PyTorch.GVK(), "default", "j")
			}
			if test.anothers {
				cloud.API.Put(liveJob(t, job.PyTorch, "c"))
			}
			if test.busy {
				cloud.Put(t, acctest.GangPod("busy", "busy-worker-0", "cn-hangzhou.10.0.1.1", 0, 1, 2, 3, 4, 5, 6, 7))
			}
			for _, more := range []string{"suspend = true", ""} {
				write(more)
				cli.Apply(t, 0, 1, 0)
				cli.Unchanged(t)
			}
		})
	}
}

// Of a job with a time to live that is gone, one that may have run counts as cleaned up; one that was suspended is
// created again.
func TestJobThatIsGoneMayBeCleanedUp(t *testing.T) {
	for name, test := range map[string]struct {
		body  string
		again bool
	}{
		"it may have run":        {"ttl_seconds_after_finished = 60", false},
		"suspended":              {"ttl_seconds_after_finished = 60\n  suspend = true", true},
		"nothing would clean up": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			cli := acctest.StartCLI(t)
			cli.Write(t, oneJob("pytorch", `placement_check = "off"`+"\n  "+test.body, ""))
			cli.Must(t, "apply", "-auto-approve")
			cloud.API.Remove(job.PyTorch.GVK(), "default", "j")
			if !test.again {
				cli.Unchanged(t)
				return
			}
			cli.Apply(t, 1, 0, 0)
			_, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
			assert.NoError(t, err)
		})
	}
}
