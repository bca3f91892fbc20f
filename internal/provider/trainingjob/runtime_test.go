package trainingjob

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

// staleWebhook refuses so many TrainJobs with a message, and lets the rest pass.
type staleWebhook struct {
	next    http.RoundTripper
	message string
	left    atomic.Int32
}

func (w *staleWebhook) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/"+contract.TrainJobResource) || w.left.Add(-1) < 0 {
		return w.next.RoundTrip(r)
	}
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid, Message: w.message,
	})
	return &http.Response{StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// trainer is a server that serves TrainJobs and their runtimes.
func trainer(t *testing.T) *kubetest.Server {
	t.Helper()
	server := kubetest.Start(t)
	for kind, plural := range map[string]string{contract.TrainJobKind: contract.TrainJobResource, contract.TrainingRuntimeKind: contract.TrainingRuntimeResource} {
		server.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + contract.TrainerGroup},
			"spec": map[string]any{
				"group": contract.TrainerGroup, "scope": "Namespaced", "names": map[string]any{"kind": kind, "plural": plural},
				"versions": []any{map[string]any{"name": contract.TrainerVersion, "served": true}},
			},
		}})
	}
	return server
}

// Kubeflow Trainer's webhook looks for the runtime in a cache, which has it a moment later than the API server.
func TestTrainJobWhoseRuntimeTheWebhookDoesNotSeeYet(t *testing.T) {
	for name, test := range map[string]struct {
		message string
		refused bool
	}{
		"the runtime":    {`admission webhook denied the request: spec.runtimeRef: Invalid value: TrainingRuntime.trainer.kubeflow.org "j" not found: specified trainingRuntime must be created before the TrainJob is created`, false},
		"something else": {"admission webhook denied the request: no", true},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &staleWebhook{message: test.message}
			webhook.left.Store(2)
			config := trainer(t).Config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { webhook.next = next; return webhook })
			client, err := kube.New(config)
			require.NoError(t, err)
			spec := job.Spec{Namespace: "default", Name: "j", Framework: job.TrainJob, Mode: job.Default, Roles: map[string]job.Role{"worker": {Replicas: 1, Image: "i", GPUs: 1}}}
			obj, err := spec.Render()
			require.NoError(t, err)
			_, err = write(t.Context(), client, spec, obj, nil, nil)
			_, gone := client.Get(t.Context(), job.RuntimeGVK(), "default", "j")
			if test.refused {
				require.ErrorContains(t, err, test.message)
				assert.True(t, kube.IsNotFound(gone), "%v", gone)
				return
			}
			require.NoError(t, err)
			require.NoError(t, gone)
			assert.Negative(t, webhook.left.Load(), "it was asked until it agreed")
		})
	}
}
