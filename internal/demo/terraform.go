package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// terraform runs Terraform on the quickstart with a development override of the
// provider, and keeps state and plan in the data directory.
type terraform struct {
	demo
	binary    string
	env       []string
	stateFile string
	planFile  string
}

// local returns a gpuplan-local command on the demo's data directory.
func (d demo) local(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(d.root, "bin", "gpuplan-local"), append(args, "--data-dir", d.data)...)
	cmd.Dir = d.root
	return cmd
}

// startPlatform starts the local platform and returns Terraform set up for it.
func (d demo) startPlatform(ctx context.Context, t tools) (terraform, error) {
	if err := d.step(ctx, "start the local platform", "etcd, kube-apiserver, controllers, simulated nodes, cloud API emulator, job operator", d.local("up")); err != nil {
		return terraform{}, err
	}
	raw, err := d.local("env").Output()
	if err != nil {
		return terraform{}, fmt.Errorf("ask the local platform for its environment: %w", err)
	}
	dir := filepath.Join(d.data, "demo")
	override := filepath.Join(dir, "terraform.rc")
	rc := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"registry.terraform.io/gpuplan/gpuplan\" = %q\n    \"registry.opentofu.org/gpuplan/gpuplan\" = %q\n  }\n  direct {}\n}\n",
		filepath.Join(d.root, "bin"), filepath.Join(d.root, "bin"))
	if err := os.WriteFile(override, []byte(rc), 0o644); err != nil {
		return terraform{}, fmt.Errorf("write the development override: %w", err)
	}
	env := append(os.Environ(), "TF_CLI_CONFIG_FILE="+override, "TF_DATA_DIR="+filepath.Join(dir, "terraform"), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	env = append(env, exported(string(raw))...)
	return terraform{
		demo: d, binary: t.terraform, env: env,
		stateFile: filepath.Join(dir, "terraform.tfstate"), planFile: filepath.Join(dir, "plan"),
	}, nil
}

// exported reads the "export NAME=value" lines of `gpuplan-local env`.
func exported(text string) []string {
	var env []string
	for _, line := range strings.Split(text, "\n") {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if ok && name != "" && !strings.HasPrefix(name, "#") {
			env = append(env, name+"="+strings.Trim(value, `'"`))
		}
	}
	return env
}

func (t terraform) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.binary, append([]string{"-chdir=" + filepath.Join(t.root, "examples", "quickstart")}, args...)...)
	cmd.Env = t.env
	return cmd
}

// plan plans the quickstart and returns the planned jobs.
func (t terraform) plan(ctx context.Context) (snapshot, error) {
	if err := t.step(ctx, "terraform plan", "examples/quickstart", t.command(ctx, "plan", "-input=false", "-no-color", "-state="+t.stateFile, "-out="+t.planFile)); err != nil {
		return snapshot{}, err
	}
	raw, err := t.command(ctx, "show", "-json", t.planFile).Output()
	if err != nil {
		return snapshot{}, fmt.Errorf("read the plan: %w", err)
	}
	var plan struct {
		PlannedValues values `json:"planned_values"`
	}
	if err := json.Unmarshal(raw, &plan); err != nil {
		return snapshot{}, fmt.Errorf("read the plan: %w", err)
	}
	return plan.PlannedValues.snapshot()
}

func (t terraform) apply(ctx context.Context) error {
	return t.step(ctx, "terraform apply", "node pools, scheduler, node agent, quota tree, jobs", t.command(ctx, "apply", "-input=false", "-no-color", "-state="+t.stateFile, t.planFile))
}

func (t terraform) destroy(ctx context.Context) error {
	return t.step(ctx, "terraform destroy", "", t.command(ctx, "destroy", "-input=false", "-no-color", "-auto-approve", "-state="+t.stateFile))
}

// state returns the jobs as they are after apply.
func (t terraform) state(ctx context.Context) (snapshot, error) {
	raw, err := t.command(ctx, "show", "-json", t.stateFile).Output()
	if err != nil {
		return snapshot{}, fmt.Errorf("read the state: %w", err)
	}
	var state struct {
		Values values `json:"values"`
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return snapshot{}, fmt.Errorf("read the state: %w", err)
	}
	return state.Values.snapshot()
}
