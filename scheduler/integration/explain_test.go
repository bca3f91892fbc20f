package integration

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// answering is a scheduler with its ports open, and with changes of its configuration.
type answering struct {
	t                *testing.T
	metrics, answers string
}

func startAnswering(t *testing.T, changes map[string]string) answering {
	t.Helper()
	metrics, answers := strconv.Itoa(localtest.FreePort(t)), strconv.Itoa(localtest.FreePort(t))
	runScheduler(t, changes, "--bind-address=127.0.0.1", "--secure-port="+metrics, "--explain-port="+answers)
	return answering{t, "https://127.0.0.1:" + metrics, "https://127.0.0.1:" + answers}
}

// get asks with a token, "" for none.
func (a answering) get(url, token string) (status int, body string) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, url, nil)
	require.NoError(a.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The scheduler signs its certificate itself.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	require.NoError(a.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(a.t, err)
	return response.StatusCode, string(raw)
}

var patches = regexp.MustCompile(`(?m)^rest_client_requests_total\{code="\d+",host="[^"]*",method="PATCH"\} (\S+)$`)

// patches counts the PATCH calls that the scheduler has made so far.
func (a answering) patches(token string) int {
	a.t.Helper()
	status, body := a.get(a.metrics+"/metrics", token)
	require.Equal(a.t, http.StatusOK, status, body)
	sum := 0
	for _, match := range patches.FindAllStringSubmatch(body, -1) {
		n, err := strconv.Atoi(match[1])
		require.NoError(a.t, err)
		sum += n
	}
	return sum
}

// reader makes a service account with cluster roles of the scheduler's manifests, and
// returns a token of it once the API server grants the rights, which it learns of by a watch.
func (s *testCluster) reader(name string, roles ...string) (token string) {
	s.t.Helper()
	ctx := s.t.Context()
	_, err := api().CoreV1().ServiceAccounts(s.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	objects, err := deploy.Objects(deploy.Options{Image: "test"})
	require.NoError(s.t, err)
	for _, role := range roles {
		var granted rbacv1.ClusterRole
		for _, object := range objects {
			if object.GetKind() == "ClusterRole" && object.GetName() == role {
				_, err := cluster.client.Apply(ctx, object)
				require.NoError(s.t, err)
				require.NoError(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &granted))
			}
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: name}},
		}
		_, err := api().RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		require.NoError(s.t, err)
		s.t.Cleanup(func() {
			assert.NoError(s.t, api().RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
		})
		for _, rule := range granted.Rules {
			for _, url := range rule.NonResourceURLs {
				s.awaitRight(name, strings.Replace(url, "*", "any", 1))
			}
		}
	}
	made, err := api().CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return made.Status.Token
}

// awaitRight waits until a service account may get a path that is no resource. A scheduler that asks before
// remembers the refusal for a while.
func (s *testCluster) awaitRight(account, path string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		review, err := api().AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  "system:serviceaccount:" + s.namespace + ":" + account,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		}}, metav1.CreateOptions{})
		require.NoError(s.t, err)
		return review.Status.Allowed
	}, settled, 20*time.Millisecond, "%s may get %s", account, path)
}

// A gang that waits is written about when the reason changes, with an event; its numbers
// stand on the PodGroup and one pod. Nothing is written for anything else that happens.
func TestWaitingGangIsWrittenOnce(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"}, machine{count: 1, mode: "default"})
	scheduler := startAnswering(t, nil)
	token := s.reader("prometheus", "gpuplan-metrics")
	for _, name := range []string{"little", "small"} { // both on one node
		s.submit(topologyGang(name, 1, 4))
		s.awaitBound(name)
	}
	s.createPodGroup("big", 4)
	s.submit(job{name: "big", workers: 4, gpus: 4, resource: contract.ResourceTopologyGPU, labels: map[string]string{contract.PodGroupLabel: "big"}})
	text := s.awaitReason("big", "2 of 4")
	s.awaitPodGroup("big", "False: "+text)
	before := scheduler.patches(token)
	require.GreaterOrEqual(t, before, 5, "four pods and the PodGroup")
	said := map[string]string{}
	for _, pod := range s.list(t.Context(), "big") {
		said[pod.Name] = reason([]corev1.Pod{pod})
	}

	// Pods of another mode, and pods without GPUs, come and go.
	for i := range 10 {
		for _, other := range []job{
			{name: fmt.Sprintf("other-%d", i), workers: 1, gpus: 2, resource: contract.ResourceDefaultGPU},
			{name: fmt.Sprintf("plain-%d", i), workers: 1},
		} {
			s.submit(other)
			s.awaitBound(other.name)
			s.remove(other.name)
		}
	}
	assert.Equal(t, before, scheduler.patches(token), "nothing was written")

	s.remove("little")
	changed := s.awaitReason("big", "3 of 4")
	s.awaitPodGroup("big", "False: "+changed)
	assert.Equal(t, before+2, scheduler.patches(token), "one pod and the PodGroup")
	for i, pod := range s.list(t.Context(), "big") {
		if i > 0 {
			assert.Contains(t, said[pod.Name], " of 4 members fit: ")
			assert.Contains(t, said[pod.Name], " The latest numbers are on PodGroup big.")
			assert.Equal(t, said[pod.Name], reason([]corev1.Pod{pod}), "only the first pod has new numbers")
		}
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		events, err := api().EventsV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		about := map[string][]string{}
		for _, event := range events.Items {
			if strings.HasPrefix(event.Regarding.Name, "big") {
				about[event.Regarding.Name] = append(about[event.Regarding.Name], event.Note)
			}
		}
		assert.Len(c, about, 5, "the PodGroup and each pod")
		for name, notes := range about {
			require.Len(c, notes, 1, "%s", name)
			assert.Contains(c, notes[0], " of 4 members fit: ", "kubectl describe of %s says why", name)
			_, isPod := said[name]
			assert.Equal(c, isPod && name != "big-worker-0", strings.Contains(notes[0], "The latest numbers are on PodGroup big."), "%s", name)
		}
	}, settled, 200*time.Millisecond)
}

