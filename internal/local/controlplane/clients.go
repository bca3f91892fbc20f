package controlplane

import (
	"context"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"sigs.k8s.io/yaml"
)

// controllers are those that a cluster without load balancers and real nodes needs; each name goes without its ending "-controller".
var controllers = []string{
	"clusterrole-aggregation", "cronjob", "daemonset", "deployment", "disruption", "endpointslice",
	"garbage-collector", "job", "namespace", "node-lifecycle", "persistentvolume-binder",
	"persistentvolume-protection", "persistentvolumeclaim-protection", "pod-garbage-collector",
	"replicaset", "resourcequota", "root-ca-certificate-publisher", "serviceaccount",
	"serviceaccount-token", "statefulset", "taint-eviction", "ttl-after-finished",
}

// hubControllers are those that the hub of a fleet needs, which runs no pods: jobs and what they name are templates there.
var hubControllers = []string{
	"clusterrole-aggregation", "garbage-collector", "namespace", "resourcequota",
	"root-ca-certificate-publisher", "serviceaccount", "serviceaccount-token",
}

// ControllerManager starts kube-controller-manager and waits until its
// controllers work: the default service account exists.
func (c *ControlPlane) ControllerManager(ctx context.Context) error {
	manager, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, disabled, aliases := controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases()
	flags := manager.Flags(known, disabled, aliases)
	wanted := controllers
	if c.options.Hub {
		wanted = hubControllers
	}
	err = parse(flags, []string{
		"--kubeconfig=" + c.server.controllerManagerKubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.server.signing.KeyFile,
		"--root-ca-file=" + c.authority.CAFile(),
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
		// Simulated nodes report every few minutes only.
		"--node-monitor-grace-period=30m",
		"--controllers=" + strings.Join(wanted, "-controller,") + "-controller",
	})
	if err != nil {
		return err
	}
	manager.ParsedFlags = &flags
	if err := manager.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	config, err := manager.Config(ctx, known, disabled, aliases)
	if err != nil {
		return err
	}
	part := c.start("kube-controller-manager", func(ctx context.Context) error {
		return controllermanager.Run(ctx, config.Complete())
	})
	c.clients = append(c.clients, part)

	client, err := c.client()
	if err != nil {
		return err
	}
	return part.wait(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Scheduler starts the stock kube-scheduler, "default-scheduler".
func (c *ControlPlane) Scheduler(ctx context.Context) error {
	config, err := yaml.Marshal(map[string]any{
		"apiVersion":       "kubescheduler.config.k8s.io/v1",
		"kind":             "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": c.server.schedulerKubeconfig, "qps": 1000, "burst": 2000},
		"leaderElection":   map[string]any{"leaderElect": false},
	})
	if err != nil {
		return err
	}
	configFile := c.path("kube-scheduler.yaml")
	if err := os.WriteFile(configFile, config, 0o600); err != nil {
		return err
	}
	opts := scheduleroptions.NewOptions()
	if err := parse(*opts.Flags, []string{"--config=" + configFile, "--secure-port=0"}); err != nil {
		return err
	}
	if err := opts.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	ready := make(chan struct{})
	part := c.start("kube-scheduler", func(ctx context.Context) error {
		completed, sched, err := scheduler.Setup(ctx, opts)
		if err != nil {
			return err
		}
		close(ready)
		return scheduler.Run(ctx, completed, sched)
	})
	c.clients = append(c.clients, part)
	select {
	case <-ready:
		return nil
	case <-part.done:
		return part.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
