package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	nodeagent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

//go:embed config
var configs embed.FS

// Every scheduler may ask the API server this often per second.
const (
	qps   = 5000
	burst = 10000
)

// scheduler is one that is compared.
type scheduler struct {
	// name is the scheduler's name in the tables.
	name string
	// program is the file in the folder of programs, and the scheduler name that pods carry.
	program string
	// gpu is the extended resource by which pods ask for a GPU, mode the label of
	// nodes that offer it, and hardware means that nodes publish theirs.
	gpu, mode string
	hardware  bool
	// crds returns the scheduler's custom resource definitions.
	crds func(bin string) ([]*unstructured.Unstructured, error)
	// prepare makes what else the scheduler needs in the cluster, nil for nothing.
	prepare func(context.Context, *cluster) error
	// arguments writes configuration files into a folder and returns the program's arguments.
	arguments func(o runOptions, dir, kubeconfig string) ([]string, error)
	// group makes the object that describes a gang, nil when there is none, and join
	// makes a pod a member.
	group func(name string, members, gpus int) *unstructured.Unstructured
	join  func(pod *corev1.Pod, group string)
	// always means that a pod on its own needs a group too.
	always bool
}

// runOptions are what may differ between runs of a scheduler.
type runOptions struct {
	// period is the pause between the passes of a scheduler that works in passes.
	period time.Duration
	// port serves profiles, 0 for none.
	port int
}

// extra is measured only when it is named: it does more than the others are asked for.
const extra = "koordinator (all plugins)"

// schedulers are all that can be compared, ours first.
func schedulers() []scheduler {
	return []scheduler{
		{
			name: "gpuplan", program: contract.SchedulerName,
			gpu: contract.ResourceTopologyGPU, mode: "topology", hardware: true,
			crds: ownCRDs, arguments: ownArguments, group: sigsGroup, join: label(contract.PodGroupLabel),
		}, {
			name: "gpuplan (plain GPUs)", program: contract.SchedulerName,
			gpu: contract.ResourceDefaultGPU, mode: "default",
			crds: ownCRDs, arguments: ownArguments, group: sigsGroup, join: label(contract.PodGroupLabel),
		}, {
			name: "kube-scheduler (no gangs)", program: "kube-scheduler",
			gpu: contract.ResourceDefaultGPU, arguments: frameworkArguments("kube-scheduler"),
		}, {
			name: "kube-scheduler (native gangs)", program: "kube-scheduler",
			gpu: contract.ResourceDefaultGPU,
			arguments: frameworkArguments("kube-scheduler",
				"--feature-gates=GenericWorkload=true,GangScheduling=true"),
			group: nativeGroup, join: joinNative,
		}, {
			name: "coscheduling", program: "coscheduling",
			gpu: contract.ResourceDefaultGPU, crds: crdFiles("coscheduling"), arguments: frameworkArguments("coscheduling"),
			group: sigsGroup, join: label(contract.PodGroupLabel),
		}, {
			name: "volcano", program: "volcano",
			gpu: contract.ResourceDefaultGPU, crds: crdFiles("volcano"), prepare: openQueues, arguments: volcanoArguments,
			group: volcanoGroup, join: annotation("scheduling.k8s.io/group-name"), always: true,
		}, {
			name: "koordinator", program: "koordinator",
			gpu: contract.ResourceDefaultGPU, crds: crdFiles("koordinator"),
			// It would listen on all addresses without the second.
			arguments: frameworkArguments("koordinator", "--port=0"),
			group:     koordinatorGroup, join: label("pod-group.scheduling.sigs.k8s.io"),
		}, {
			name: extra, program: "koordinator",
			gpu: contract.ResourceDefaultGPU, crds: crdFiles("koordinator"),
			arguments: frameworkArguments("koordinator-all", "--port=0"),
			group:     koordinatorGroup, join: label("pod-group.scheduling.sigs.k8s.io"),
		},
	}
}

