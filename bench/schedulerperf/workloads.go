// Package schedulerperf runs upstream's scheduler_perf harness with our plugins beside
// upstream's own gang scheduling, on the gang and topology workloads of upstream's
// performance-config.yaml, scaled to fewer nodes.
package schedulerperf

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// workload is one of upstream's gang workloads: gangs of a size on nodes of 4 CPUs,
// 100 nodes to a rack, each gang within one rack where racked.
type workload struct {
	nodes, gangs, size int
	racked             bool
}

// workloads have upstream's shapes; its own have 5000 nodes.
func workloads() []workload {
	return []workload{
		{nodes: 500, gangs: 1000, size: 3},
		{nodes: 500, gangs: 3, size: 1000},
		{nodes: 500, gangs: 750, size: 4, racked: true},
		{nodes: 500, gangs: 3, size: 1000, racked: true},
		{nodes: 1000, gangs: 1000, size: 3},
		{nodes: 1000, gangs: 3, size: 1000, racked: true},
	}
}

func (w workload) String() string {
	kind := "Gangs"
	if w.racked {
		kind = "GangsInOneRack"
	}
	return fmt.Sprintf("%s/%dNodes/%dx%d", kind, w.nodes, w.gangs, w.size)
}

// spelling is how a scheduler is told about gangs.
type spelling struct {
	name, config string
	gates        map[string]bool
	// group and pod are templates of scheduler_perf, of a workload.
	group, pod func(workload) string
}

// spellings are upstream's and ours.
func spellings(config string) []spelling {
	return []spelling{
		{
			name:  "native",
			gates: map[string]bool{"GenericWorkload": true, "GangScheduling": true, "TopologyAwareWorkloadScheduling": true},
			group: nativeGroup, pod: nativePod,
		},
		{
			name: "gpuplan", config: config,
			// As our scheduler is installed.
			gates: map[string]bool{"NominatedNodeNameForExpectation": false},
			group: ownGroup, pod: ownPod,
		},
	}
}

const nodeTemplate = `apiVersion: v1
kind: Node
metadata:
  generateName: scheduler-perf-
  labels:
    rack: rack-{{DivideInt .Index 100}}
status:
  capacity: {pods: "110", cpu: "4", memory: 32Gi}
  conditions:
    - {status: "True", type: Ready}
`

func nativeGroup(w workload) string {
	text := fmt.Sprintf(`apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata:
  name: gang-{{.Index}}
spec:
  schedulingPolicy:
    gang: {minCount: %d}
`, w.size)
	if w.racked {
		text += `  schedulingConstraints:
    topology:
      - key: rack
`
	}
	return text
}

func nativePod(w workload) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  generateName: pod-
spec:
  schedulingGroup:
    podGroupName: gang-{{DivideInt .Index %d}}
`, w.size) + containers
}

func ownGroup(w workload) string {
	return fmt.Sprintf(`apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: gang-{{.Index}}
spec:
  minMember: %d
`, w.size)
}

func ownPod(w workload) string {
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  generateName: pod-
  labels:
    scheduling.x-k8s.io/pod-group: gang-{{DivideInt .Index %d}}
spec:
  schedulerName: gpuplan-scheduler
`, w.size)
	if w.racked {
		text += fmt.Sprintf(`  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: rack
          labelSelector:
            matchLabels:
              scheduling.x-k8s.io/pod-group: gang-{{DivideInt .Index %d}}
`, w.size)
	}
	return text + containers
}

const containers = `  containers:
    - name: pause
      image: registry.k8s.io/pause:3.10.2
      resources:
        requests: {cpu: 100m, memory: 100Mi}
`

// write writes scheduler_perf's configuration of a workload into a folder and returns its path.
func (s spelling) write(dir string, w workload) (string, error) {
	files := map[string]string{"node.yaml": nodeTemplate, "group.yaml": s.group(w), "pod.yaml": s.pod(w)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	config, err := yaml.Marshal([]any{map[string]any{
		"name":                s.name,
		"featureGates":        s.gates,
		"schedulerConfigPath": s.config,
		"workloadTemplate": []any{
			map[string]any{"opcode": "createNodes", "countParam": "$nodes", "nodeTemplatePath": filepath.Join(dir, "node.yaml")},
			map[string]any{"opcode": "createAny", "countParam": "$gangs", "namespace": "gangs", "templatePath": filepath.Join(dir, "group.yaml")},
			map[string]any{"opcode": "createPods", "countParam": "$pods", "namespace": "gangs", "podTemplatePath": filepath.Join(dir, "pod.yaml"), "collectMetrics": true},
		},
		"workloads": []any{map[string]any{
			"name": w.String(), "labels": []any{"performance"},
			"params": map[string]any{"nodes": w.nodes, "gangs": w.gangs, "pods": w.gangs * w.size},
		}},
	}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "performance-config.yaml")
	return file, os.WriteFile(file, config, 0o600)
}
