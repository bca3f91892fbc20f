package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// tools are the programs that the demo uses and did not build.
type tools struct {
	// terraform is the path of Terraform or OpenTofu.
	terraform string
	// cc tells whether there is a C compiler.
	cc bool
}

// oldestTerraform is the minor version of Terraform 1 and OpenTofu 1 that the provider needs.
const oldestTerraform = 8

// findTools looks for Terraform or OpenTofu; when neither is there it builds OpenTofu.
func findTools(ctx context.Context, d demo) (tools, error) {
	var t tools
	for _, cc := range []string{os.Getenv("CC"), "cc", "gcc"} {
		if _, err := exec.LookPath(cc); cc != "" && err == nil {
			t.cc = true
		}
	}
	tofu := filepath.Join(d.root, "bin", "tofu")
	var old []string
	for _, name := range []string{"terraform", "tofu", tofu} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		version, err := terraformVersion(ctx, path)
		if err != nil {
			return t, err
		}
		if !newEnough(version) {
			old = append(old, fmt.Sprintf("%s is %s", path, version))
			continue
		}
		t.terraform = path
		fmt.Fprintf(d.out, "==> use %s %s\n", path, version)
		return t, nil
	}
	why := "neither Terraform nor OpenTofu is on PATH"
	if len(old) > 0 {
		why = strings.Join(old, ", ") + fmt.Sprintf(", older than 1.%d", oldestTerraform)
	}
	if err := d.step(ctx, "build OpenTofu", why+"; this takes some minutes", d.make(ctx, "bin/tofu")); err != nil {
		return t, err
	}
	t.terraform = tofu
	return t, nil
}

func terraformVersion(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, path, "version", "-json")
	cmd.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+os.DevNull, "CHECKPOINT_DISABLE=1")
	raw, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	var v struct {
		Version string `json:"terraform_version"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", fmt.Errorf("read the version of %s: %w", path, err)
	}
	return v.Version, nil
}

func newEnough(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err := errors.Join(err1, err2); err != nil {
		return false
	}
	return major > 1 || major == 1 && minor >= oldestTerraform
}

func (d demo) make(ctx context.Context, target string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", target)
	cmd.Dir = d.root
	return cmd
}

// built are what every demo builds and measures, in the order in which they are built.
var built = []string{
	"gpuplan-local", "gpuplan-scheduler", "gpuplan-node-agent", "gpuplan-joboperator", "gpuplan-container", "terraform-provider-gpuplan", "kubectl-gpuplan",
}

// programs are those that the demo builds and measures.
func (d demo) programs() []string {
	if d.fleet {
		return append(slices.Clone(built), "gpuplan-karmada")
	}
	return built
}

// build makes every program, one step each.
func (d demo) build(ctx context.Context, t tools) error {
	hints := map[string]string{
		"gpuplan-local":       "the first build compiles Kubernetes and etcd: 5 to 10 minutes on two cores; later ones take seconds",
		"gpuplan-joboperator": "the training operator, from its own module",
		"gpuplan-karmada":     "Karmada, from its own module: 10 minutes the first time",
	}
	if !t.cc {
		hints["gpuplan-node-agent"] = "no C compiler here: the node agent is built without NVML and reads hardware description files only"
	}
	for _, program := range d.programs() {
		if err := d.step(ctx, "build "+program, hints[program], d.make(ctx, "bin/"+program)); err != nil {
			return err
		}
	}
	return nil
}
