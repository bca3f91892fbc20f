package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
)

// report is the output of status -o json.
type report struct {
	Running bool        `json:"running"`
	Ready   bool        `json:"ready"`
	DataDir datadir.Dir `json:"dataDir"`
	// Kubeconfig is that of the main cluster, or of the hub of a fleet.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	datadir.State
	// MemoryBytes is the resident memory of all processes.
	MemoryBytes int64            `json:"memoryBytes"`
	Processes   []processStatus  `json:"processes,omitempty"`
	Nodes       *simulationCount `json:"nodes,omitempty"`
	// RealNodes are those with a kubelet and containers.
	RealNodes []realNode `json:"realNodes,omitempty"`
	// Problem says why Nodes is missing, or what the hub of a fleet says of its members.
	Problem string `json:"problem,omitempty"`
	// Members are the member clusters of a fleet.
	Members []memberReport `json:"members,omitempty"`
}

// memberReport is what is known of a member cluster. Its processes are among those of the fleet.
type memberReport struct {
	Name string `json:"name"`
	// Joined is whether the hub says that it reaches it.
	Joined  bool             `json:"joined"`
	Version string           `json:"kubernetesVersion,omitempty"`
	URL     string           `json:"url"`
	Cloud   datadir.Cloud    `json:"cloud,omitzero"`
	Nodes   *simulationCount `json:"nodes,omitempty"`
	// Problem says why it has not joined, or why Nodes is missing.
	Problem string `json:"problem,omitempty"`
}

type realNode struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Dir holds what the node keeps, with the sockets of its kubelet and of containerd.
	Dir string `json:"dir"`
}

type processStatus struct {
	Name        string `json:"name"`
	PID         int    `json:"pid"`
	MemoryBytes int64  `json:"memoryBytes"`
}

// String is a line about the process: its memory, its number and what it is.
func (p processStatus) String() string {
	return fmt.Sprintf("%4d MiB   %s (process %d)", p.MemoryBytes>>20, p.Name, p.PID)
}

type simulationCount struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
	Pods  int `json:"pods"`
}

// status tells whether the platform runs. That it does not is an answer, no error.
func status(ctx context.Context, w io.Writer, dir datadir.Dir, format string) error {
	switch format {
	case "text":
		return printStatus(ctx, w, dir)
	case "json":
		r, err := inspect(ctx, dir)
		if err != nil {
			return err
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	return fmt.Errorf("there is no output format %q; use text or json", format)
}

func inspect(ctx context.Context, dir datadir.Dir) (report, error) {
	r := report{DataDir: dir}
	holder, err := dir.Holder()
	if err != nil || holder == 0 {
		return r, err
	}
	state, err := dir.ReadState()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	r.Running = true
	if state.Server.PID != holder {
		// A server that has only just started.
		return r, nil
	}
	r.State = state
	r.Ready = state.ReadySeconds > 0
	r.addProcess("gpuplan-local", state.Server)
	registry, err := process.Open(filepath.Join(dir.Run(), "processes"))
	if err != nil {
		return r, err
	}
	children, err := registry.Running()
	if err != nil {
		return r, err
	}
	for _, child := range children {
		r.addProcess(child.Name, child.Identity)
	}
	if r.Ready && state.Clusters[0].Name == datadir.HubCluster {
		return r, r.addMembers(ctx)
	}
	realNodes, err := realnode.List(dir)
	if err != nil {
		return r, err
	}
	for _, node := range realNodes {
		r.RealNodes = append(r.RealNodes, realNode{Name: node.Name, Address: node.Address, Dir: node.Dir})
	}
	if r.Ready {
		r.Kubeconfig = dir.Kubeconfig(datadir.MainCluster)
		if r.Nodes, err = countNodes(ctx, r.Kubeconfig); err != nil {
			r.Problem = err.Error()
		}
	}
	return r, nil
}

// addMembers adds the member clusters of a fleet that is ready.
func (r *report) addMembers(ctx context.Context) error {
	r.Kubeconfig = r.Clusters[0].Kubeconfig
	joined, err := fleet.Joined(ctx, r.Kubeconfig)
	if err != nil {
		r.Problem = err.Error()
	}
	for _, cluster := range r.Clusters[1:] {
		inside, err := inspect(ctx, r.DataDir.Member(cluster.Name))
		if err != nil {
			return err
		}
		reach, known := joined[cluster.Name]
		problem := inside.Problem
		switch {
		case r.Problem != "": // it is not known which clusters have joined
		case !known:
			problem = "the hub does not know it"
		case reach != "":
			problem = "the hub does not reach it: " + reach
		}
		r.Members = append(r.Members, memberReport{
			Name: cluster.Name, Joined: known && reach == "", Version: inside.Version, URL: cluster.URL,
			Cloud: inside.Cloud, Nodes: inside.Nodes, Problem: problem,
		})
		for i, p := range inside.Processes {
			// The first is its server, a child of this platform.
			if i > 0 {
				p.Name = cluster.Name + " " + p.Name
				r.Processes = append(r.Processes, p)
				r.MemoryBytes += p.MemoryBytes
			}
		}
	}
	return nil
}

func (r *report) addProcess(name string, id process.Identity) {
	bytes := id.ResidentBytes()
	r.Processes = append(r.Processes, processStatus{Name: name, PID: id.PID, MemoryBytes: bytes})
	r.MemoryBytes += bytes
}

func countNodes(ctx context.Context, kubeconfig string) (*simulationCount, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	count := &simulationCount{Total: len(nodes.Items), Pods: len(pods.Items)}
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				count.Ready++
			}
		}
	}
	return count, nil
}

