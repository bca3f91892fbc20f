package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// source has one node with eight GPUs and one pod that asks for nine.
func source(t *testing.T) Source {
	t.Helper()
	cache := clustercache.New()
	eight := corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("110")}
	_, err := cache.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{contract.NodeModeLabel: "topology", contract.NodePoolNameLabel: "v100"}},
		Status:     corev1.NodeStatus{Capacity: eight, Allocatable: eight},
	})
	require.NoError(t, err)
	cache.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "greedy", UID: "1"}, Spec: corev1.PodSpec{
		SchedulerName: contract.SchedulerName,
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			contract.ResourceTopologyGPU: resource.MustParse("9")}}}},
	}})
	return Source{
		Cache: cache, Synced: func(context.Context) error { return nil },
		Around: func(context.Context, string) (explain.Around, error) { return explain.Around{}, nil },
	}
}

func get(handler http.Handler, path, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestAnswers(t *testing.T) {
	handler := Handler(source(t))
	for path, want := range map[string]struct {
		status      int
		contentType string
		part        string
	}{
		"/gpuplan/gangs":                            {200, "application/json", `"gang":"default/greedy"`},
		"/gpuplan/gangs?output=text":                {200, "text/plain; charset=utf-8", "default/greedy  Waiting"},
		"/gpuplan/gangs/default/greedy":             {200, "application/json", `"code":"NotEnoughGPUs"`},
		"/gpuplan/gangs/default/greedy?output=text": {200, "text/plain; charset=utf-8", "Pod default/greedy waits, because"},
		"/gpuplan/gangs/default/other":              {404, "text/plain; charset=utf-8", "default/other"},
		"/gpuplan/map":                              {200, "application/json", `"pools":[{"name":"v100"`},
		"/gpuplan/map?output=svg":                   {200, "image/svg+xml", "<svg "},
		"/gpuplan/map?output=text":                  {200, "text/plain; charset=utf-8", "8 of 8"},
		"/gpuplan/map?output=pdf":                   {400, "text/plain; charset=utf-8", `no output "pdf"`},
		"/gpuplan/without?node=n1&output=text":      {200, "text/plain; charset=utf-8", "nobody loses a place"},
		"/gpuplan/without":                          {200, "application/json", "[]"},
		"/gpuplan/without?node=elsewhere":           {400, "text/plain; charset=utf-8", `no node "elsewhere"`},
		"/gpuplan/elsewhere":                        {404, "text/plain; charset=utf-8", "not found"},
	} {
		w := get(handler, path, "")
		assert.Equal(t, want.status, w.Code, path)
		assert.Equal(t, want.contentType, w.Header().Get("Content-Type"), path)
		assert.Contains(t, w.Body.String(), want.part, path)
	}
	var list []explain.Answer
	require.NoError(t, json.Unmarshal(get(handler, "/gpuplan/gangs/default/greedy", "").Body.Bytes(), &list))
	assert.Equal(t, explain.Waiting, list[0].State)
}

func TestNoAnswerBeforeTheClusterIsRead(t *testing.T) {
	s := source(t)
	s.Synced = func(context.Context) error { return errors.New("no connection") }
	w := get(Handler(s), "/gpuplan/map", "")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "no connection")
}

// Nobody gets an answer without a name, and nobody without the right to the path.
func TestGuard(t *testing.T) {
	guard := Guard{
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, ok, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "admin" && !a.IsResourceRequest() && a.GetVerb() == "get" && a.GetPath() == "/gpuplan/map" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
	}
	handler := guard.protect(Handler(source(t)))
	assert.Equal(t, http.StatusUnauthorized, get(handler, "/gpuplan/map", "").Code)
	assert.Equal(t, http.StatusForbidden, get(handler, "/gpuplan/map", "guest").Code)
	assert.Equal(t, http.StatusForbidden, get(handler, "/gpuplan/gangs", "admin").Code)
	assert.Equal(t, http.StatusOK, get(handler, "/gpuplan/map", "admin").Code)
}
