package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// terraform runs Terraform on a copy of the example in the data directory, where
// its state is too, with a development override of the provider.
type terraform struct {
	demo
	binary string
	env    []string
}

// local returns a gpuplan-local command on the demo's data directory, which finds containerd in bin first.
func (d demo) local(args ...string) *exec.Cmd {
	bin := filepath.Join(d.root, "bin")
	cmd := exec.Command(filepath.Join(bin, "gpuplan-local"), append(args, "--data-dir", d.data)...)
	cmd.Dir = d.root
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	return cmd
}

// dir is where the demo's copy of the example is.
func (d demo) dir() string { return filepath.Join(d.data, "demo", d.example) }

// startPlatform starts the local platform and returns Terraform set up for it.
func (d demo) startPlatform(ctx context.Context, tools tools) (terraform, error) {
	hint, start := "etcd, kube-apiserver, controllers, simulated nodes, cloud API emulator, job operator", d.local("up", "--real-nodes", strconv.Itoa(d.realNodes))
	if d.fleet {
		hint, start = fmt.Sprintf("a hub, and %d member clusters of all that", members), d.local("up", "--members", strconv.Itoa(members))
	}
	if err := d.step(ctx, "start the local platform", hint, start); err != nil {
		return terraform{}, err
	}
	raw, err := d.local("env").Output()
	if err != nil {
		return terraform{}, fmt.Errorf("ask the local platform for its environment: %w", err)
	}
	t := terraform{demo: d, binary: tools.terraform}
	kept, err := copyExample(filepath.Join(d.root, "examples", d.example), d.dir())
	if err != nil {
		return terraform{}, err
	}
	for _, file := range kept {
		fmt.Fprintf(d.out, "%s is kept as it is: it differs from the example. Delete it to start from the example.\n", file)
	}
	if d.fleet {
		settings, err := d.local("env", "--variables").Output()
		if err == nil {
			err = os.WriteFile(filepath.Join(d.dir(), "terraform.tfvars.json"), settings, 0o600)
		}
		if err != nil {
			return terraform{}, fmt.Errorf("write the settings for the clusters as variables: %w", err)
		}
	}
	override := filepath.Join(d.data, "demo", "terraform.rc")
	bin := filepath.Join(d.root, "bin")
	rc := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"registry.terraform.io/gpuplan/gpuplan\" = %q\n  }\n  direct {}\n}\n", bin)
	if err := os.WriteFile(override, []byte(rc), 0o644); err != nil {
		return terraform{}, fmt.Errorf("write the development override: %w", err)
	}
	// A user's shell needs the same two things, the platform's environment and the override, and the programs.
	shell := fmt.Sprintf("eval \"$('%s' env --data-dir '%s')\"\nexport TF_CLI_CONFIG_FILE='%s'\nexport PATH='%s':\"$PATH\"\n",
		filepath.Join(bin, "gpuplan-local"), d.data, override, bin)
	if err := os.WriteFile(d.shellFile(), []byte(shell), 0o644); err != nil {
		return terraform{}, fmt.Errorf("write the environment for your shell: %w", err)
	}
	t.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+override, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	t.env = append(t.env, exported(string(raw))...)
	return t, nil
}

// applied tells whether Terraform's state has anything to destroy.
func (d demo) applied() (bool, error) {
	raw, err := os.ReadFile(filepath.Join(d.dir(), "terraform.tfstate"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for what there is to destroy: %w", err)
	}
	var state struct {
		Resources []json.RawMessage `json:"resources"`
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return false, fmt.Errorf("read Terraform's state: %w", err)
	}
	return len(state.Resources) > 0, nil
}

// shellFile is what a user sources to work with the demo's platform.
func (d demo) shellFile() string { return filepath.Join(d.data, "demo", "env.sh") }

// copyExample copies the configuration of an example into a folder. Files that are there and differ are kept, and
// returned: the demo tells its users to edit them.
func copyExample(from, to string) (kept []string, err error) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return nil, fmt.Errorf("create the folder of the example: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(from, "*.tf"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", from, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("copy the example: %w", err)
		}
		copied := filepath.Join(to, filepath.Base(file))
		have, err := os.ReadFile(copied)
		switch {
		case errors.Is(err, os.ErrNotExist):
			err = os.WriteFile(copied, raw, 0o644)
		case err == nil && !bytes.Equal(have, raw):
			kept = append(kept, copied)
		}
		if err != nil {
			return nil, fmt.Errorf("copy the example: %w", err)
		}
	}
	return kept, nil
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

// stopTimeout is how long Terraform may take to stop when it was told to.
const stopTimeout = 2 * time.Minute

// command runs Terraform. An interrupt reaches it once: it then finishes what it is
// doing and saves its state, and at a second one it would not. So it is out of the
// terminal's process group.
func (t terraform) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.binary, args...)
	cmd.Dir = t.dir()
	cmd.Env = t.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTimeout
	return cmd
}

// plan plans the example and returns the planned jobs.
func (t terraform) plan(ctx context.Context) (snapshot, error) {
	if err := t.step(ctx, "terraform plan", "examples/"+t.example, t.command(ctx, "plan", "-input=false", "-no-color", "-out=plan")); err != nil {
		return snapshot{}, err
	}
	raw, err := t.command(ctx, "show", "-json", "plan").Output()
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
	return t.step(ctx, "terraform apply", "it waits until the jobs run", t.command(ctx, "apply", "-input=false", "-no-color", "plan"))
}

// unchanged plans once more, and fails where that has anything to do.
func (t terraform) unchanged(ctx context.Context) error {
	return t.step(ctx, "terraform plan -detailed-exitcode", "it has nothing to do, or the demo fails", t.command(ctx, "plan", "-input=false", "-no-color", "-detailed-exitcode"))
}

// refresh takes what has become of the jobs into the state.
func (t terraform) refresh(ctx context.Context) error {
	return t.step(ctx, "terraform apply -refresh-only", "", t.command(ctx, "apply", "-refresh-only", "-auto-approve", "-input=false", "-no-color"))
}

func (t terraform) destroy(ctx context.Context) error {
	return t.step(ctx, "terraform destroy", "", t.command(ctx, "destroy", "-input=false", "-no-color", "-auto-approve"))
}

// state returns the jobs as they are after apply.
func (t terraform) state(ctx context.Context) (snapshot, error) {
	raw, err := t.command(ctx, "show", "-json").Output()
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
