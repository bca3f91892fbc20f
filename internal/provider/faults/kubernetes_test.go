package faults

import (
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// status is an error as the Kubernetes API answers it.
func status(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s of the test","reason":%q,"code":%d}`, reason, reason, code)
}

// kubernetesFaults are the ways in which the Kubernetes API fails.
func kubernetesFaults() map[string]rule {
	all := map[string]rule{
		"each third request fails":       {each: 3, status: http.StatusInternalServerError, body: status(500, "InternalError")},
		"each fifth request is too much": {each: 5, status: http.StatusServiceUnavailable, body: status(503, "ServiceUnavailable")},
		"each seventh connection breaks": {each: 7},
	}
	for n := 1; n <= 4; n++ {
		for name, r := range map[string]rule{
			"connection broken before change %d":   {},
			"connection broken after change %d":    {carriedOut: true},
			"gateway answers instead of change %d": {status: http.StatusBadGateway, body: badGateway},
			"gateway answers after change %d":      {carriedOut: true, status: http.StatusBadGateway, body: badGateway},
			"conflict instead of change %d":        {status: http.StatusConflict, body: status(409, "Conflict")},
			"no right to change %d":                {status: http.StatusForbidden, body: status(403, "Forbidden")},
			"nobody answers reads after change %d": {carriedOut: true, status: http.StatusInternalServerError, body: status(500, "InternalError"), reads: true},
			"answer cut short after change %d":     {carriedOut: true, status: http.StatusCreated, body: `{"kind":"Conf`},
		} {
			r.write = n
			all[fmt.Sprintf(name, n)] = r
		}
	}
	return all
}

// step is one apply: a configuration of the resource, "" for none.
type step struct{ name, body string }

// kubernetesKinds are the resources that a cluster has, with what is done to each in turn.
func kubernetesKinds() map[string][]step {
	job := func(image, label string) string {
		return fmt.Sprintf("name = \"faults\"\n framework = \"pytorch\"\n image = %q\n labels = { team = %q }\n wait_for = \"none\"\n placement_check = \"off\"\n"+
			" roles = { master = { replicas = 1, gpus = 1 }, worker = { replicas = 2, gpus = 1 } }", image, label)
	}
	policy := func(cluster string) string {
		return fmt.Sprintf("name = \"faults\"\n resource_selectors = [{ api_version = \"kubeflow.org/v1\", kind = \"PyTorchJob\", name = \"j\" }]\n placement = { cluster_affinity = { cluster_names = [%q] } }", cluster)
	}
	return map[string][]step{
		"gpuplan_training_job": {{"create", job("train:1", "a")}, {"label", job("train:1", "b")}, {"replace", job("train:2", "b")}, {"destroy", ""}},
		"gpuplan_quota_tree": {
			{"create", `total = { "nvidia.com/gpu" = 8 }` + "\n quotas = { a = { max = { \"nvidia.com/gpu\" = 4 } } }"},
			{"change", `total = { "nvidia.com/gpu" = 8 }` + "\n quotas = { a = { max = { \"nvidia.com/gpu\" = 6 } }, b = {} }"},
			{"destroy", ""},
		},
		"gpuplan_scheduler":          {{"create", `image = "scheduler:1"`}, {"change", `image = "scheduler:2"` + "\n replicas = 3"}, {"destroy", ""}},
		"gpuplan_node_agent":         {{"create", `image = "agent:1"`}, {"change", `image = "agent:1"` + "\n device_plugins = true"}, {"destroy", ""}},
		"gpuplan_propagation_policy": {{"create", policy("m1")}, {"change", policy("m2")}, {"destroy", ""}},
	}
}

// cluster starts a cloud with what the resources need, and a front before its API server.
func cluster(t *testing.T, kind string) (*acctest.Cloud, *front) {
	t.Helper()
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	crds := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pytorchjobs.kubeflow.org}
spec: {group: kubeflow.org, scope: Namespaced, names: {kind: PyTorchJob, plural: pytorchjobs}, versions: [{name: v1, served: true, storage: true}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: propagationpolicies.%[1]s}
spec: {group: %[1]s, scope: Namespaced, names: {kind: PropagationPolicy, plural: propagationpolicies}, versions: [{name: v1alpha1, served: true, storage: true}]}
`, contract.KarmadaPolicyGroup)
	for text := range strings.SplitSeq(crds, "---\n") {
		crd := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &crd.Object))
		cloud.API.Put(crd)
	}
	if kind == "gpuplan_quota_tree" { // the scheduler's resource brings the kind
		objects, err := deploy.Objects(deploy.Options{Image: "x"})
		require.NoError(t, err)
		for _, obj := range objects {
			if obj.GetKind() == "CustomResourceDefinition" {
				cloud.API.Put(obj)
			}
		}
	}
	target, err := url.Parse(cloud.API.Config().Host)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
	f, address := serve(t, proxy)
	acctest.WriteKubeconfig(t, cloud.Kubeconfig, address)
	return cloud, f
}

func TestKubernetesFaults(t *testing.T) {
	type pair struct{ kind, fault string }
	var pairs []pair
	kinds, faults := kubernetesKinds(), kubernetesFaults()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, fault := range slices.Sorted(maps.Keys(faults)) {
			pairs = append(pairs, pair{kind, fault})
		}
	}
	random := rand.New(rand.NewPCG(*seed, 1))
	random.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	if *most > 0 && *most < len(pairs) {
		t.Logf("%d of %d pairs, seed %d", *most, len(pairs), *seed)
		pairs = pairs[:*most]
	}
	// What each step leaves when nothing fails is what it has to leave.
	left := map[string][]map[string]map[string]any{}
	for _, p := range pairs {
		if left[p.kind] == nil {
			left[p.kind] = carryOut(t, p.kind, rule{})
		}
		t.Run(p.kind+"/"+p.fault, func(t *testing.T) {
			for i, objects := range carryOut(t, p.kind, faults[p.fault]) {
				assert.Equal(t, left[p.kind][i], objects, "objects after %s", kinds[p.kind][i].name)
			}
		})
	}
}

// carryOut does everything to a resource while the cluster fails, and again while it does not, and returns the objects
// that the cluster has after each step.
func carryOut(t *testing.T, kind string, r rule) (left []map[string]map[string]any) {
	t.Helper()
	cloud, f := cluster(t, kind)
	cli := acctest.StartCLI(t)
	for _, s := range kubernetesKinds()[kind] {
		config := acctest.Owner("faults")
		if s.body != "" {
			config += fmt.Sprintf("resource %q \"x\" {\n %s\n %s\n}\n", kind, s.body, limits)
		}
		cli.Write(t, config)
		settle(t, cli, s.name, func() { f.set(r) }, func() { f.set(rule{}) }, func(output string) {
			assert.Contains(t, acctest.Unwrapped(output), "gpuplan_", "%s: the error names no resource", s.name)
		})
		left = append(left, cloud.API.Objects())
	}
	return left
}
