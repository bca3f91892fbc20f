// Command helmchart writes the Helm chart of the scheduler and the node agent from their
// manifests, so that there is one source:
//
//	go run ./internal/helmchart deploy/charts/gpuplan
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helmchart:", err)
		os.Exit(1)
	}
}

// run writes the chart's files, and removes those that it no longer has.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: helmchart FOLDER")
	}
	files, err := render()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(args[0]); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(args[0], name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}