// remove deletes the only pod of a job.
func (s *testCluster) remove(name string) {
	s.t.Helper()
	require.NoError(s.t, api().CoreV1().Pods(s.namespace).Delete(s.t.Context(), name+"-worker-0", metav1.DeleteOptions{}))
}

func (s *testCluster) awaitPodGroup(name, condition string) {
	s.t.Helper()
	s.await("PodGroup "+name+" to say "+condition, func(ctx context.Context) (bool, string) {
		have := s.podGroupCondition(ctx, name)
		return have == condition, have
	})
}

// The scheduler, the kubectl plugin and the pods say the same, and only to those who
// have the right to ask.
func TestAnswers(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	scheduler := startAnswering(t, nil)
	s.submit(topologyGang("vgg16", 4, 1))
	s.awaitBound("vgg16")
	s.submit(topologyGang("big", 20, 1))
	said := s.awaitReason("big", "12 of 20")

	why := scheduler.answers + "/gpuplan/gangs/" + s.namespace + "/big"
	token := s.reader("admin", "gpuplan-explain")
	status, body := scheduler.get(why, "no token of this cluster")
	assert.Equal(t, http.StatusUnauthorized, status, body)
	status, body = scheduler.get(why, "")
	assert.Equal(t, http.StatusForbidden, status, body)
	status, body = scheduler.get(why, s.reader("guest"))
	assert.Equal(t, http.StatusForbidden, status, body)
	status, body = scheduler.get(why, token)
	require.Equal(t, http.StatusOK, status, body)
	var answers []explain.Answer
	require.NoError(t, json.Unmarshal([]byte(body), &answers))
	require.Len(t, answers, 1)
	assert.Equal(t, said, answers[0].Verdict)
	assert.Equal(t, said, answers[0].Said)
	assert.Equal(t, 12, answers[0].Fit)

	// The plugin has no more rights than the role gives it.
	plugin := s.plugin("admin", "why", "big", "-n", s.namespace, "-o", "json")
	var fromAPI []explain.Answer
	require.NoError(t, json.Unmarshal(plugin, &fromAPI))
	assert.Equal(t, answers, fromAPI)

	assert.Contains(t, string(s.plugin("admin", "fits", "big", "-n", s.namespace)), "pool size 3 (now 2) for pool "+s.namespace)
	for _, form := range []string{"why big", "gangs", "map", "without " + s.nodes[0]} {
		t.Logf("kubectl gpuplan %s\n%s", form, s.plugin("admin", append(strings.Fields(form), "-n", s.namespace)...))
	}
	status, body = scheduler.get(scheduler.answers+"/gpuplan/map?output=svg", token)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, s.namespace+"/vgg16")
}

// Around a reservation the plugin, which computes it, says the same as the scheduler, which holds it.
func TestAnswersAroundAReservation(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	scheduler := startAnswering(t, impatient)
	objects, err := deploy.Objects(deploy.Options{Image: "test", ReserveAfter: 10 * time.Millisecond})
	require.NoError(t, err)
	deployment := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })]
	require.NoError(t, unstructured.SetNestedField(deployment.Object, int64(0), "spec", "replicas"))
	_, err = cluster.client.Apply(t.Context(), deployment)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api().AppsV1().Deployments(contract.SystemNamespace).Delete(context.Background(), contract.SchedulerName, metav1.DeleteOptions{}))
	})
	token := s.reader("admin", "gpuplan-explain")

	s.submit(topologyGang("first", 3, 4))
	s.awaitBound("first")
	s.submit(topologyGang("big", 2, 8))
	s.awaitReason("big", "Reserved: waits for gang "+s.namespace+"/first")
	s.submit(topologyGang("small", 1, 4))
	s.awaitReason("small", "Held back by the reservation of gang "+s.namespace+"/big")
	for name, want := range map[string]explain.Answer{
		"big":   {Awaits: "gang " + s.namespace + "/first"},
		"small": {ReservedBy: s.namespace + "/big"},
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			var held, computed []explain.Answer
			_, body := scheduler.get(scheduler.answers+"/gpuplan/gangs/"+s.namespace+"/"+name, token)
			require.NoError(c, json.Unmarshal([]byte(body), &held), body)
			require.NoError(c, json.Unmarshal(s.plugin("admin", "why", name, "-n", s.namespace, "-o", "json"), &computed))
			require.Len(c, held, 1)
			assert.Equal(c, held, computed)
			assert.Equal(c, []any{explain.Waiting, want.Awaits, want.ReservedBy}, []any{held[0].State, held[0].Awaits, held[0].ReservedBy})
		}, settled, 200*time.Millisecond)
	}
}

// plugin runs kubectl-gpuplan as a service account of the test.
func (s *testCluster) plugin(account string, args ...string) []byte {
	s.t.Helper()
	path, err := localtest.Program("kubectl-gpuplan")
	require.NoError(s.t, err)
	command := exec.CommandContext(s.t.Context(), path, append(args, "--as=system:serviceaccount:"+s.namespace+":"+account)...)
	command.Env = append(command.Environ(), "KUBECONFIG="+cluster.kubeconfig)
	output, err := command.Output()
	if failed := (&exec.ExitError{}); errors.As(err, &failed) {
		require.NoError(s.t, err, string(failed.Stderr))
	}
	require.NoError(s.t, err)
	return output
}