// install makes what the scheduler needs in a cluster.
func (s scheduler) install(ctx context.Context, c *cluster) error {
	if s.crds != nil {
		crds, err := s.crds(c.bin)
		if err != nil {
			return err
		}
		if err := c.define(ctx, crds); err != nil {
			return err
		}
	}
	if s.prepare == nil {
		return nil
	}
	return s.prepare(ctx, c)
}

// start starts the scheduler against a cluster.
func (s scheduler) start(c *cluster, o runOptions) (*process.Process, error) {
	dir := filepath.Join(c.dir, s.name)
	config := filepath.Join(dir, "config") // some reload their configuration when anything in its folder changes
	err := os.MkdirAll(config, 0o700)
	if err != nil {
		return nil, err
	}
	args, err := s.arguments(o, config, c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", s.name, err)
	}
	return startProcess(c.bin, dir, s.program, args...)
}

// ownCRDs are the custom resources of our install.
func ownCRDs(string) ([]*unstructured.Unstructured, error) {
	objects, err := deploy.Objects(deploy.Options{Image: "bench"})
	if err != nil {
		return nil, err
	}
	more, err := nodeagent.Objects(nodeagent.Options{Image: "bench"})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(append(objects, more...), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "CustomResourceDefinition"
	}), nil
}

// crdFiles reads a peer's custom resource definitions, which the build has put beside the programs.
func crdFiles(peer string) func(string) ([]*unstructured.Unstructured, error) {
	return func(bin string) ([]*unstructured.Unstructured, error) {
		files, err := filepath.Glob(filepath.Join(bin, "crds", peer, "*.yaml"))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no custom resource definitions of %s: make -C bench/schedulers programs puts them there", peer)
		}
		var objects []*unstructured.Unstructured
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(text, &object.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, object)
		}
		return objects, nil
	}
}

// ownArguments are those of our install.
func ownArguments(o runOptions, dir, kubeconfig string) ([]string, error) {
	objects, err := deploy.Objects(deploy.Options{Image: "bench"})
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		text, _, err := unstructured.NestedString(object.Object, "data", "scheduler.yaml")
		if err != nil {
			return nil, err
		}
		args, err := componentArguments(o, dir, kubeconfig, []byte(text))
		return append(args, "--feature-gates=NominatedNodeNameForExpectation=false"), err
	}
	return nil, fmt.Errorf("the install has no configuration")
}

// frameworkArguments are those of a scheduler that is a kube-scheduler with plugins.
func frameworkArguments(config string, more ...string) func(runOptions, string, string) ([]string, error) {
	return func(o runOptions, dir, kubeconfig string) ([]string, error) {
		text, err := configs.ReadFile("config/" + config + ".yaml")
		if err != nil {
			return nil, err
		}
		args, err := componentArguments(o, dir, kubeconfig, text)
		return append(args, more...), err
	}
}

// componentArguments writes a KubeSchedulerConfiguration with the connection that all schedulers get.
func componentArguments(o runOptions, dir, kubeconfig string, text []byte) ([]string, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "qps": qps, "burst": burst}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "scheduler.yaml")
	args := []string{"--config=" + file, "--leader-elect=false", fmt.Sprintf("--secure-port=%d", o.port)}
	if o.port != 0 {
		args = append(args, "--bind-address=127.0.0.1", "--cert-dir="+dir, "--authentication-skip-lookup=true", "--authorization-always-allow-paths=/debug/pprof/*")
	}
	return args, os.WriteFile(file, text, 0o600)
}

func volcanoArguments(o runOptions, dir, kubeconfig string) ([]string, error) {
	text, err := configs.ReadFile("config/volcano.conf")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "volcano.conf")
	return []string{
		"--kubeconfig=" + kubeconfig, "--scheduler-conf=" + file, "--scheduler-name=volcano", "--leader-elect=false",
		"--schedule-period=" + o.period.String(),
		fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", burst),
	}, os.WriteFile(file, text, 0o600)
}
