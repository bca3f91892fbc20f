package trainingjob_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// operate is an operator that reports one condition of each PyTorchJob, and how many of its
// workers run. It closes created when it has reported the first.
func operate(t *testing.T, cloud *acctest.Cloud, condition string, active int64) (created chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	created = make(chan struct{})
	ended := make(chan struct{})
	jobs := cloud.Kube.Dynamic.Resource(schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}).Namespace("default")
	changes, err := jobs.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	go func() {
		defer close(ended)
		for event := range changes.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type != watch.Added {
				continue
			}
			update := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
				"conditions":      []any{map[string]any{"type": condition, "status": "True", "message": "so it is"}},
				"replicaStatuses": map[string]any{"Worker": map[string]any{"active": active}},
			}}}
			update.SetGroupVersionKind(job.PyTorch.GVK())
			update.SetNamespace("default")
			update.SetName(object.GetName())
			_, err := jobs.ApplyStatus(ctx, object.GetName(), update, metav1.ApplyOptions{FieldManager: "operator", Force: true})
			if assert.NoError(t, err) {
				close(created)
			}
			return
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return created
}

// tainted is how a plan replaces what is, in the words of Terraform and of OpenTofu.
var tainted = regexp.MustCompile(`is tainted, so (it )?must be replaced`)

// From its creation on a job goes on unless something is wrong with the job itself: that
// nobody waits any more makes no next apply delete it.
func TestWaitThatEndsEarly(t *testing.T) {
	const short = "\n  timeouts = { create = \"8s\" }"
	for name, test := range map[string]struct {
		body      string
		condition string
		active    int64
		interrupt bool
		// fails means that the apply fails, says what it says; lost that the next plan replaces the job.
		fails, lost bool
		says        string
	}{
		"time is up while it waits":           {short, "Created", 0, false, false, false, "Job was created, but is not running"},
		"time is up while it runs":            {"wait_for = \"succeeded\"" + short, "Running", 4, false, false, false, "Job was created, but has not succeeded"},
		"interrupted while it waits":          {"", "Created", 0, true, true, false, "Job was created, but is not running"},
		"interrupted while it runs":           {`wait_for = "succeeded"`, "Running", 4, true, true, false, "Job was created, but has not succeeded"},
		"it was to start immediately":         {"require_immediate = true" + short, "Created", 0, false, true, true, "timed out"},
		"it runs, and started immediately":    {"require_immediate = true\n  wait_for = \"succeeded\"" + short, "Running", 4, false, false, false, "has not succeeded"},
		"to start immediately, interrupted":   {"require_immediate = true", "Created", 0, true, true, false, "is not running"},
		"it has failed":                       {"", "Failed", 0, false, true, true, "the job has failed: so it is"},
		"it has failed, and is to succeed":    {`wait_for = "succeeded"`, "Failed", 0, false, true, true, "the job has failed: so it is"},
		"it has come as far as it was waited": {"", "Running", 4, false, false, false, "Apply complete"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			created := operate(t, cloud, test.condition, test.active)
			terraform := acctest.StartCLI(t)
			terraform.Write(t, strings.Replace(oneJob("pytorch", test.body, ""), "  wait_for  = \"none\"\n", "", 1))
			cmd := terraform.Command("apply", "-auto-approve")
			var output bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &output
			require.NoError(t, cmd.Start())
			if test.interrupt {
				select {
				case <-created:
				case <-time.After(2 * time.Minute):
					t.Error("no job was created")
				}
				require.NoError(t, cmd.Process.Signal(os.Interrupt))
			}
			err := cmd.Wait()
			assert.Equal(t, test.fails, err != nil, output.String())
			assert.Contains(t, acctest.Unwrapped(output.String()), test.says)

			next, err := terraform.Run("plan", "-detailed-exitcode")
			assert.Equal(t, test.lost, err != nil, next)
			assert.Equal(t, test.lost, tainted.MatchString(next), next)
		})
	}
}

// What depends on the end of a job is held back by a postcondition, which leaves the job alone.
func TestPostconditionHoldsBackWhatComesAfter(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	operate(t, cloud, "Running", 4)
	terraform := acctest.StartCLI(t)
	terraform.Write(t, strings.Replace(oneJob("pytorch", `wait_for = "succeeded"
  timeouts = { create = "8s" }
  lifecycle {
    postcondition {
      condition     = self.status == "Succeeded"
      error_message = "It has not succeeded yet."
    }
  }`, `resource "terraform_data" "after" { depends_on = [gpuplan_training_job.j] }`), "  wait_for  = \"none\"\n", "", 1))
	output, err := terraform.Run("apply", "-auto-approve")
	require.Error(t, err, output)
	assert.Contains(t, output, "It has not succeeded yet.")
	state := terraform.Must(t, "show", "-json")
	assert.Contains(t, state, `"gpuplan_training_job.j"`)
	assert.NotContains(t, state, `"tainted":true`)
	assert.NotContains(t, state, "terraform_data.after")
}
