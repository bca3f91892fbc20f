package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode/programs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

// startTime is how long the containers of the example may take to start.
const startTime = 5 * time.Minute

// prepareContainerd makes sure that this machine can run real nodes, and that its containerd can be told the GPUs of containers.
func (d demo) prepareContainerd(ctx context.Context) error {
	found, err := programs.Find()
	if err != nil {
		return err
	}
	if found.Version.GivesDevices() {
		fmt.Fprintf(d.out, "==> use %s %s\n", found.Containerd, found.Version)
		return nil
	}
	if _, err := exec.LookPath(filepath.Join(d.root, "bin", "containerd")); err == nil {
		return nil
	}
	why := fmt.Sprintf("%s is %s, which cannot be told the GPUs of containers, as 1.7 and later can; this takes some minutes", found.Containerd, found.Version)
	return d.step(ctx, "build containerd", why, d.make(ctx, "bin/containerd"))
}

// container is one of a job, with what it says that it was given.
type container struct {
	job, member, node, pod, name string
	// gpus is the list of its environment, "" for none.
	gpus string
}

var (
	hasSaid   = regexp.MustCompile(`(?m)^in the place of: `)
	givenGPUs = regexp.MustCompile(`(?m)^env ` + contract.GivenGPUsEnv + `=(.*)$`)
)

// readContainers reads the logs of the jobs' containers once they run.
func (d demo) readContainers(ctx context.Context, jobs snapshot) ([]container, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(d.data, "kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("read the local platform's kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the local platform: %w", err)
	}
	fmt.Fprintln(d.out, "==> read what the containers say (kubectl logs)")
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		containers, err := containersOf(ctx, client, jobs)
		if err == nil {
			return containers, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the containers do not run: %w; kubectl describe pods says why", errors.Join(err, ctx.Err()))
		case <-time.After(time.Second): // until they run
		}
	}
}

func containersOf(ctx context.Context, client kubernetes.Interface, jobs snapshot) (containers []container, err error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for _, j := range jobs {
		var pods []*corev1.Pod
		for i := range list.Items {
			if inventory.JobName(&list.Items[i]) == j.Name {
				pods = append(pods, &list.Items[i])
			}
		}
		for i, member := range inventory.MemberNames(pods) {
			pod := pods[i]
			for _, c := range pod.Spec.Containers {
				log, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: c.Name}).DoRaw(ctx)
				if err != nil {
					return nil, fmt.Errorf("read the log of container %s of pod %s: %w", c.Name, pod.Name, err)
				}
				if !hasSaid.Match(log) {
					return nil, fmt.Errorf("container %s of pod %s has said nothing yet", c.Name, pod.Name)
				}
				said := container{job: j.Name, member: member, node: pod.Spec.NodeName, pod: pod.Name, name: c.Name}
				if match := givenGPUs.FindSubmatch(log); match != nil {
					said.gpus = string(match[1])
				}
				containers = append(containers, said)
			}
		}
	}
	return containers, nil
}

// reportContainers shows what every container was given beside what was planned for it, and fails where they differ. GPUs that are described in
// a file have no UUIDs: containers are told their indexes.
func reportContainers(w io.Writer, jobs snapshot, containers []container) error {
	fmt.Fprintf(w, "\nWhat every container was given\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  JOB\tPOD\tCONTAINER\tNODE\tGPUS IN IT\tPLANNED NODE\tPLANNED GPUS\tTHE SAME")
	var differ []string
	for _, j := range jobs {
		nodes := map[string]string{} // that are planned, and not made yet, by what they became
		for _, m := range j.planned {
			if !slices.ContainsFunc(containers, func(c container) bool { return c.job == j.Name && c.member == m.Member }) {
				differ = append(differ, fmt.Sprintf("%s of %s has no container", m.Member, j.Name))
			}
		}
		for _, c := range containers {
			if c.job != j.Name {
				continue
			}
			var planned assignment.Model
			if i := slices.IndexFunc(j.planned, func(m assignment.Model) bool { return m.Member == c.member }); i >= 0 {
				planned = j.planned[i]
			}
			another := slices.Contains(slices.Collect(maps.Values(nodes)), c.node)
			if planned.Node != "" && nodes[planned.Node] == "" && !another {
				nodes[planned.Node] = c.node
			}
			same := "yes"
			switch {
			case planned.Node == "" && c.gpus == "": // the plan tells of launchers without GPUs or does not
			case nodes[planned.Node] != c.node || c.gpus != commaList(planned.GPUs):
				same = "NO"
				differ = append(differ, fmt.Sprintf("container %s of pod %s has GPUs %q of %s", c.name, c.pod, c.gpus, c.node))
			}
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.job, c.pod, c.name, c.node, orNone(c.gpus), orNone(planned.Node), orNone(commaList(planned.GPUs)), same)
		}
	}
	_ = table.Flush() // the same writer as everything else here
	if len(differ) > 0 {
		return fmt.Errorf("containers differ from the plan: %s; this is a bug, unless the pods were made again since the plan", strings.Join(differ, "; "))
	}
	return nil
}

func commaList(gpus []int64) string {
	var parts []string
	for _, index := range gpus {
		parts = append(parts, fmt.Sprint(index))
	}
	return strings.Join(parts, ",")
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
