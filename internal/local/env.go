package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
)

// kubeconfig prints the path of the kubeconfig, which exists from the first start on.
func kubeconfig(w io.Writer, dir datadir.Dir) error {
	path := dir.Kubeconfig(datadir.MainCluster)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no kubeconfig in %s yet; run gpuplan-local up first", dir)
	}
	_, err := fmt.Fprintln(w, path)
	return err
}

// env prints what the provider and kubectl read from the environment, as lines for a shell.
func env(w io.Writer, dir datadir.Dir) error {
	return errors.New("x")
}
