package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/openb"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// ready is how long the platform, its nodes and the scheduler may take to be there.
const ready = 5 * time.Minute

// platform is a local platform of its own.
type platform struct {
	bin, dir string
	client   kubernetes.Interface
}

// local runs gpuplan-local, which is told to stop when ctx ends and not by the terminal.
func (p *platform) local(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(p.bin, "gpuplan-local"), append(args, "--data-dir", p.dir)...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gpuplan-local %s: %w (make build builds the programs)\n%s", args[0], err, output)
	}
	return strings.TrimSpace(string(output)), nil
}

// start starts the platform with the machines as its nodes, and the scheduler as users install it.
func start(ctx context.Context, bin string, machines []openb.Machine) (*platform, error) {
	dir, err := os.MkdirTemp("", "openb-")
	if err != nil {
		return nil, err
	}
	p := &platform{bin: bin, dir: dir}
	if err := p.fill(ctx, machines); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// stop ends the platform and deletes its data.
func (p *platform) stop() error {
	_, err := p.local(context.Background(), "down", "--purge")
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *platform) fill(ctx context.Context, machines []openb.Machine) error {
	if _, err := p.local(ctx, "up"); err != nil {
		return err
	}
	kubeconfig, err := p.local(ctx, "kubeconfig")
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	objects, err := deploy.Objects(deploy.Options{Image: "openb", Replicas: 1})
	if err != nil {
		return err
	}
	access, err := kube.New(config)
	if err != nil {
		return err
	}
	if err := access.ApplyAll(ctx, objects, nil); err != nil {
		return err
	}
	if p.client, err = kube.Protobuf(config); err != nil {
		return err
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := p.client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return err
	}
	// One after the other: among equal nodes the planner takes the oldest.
	for _, m := range machines {
		if _, err := p.client.CoreV1().Nodes().Create(ctx, node(m), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, ready, true, p.ready)
	if err != nil {
		return fmt.Errorf("wait for the nodes and the scheduler: %w", err)
	}
	return p.known(ctx, machines)
}

// known waits until the scheduler knows that each node takes pods: it has placed one there that asks for nothing.
func (p *platform) known(ctx context.Context, machines []openb.Machine) error {
	pods := p.client.CoreV1().Pods(metav1.NamespaceDefault)
	for i, m := range machines {
		probe := pod(openb.Pod{}, i)
		probe.Namespace, probe.Spec.NodeSelector = metav1.NamespaceDefault, map[string]string{corev1.LabelHostname: m.Name}
		if _, err := pods.Create(ctx, probe, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a pod for node %s: %w", m.Name, err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, ready, true, func(ctx context.Context) (bool, error) {
		waiting, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		return err == nil && len(waiting.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the scheduler to know the nodes: %w", err)
	}
	return nil
}

// ready reports whether pods can be created, nodes take them and the scheduler runs.
func (p *platform) ready(ctx context.Context) (bool, error) {
	for _, space := range []string{namespace, metav1.NamespaceDefault} {
		if _, err := p.client.CoreV1().ServiceAccounts(space).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false, ignoreNotFound(err)
		}
	}
	deployment, err := p.client.AppsV1().Deployments(contract.SystemNamespace).Get(ctx, contract.SchedulerName, metav1.GetOptions{})
	if err != nil || deployment.Status.AvailableReplicas == 0 {
		return false, err
	}
	nodes, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: contract.NodeModeLabel})
	if err != nil {
		return false, err
	}
	for _, n := range nodes.Items {
		if len(n.Spec.Taints) > 0 {
			return false, nil
		}
	}
	return true, nil
}

func ignoreNotFound(err error) error {
	if kube.IsNotFound(err) {
		return nil
	}
	return err
}