func printStatus(ctx context.Context, w io.Writer, dir datadir.Dir) error {
	r, err := inspect(ctx, dir)
	if err != nil {
		return err
	}
	switch {
	case !r.Running:
		fmt.Fprintf(w, "The platform is not running (data directory %s).\n", dir)
		return nil
	case !r.Ready:
		fmt.Fprintf(w, "The platform is starting (data directory %s).\n", dir)
		return nil
	}
	fmt.Fprintf(w, "Ready after %.1f s, %d MiB\n", r.ReadySeconds, r.MemoryBytes>>20)
	for _, p := range r.Processes {
		fmt.Fprintf(w, "  %s\n", p)
	}
	if len(r.Members) > 0 {
		r.printFleet(w)
		return nil
	}
	for _, cluster := range r.Clusters {
		fmt.Fprintf(w, "  Kubernetes %s  %s  (kubeconfig %s)\n", r.Version, cluster.URL, cluster.Kubeconfig)
	}
	if r.Cloud.URL != "" {
		fmt.Fprintf(w, "  Cloud API  %s  (cluster %s, region %s)\n", r.Cloud.URL, r.Cloud.ClusterID, r.Cloud.RegionID)
	}
	if r.Nodes != nil {
		fmt.Fprintf(w, "  Nodes      %d, of which %d are ready; %d pods\n", r.Nodes.Total, r.Nodes.Ready, r.Nodes.Pods)
	} else {
		fmt.Fprintf(w, "  Problem    %s\n", r.Problem)
	}
	for _, node := range r.RealNodes {
		fmt.Fprintf(w, "  Real node  %s, kubelet at %s, files in %s\n", node.Name, node.Address, node.Dir)
	}
	fmt.Fprintf(w, "  Logs       %s\n", filepath.Dir(dir.Log("server")))
	fmt.Fprintf(w, "Use it with:  eval \"$(%s env --data-dir %s)\"\n", os.Args[0], quote(string(dir)))
	return nil
}

// printFleet shows the clusters of a fleet.
func (r *report) printFleet(w io.Writer) {
	fmt.Fprintf(w, "  %-10s Kubernetes %s  %s  (kubeconfig %s)\n", r.Clusters[0].Name, r.Version, r.Clusters[0].URL, r.Kubeconfig)
	for i, member := range r.Members {
		fmt.Fprintf(w, "  %-10s Kubernetes %s  %s  (kubeconfig %s)\n", member.Name, member.Version, member.URL, r.Clusters[i+1].Kubeconfig)
		if member.Nodes != nil {
			fmt.Fprintf(w, "  %-10s cloud API %s (cluster %s); %d nodes, of which %d are ready; %d pods\n",
				"", member.Cloud.URL, member.Cloud.ClusterID, member.Nodes.Total, member.Nodes.Ready, member.Nodes.Pods)
		}
		if member.Problem != "" {
			fmt.Fprintf(w, "  %-10s problem: %s\n", "", member.Problem)
		}
	}
	if r.Problem != "" {
		fmt.Fprintf(w, "  Problem    %s\n", r.Problem)
	}
	fmt.Fprintf(w, "  Logs       %s, and log in the folder of each member cluster\n", filepath.Dir(r.DataDir.Log("server")))
	fmt.Fprintf(w, "Use a cluster with:  eval \"$(%s env --data-dir %s --cluster %s)\"\n", os.Args[0], quote(string(r.DataDir)), r.Members[0].Name)
}
