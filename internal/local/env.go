package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/cloud"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
)

// kubeconfig prints the path of a cluster's kubeconfig, which exists from the first start on.
func kubeconfig(w io.Writer, dir datadir.Dir, cluster string) error {
	found, err := find(dir, cluster)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, found.Kubeconfig)
	return err
}

// find is the cluster of that name; "" is the hub of a fleet, or the only cluster.
func find(dir datadir.Dir, name string) (datadir.Cluster, error) {
	state, err := dir.ReadState()
	if errors.Is(err, os.ErrNotExist) || err == nil && len(state.Clusters) == 0 {
		return datadir.Cluster{}, notStarted(dir)
	}
	if err != nil {
		return datadir.Cluster{}, err
	}
	var names []string
	for _, cluster := range state.Clusters {
		if name == "" || cluster.Name == name {
			return cluster, nil
		}
		names = append(names, cluster.Name)
	}
	return datadir.Cluster{}, fmt.Errorf("there is no cluster %q; there are %s", name, strings.Join(names, ", "))
}

// env prints what the provider and kubectl read from the environment, as lines for a
// shell. It holds from the first start on: addresses and credentials stay. The hub of a
// fleet has no cloud.
func env(w io.Writer, dir datadir.Dir, name string) error {
	cluster, err := find(dir, name)
	if err != nil {
		return err
	}
	switch cluster.Name {
	case datadir.HubCluster:
		return export(w, [2]string{"KUBECONFIG", cluster.Kubeconfig})
	case datadir.MainCluster:
	default:
		dir = dir.Member(cluster.Name)
	}
	state, err := dir.ReadState()
	if err == nil && state.Cloud.URL == "" {
		return notStarted(dir)
	}
	if err != nil {
		return err
	}
	credentials, err := cloud.ReadCredentials(dir.Cloud())
	if err != nil {
		return err
	}
	return export(w,
		[2]string{"KUBECONFIG", cluster.Kubeconfig},
		[2]string{"GPUPLAN_CS_ENDPOINT", state.Cloud.URL},
		[2]string{"GPUPLAN_CLUSTER_ID", state.Cloud.ClusterID},
		[2]string{"ALIBABA_CLOUD_REGION_ID", state.Cloud.RegionID},
		[2]string{"ALIBABA_CLOUD_ACCESS_KEY_ID", credentials.AccessKeyID},
		[2]string{"ALIBABA_CLOUD_ACCESS_KEY_SECRET", credentials.AccessKeySecret})
}

func export(w io.Writer, variables ...[2]string) error {
	for _, variable := range variables {
		if _, err := fmt.Fprintf(w, "export %s=%s\n", variable[0], quote(variable[1])); err != nil {
			return err
		}
	}
	return nil
}

func notStarted(dir datadir.Dir) error {
	return fmt.Errorf("the platform was never started in %s; run gpuplan-local up, or name its folder with --data-dir", dir)
}

// quote quotes a word for a POSIX shell.
func quote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
