package trainingjob_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// What the cluster's DaemonSets take of each node that joins, no job of the plan can have.
func TestDaemonsOfNodesToCome(t *testing.T) {
	const daemons = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: kube-system}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec:
      %s
      containers:
        - name: logs
          image: logs
          ports: [{containerPort: 23456, hostPort: 23456}]
          resources: %s
`
	const limits = `
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: kube-system}
spec: {limits: [{type: Pod, max: {cpu: "8"}}, {type: Container, default: {cpu: "6"}, defaultRequest: {cpu: "5"}}]}
`
	const requests = `{requests: {cpu: "4"}}`
	for name, test := range map[string]struct{ pods, resources, job, says string }{
		"room is left":         {"tolerations: []", requests, `cpu = "76"`, ""},
		"too little left":      {"tolerations: []", requests, `cpu = "79"`, "too little CPU"},
		"on other nodes":       {"nodeSelector: {kubernetes.io/os: windows}", requests, `cpu = "79"`, ""},
		"by their taints":      {"tolerations: [{operator: Exists}]", requests, `cpu = "79"`, "too little CPU"},
		"a port of theirs":     {"hostNetwork: true", requests, `cpu = "8"`, "port"},
		"limits alone":         {"tolerations: []", `{limits: {cpu: "4"}}`, `cpu = "79"`, "too little CPU left (77.725 "},
		"to start with":        {"initContainers: [{name: c, image: c, resources: {limits: {cpu: \"7\"}}}]", requests, `cpu = "76"`, "too little CPU left (74.725 "},
		"more than a node has": {"tolerations: []", `{requests: {cpu: "1000"}}`, `cpu = "79"`, ""},
		"nothing":              {"tolerations: []", "{}", `cpu = "79"`, ""},
		"by a LimitRange":      {"tolerations: []", "{} # limited", `cpu = "79"`, "too little CPU left (76.725 "},
		"said, a LimitRange":   {"tolerations: []", requests + " # limited", `cpu = "79"`, "too little CPU left (77.725 "},
		"a disk":               {"tolerations: []", `{requests: {cpu: "4", ephemeral-storage: 1Gi}}`, `cpu = "79"`, "too little CPU left (77.725 "},
		"another disk":         {"tolerations: []", `{requests: {cpu: "4", ephemeral-storage: 1Ti}}`, `cpu = "79"`, "too little CPU left (77.725 "},
		"an unknown device":    {"tolerations: []", `{limits: {cpu: "4", example.com/device: 1}}`, `cpu = "79"`, "too little CPU left (77.725 "},
		"limits, a LimitRange": {"tolerations: []", `{limits: {cpu: "3"}} # limited`, `cpu = "79"`, "too little CPU left (78.725 "},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			objects := []string{fmt.Sprintf(daemons, test.pods, test.resources)}
			if strings.Contains(test.resources, "limited") {
				objects = append(objects, limits)
			}
			for _, text := range objects {
				var object unstructured.Unstructured
				require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
				cloud.API.Put(&object)
			}
			cli := acctest.StartCLI(t)
			network := "false"
			if test.says == "port" {
				network = "true"
			}
			cli.Write(t, fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "j" {
  name         = "j"
  framework    = "pytorch"
  pools        = [gpuplan_node_pool.v100.capacity]
  image        = "train:1"
  host_network = %s
  roles        = { master = { replicas = 1, gpus = 8, %s } }
}
`, network, test.job))
			said, err := cli.Run("plan")
			if test.says == "" {
				require.NoError(t, err, said)
				return
			}
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), "Gang does not fit")
			assert.Contains(t, acctest.Unwrapped(said), test.says)
			assert.NotContains(t, acctest.Unwrapped(said), "pool size", "each node would have them")
			assert.Contains(t, acctest.Unwrapped(said), "Nodes to come of pool v100 also run the cluster's DaemonSets, which count: kube-system/logs.")
		})
	}
}

// Nor can a job have the nodes from which they keep it by their anti-affinity.
func TestDaemonsThatKeepAJobFromNodesToCome(t *testing.T) {
	const daemons = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: quiet, namespace: kube-system}
spec:
  selector: {matchLabels: {app: quiet}}
  template:
    metadata: {labels: {app: quiet}}
    spec:
      nodeSelector: {gpuplan.dev/pool: %s}
      containers: [{name: c, image: c}]
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, namespaces: [default], labelSelector: {matchLabels: {loud: "yes"}}}]}}
`
	for name, test := range map[string]struct {
		pool, labels string
		fits         bool
	}{
		"kept away":      {"v100", `{ loud = "yes" }`, false},
		"another job":    {"v100", `{ loud = "no" }`, true},
		"on other nodes": {"a100", `{ loud = "yes" }`, true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			var set unstructured.Unstructured
			require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, daemons, test.pool), &set.Object))
			cloud.API.Put(&set)
			cli := acctest.StartCLI(t)
			cli.Write(t, onePool+fmt.Sprintf(`
resource "gpuplan_training_job" "j" {
  name      = "j"
  framework = "pytorch"
  pools     = [gpuplan_node_pool.v100.capacity]
  image     = "train:1"
  labels    = %s
  roles     = { worker = { replicas = 2, gpus = 8 } }
}
`, test.labels))
			said, err := cli.Run("plan")
			if test.fits {
				require.NoError(t, err, said)
				return
			}
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), "Gang does not fit")
			assert.Contains(t, acctest.Unwrapped(said), "pod kube-system/quiet keeps them from its node by its anti-affinity")
		})
	}
}
