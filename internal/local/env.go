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

// kubeconfig prints the path of the kubeconfig, which exists from the first start on.
func kubeconfig(w io.Writer, dir datadir.Dir) error {
	path := dir.Kubeconfig(datadir.MainCluster)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return notStarted(dir)
	}
	_, err := fmt.Fprintln(w, path)
	return err
}

// env prints what the provider and kubectl read from the environment, as lines for a
// shell. It holds from the first start on: addresses and credentials stay.
func env(w io.Writer, dir datadir.Dir) error {
	state, err := dir.ReadState()
	if errors.Is(err, os.ErrNotExist) || err == nil && state.Cloud.URL == "" {
		return notStarted(dir)
	}
	if err != nil {
		return err
	}
	credentials, err := cloud.ReadCredentials(dir.Cloud())
	if err != nil {
		return err
	}
	for _, variable := range [][2]string{
		{"KUBECONFIG", dir.Kubeconfig(datadir.MainCluster)},
		{"GPUPLAN_CS_ENDPOINT", state.Cloud.URL},
		{"GPUPLAN_CLUSTER_ID", state.Cloud.ClusterID},
		{"ALIBABA_CLOUD_REGION_ID", state.Cloud.RegionID},
		{"ALIBABA_CLOUD_ACCESS_KEY_ID", credentials.AccessKeyID},
		{"ALIBABA_CLOUD_ACCESS_KEY_SECRET", credentials.AccessKeySecret},
	} {
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
