package queue_test

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// slowAnswers is how long the answer to a change of a job takes.
const slowAnswers = 300 * time.Millisecond

// TestDeletedWhileItsReleaseIsAnswered deletes every job as soon as it is released, before
// the controller hears that it was. None of them is left in the controller's books, and
// none stands in the way of the next ones or of the next tree.
func TestDeletedWhileItsReleaseIsAnswered(t *testing.T) {
	s := newTestCluster(t)
	startControllerBy(t, localtest.Start(t).Proxy(t, &httputil.ReverseProxy{
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPatch && strings.Contains(r.Request.URL.Path, "/jobs/") {
				time.Sleep(slowAnswers) // a busy API server
			}
			return nil
		},
	}))
	s.tree(flatTree("kube-queue/max-jobs: 4"))
	s.awaitController()
	w, err := s.client.Typed.BatchV1().Jobs(s.namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	const count = 24
	for i := range count {
		s.submit(batch{name: fmt.Sprintf("job-%d", i)})
	}
	deleted := map[string]bool{}
	for event := range w.ResultChan() {
		job, ok := event.Object.(*batchv1.Job)
		if ok && !*job.Spec.Suspend && !deleted[job.Name] {
			s.remove(job.Name)
			deleted[job.Name] = true
		}
		if len(deleted) == count {
			break
		}
	}
	require.Len(t, deleted, count)
	s.await("the books to be empty", func() (bool, string) {
		status := s.queues()["root/leaf"].Status
		return status.Active == 0 && status.Pending == 0, fmt.Sprintf("%+v", status)
	})
	s.tree("name: root\nmin: {cpu: 100}\nmax: {cpu: 100}\nchildren:\n- name: other\n  namespaces: [NS]\n")
	s.await("the old leaf's queue to go", func() (bool, string) {
		queues := s.queues()
		return len(queues) == 2 && queues["root/leaf"].Name == "", fmt.Sprint(queues)
	})
}
