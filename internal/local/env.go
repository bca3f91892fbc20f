package main

import (
	"encoding/json"
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
	s, err := settingsOf(dir, cluster)
	if err != nil {
		return err
	}
	lines := [][2]string{{"KUBECONFIG", s.Kubeconfig}}
	if s.Endpoint != "" {
		lines = append(lines,
			[2]string{"GPUPLAN_CS_ENDPOINT", s.Endpoint},
			[2]string{"GPUPLAN_CLUSTER_ID", s.ClusterID},
			[2]string{"ALIBABA_CLOUD_REGION_ID", s.Region},
			[2]string{"ALIBABA_CLOUD_ACCESS_KEY_ID", s.AccessKey},
			[2]string{"ALIBABA_CLOUD_ACCESS_KEY_SECRET", s.SecretKey})
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(w, "export %s=%s\n", line[0], quote(line[1])); err != nil {
			return err
		}
	}
	return nil
}

// settings are those of a provider for one cluster, by the names of the provider's attributes.
type settings struct {
	Kubeconfig string `json:"kubeconfig"`
	ClusterID  string `json:"cluster_id,omitempty"`
	Region     string `json:"region,omitempty"`
	Endpoint   string `json:"endpoint,omitempty"`
	AccessKey  string `json:"access_key,omitempty"`
	SecretKey  string `json:"secret_key,omitempty"`
}

// settingsOf reads the settings for a cluster.
func settingsOf(dir datadir.Dir, cluster datadir.Cluster) (settings, error) {
	s := settings{Kubeconfig: cluster.Kubeconfig}
	switch cluster.Name {
	case datadir.HubCluster:
		return s, nil
	case datadir.MainCluster:
	default:
		dir = dir.Member(cluster.Name)
	}
	state, err := dir.ReadState()
	if err == nil && state.Cloud.URL == "" {
		return s, notStarted(dir)
	}
	if err != nil {
		return s, err
	}
	credentials, err := cloud.ReadCredentials(dir.Cloud())
	if err != nil {
		return s, err
	}
	s.ClusterID, s.Region, s.Endpoint = state.Cloud.ClusterID, state.Cloud.RegionID, state.Cloud.URL
	s.AccessKey, s.SecretKey = credentials.AccessKeyID, credentials.AccessKeySecret
	return s, nil
}

// variables prints the settings for the hub and all member clusters of a fleet as Terraform variables, which examples/fleet declares.
func variables(w io.Writer, dir datadir.Dir) error {
	hub, err := find(dir, "")
	if err != nil {
		return err
	}
	if hub.Name != datadir.HubCluster {
		return fmt.Errorf("the platform in %s is no fleet: leave out --variables, or start one in another folder with gpuplan-local up --members", dir)
	}
	state, err := dir.ReadState()
	if err != nil {
		return err
	}
	all := struct {
		Hub      settings            `json:"hub"`
		Clusters map[string]settings `json:"clusters"`
	}{Clusters: map[string]settings{}}
	for _, cluster := range state.Clusters {
		s, err := settingsOf(dir, cluster)
		if err != nil {
			return err
		}
		if cluster.Name == datadir.HubCluster {
			all.Hub = s
		} else {
			all.Clusters[cluster.Name] = s
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(all)
}

func notStarted(dir datadir.Dir) error {
	return fmt.Errorf("the platform was never started in %s; run gpuplan-local up, or name its folder with --data-dir", dir)
}

// quote quotes a word for a POSIX shell.
func quote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
