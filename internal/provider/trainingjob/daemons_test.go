package trainingjob_test

import (
	"fmt"
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
          resources: {requests: {cpu: "4"}}
`
	for name, test := range map[string]struct{ pods, job, says string }{
		"room is left":     {"tolerations: []", `cpu = "76"`, ""},
		"too little left":  {"tolerations: []", `cpu = "79"`, "too little CPU"},
		"on other nodes":   {"nodeSelector: {kubernetes.io/os: windows}", `cpu = "79"`, ""},
		"by their taints":  {"tolerations: [{operator: Exists}]", `cpu = "79"`, "too little CPU"},
		"a port of theirs": {"hostNetwork: true", `cpu = "8"`, "port"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			var set unstructured.Unstructured
			require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, daemons, test.pods), &set.Object))
			cloud.API.Put(&set)
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
			assert.Contains(t, acctest.Unwrapped(said), "Nodes to come of pool v100 also run the cluster's DaemonSets, which count: kube-system/logs.")
		})
	}
}
