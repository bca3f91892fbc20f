// Command helm renders a chart with Helm's own engine and prints the objects, CRDs
// first, as `helm template --include-crds` does:
//
//	helm CHART NAMESPACE VALUES
//
// VALUES is the values of the user as JSON.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

// capabilities are those of a cluster of Kubernetes 1.36.
func capabilities() *chartutil.Capabilities {
	have := chartutil.DefaultCapabilities.Copy()
	have.APIVersions = append(have.APIVersions, "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	return have
}

func run(args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("usage: helm CHART NAMESPACE VALUES")
	}
	chart, err := loader.Load(args[0])
	if err != nil {
		return err
	}
	given, err := chartutil.ReadValues([]byte(args[2]))
	if err != nil {
		return err
	}
	release := chartutil.ReleaseOptions{Name: chart.Name(), Namespace: args[1], Revision: 1, IsInstall: true}
	// The schema of the values is checked here.
	values, err := chartutil.ToRenderValues(chart, given, release, capabilities())
	if err != nil {
		return err
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return err
	}
	for _, crd := range chart.CRDObjects() {
		fmt.Fprintf(out, "---\n%s\n", crd.File.Data)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(out, "---\n%s\n", files[name])
		}
	}
	return nil
}
