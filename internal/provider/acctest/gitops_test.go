package acctest_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// gitops is the folder of the example.
const gitops = "../../../examples/gitops"

// pipeline is a git repository with the example, and the environment of its runners.
type pipeline struct {
	t         *testing.T
	dir       string
	terraform string
	env       []string
}

// newPipeline commits the example to a repository. The state is in files: there is no bucket.
func newPipeline(t *testing.T) *pipeline {
	t.Helper()
	for _, tool := range []string{"git", "jq", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the example needs %s", tool)
		}
	}
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	cli := acctest.NewCLI(t, provider)
	terraform := cli.Command().Path
	p := &pipeline{t: t, dir: t.TempDir(), terraform: terraform, env: append(cli.Env, "TERRAFORM="+terraform,
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")}
	require.NoError(t, os.CopyFS(p.dir, os.DirFS(gitops)))
	for _, cluster := range []string{"staging", "production"} {
		require.NoError(t, os.Remove(filepath.Join(p.dir, "clusters", cluster, "backend.tf")))
		p.must(p.terraform, "-chdir=clusters/"+cluster, "get")
	}
	p.must("git", "init", "-q", "-b", "main")
	p.commit("A cluster")
	return p
}

// run runs a command in the repository and returns its exit code.
func (p *pipeline) run(name string, args ...string) (output string, code int) {
	p.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), p.env...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (p *pipeline) must(name string, args ...string) string {
	p.t.Helper()
	output, code := p.run(name, args...)
	require.Zero(p.t, code, "%s %v: %s", name, args, output)
	return output
}

// ends requires that a script ends with a code, and returns what it prints.
func (p *pipeline) ends(code int, script string, args ...string) string {
	p.t.Helper()
	output, got := p.run("./"+script, args...)
	require.Equal(p.t, code, got, "%s %v: %s", script, args, output)
	return output
}

func (p *pipeline) commit(message string) {
	p.t.Helper()
	p.must("git", "add", "-A")
	p.must("git", "commit", "-q", "-m", message)
}

// release writes the release of a cluster, one job with a name.
func (p *pipeline) release(cluster, job string) {
	p.t.Helper()
	text, err := json.Marshal(map[string]any{"jobs": map[string]any{
		job: map[string]any{"image": "registry.example.com/train:2", "command": []string{"sh", "-c", "mpirun python train.py"}, "workers": 4},
	}})
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, "clusters", cluster, "release.json"), text, 0o600))
}

// The example of the guide on GitOps: a commit is planned and applied, the next one is refused by the policy, drift is
// found and repaired, and the release goes on to the second cluster.
func TestGitOps(t *testing.T) {
	acctest.ClearEnv(t)
	platform := localtest.Start(t)
	for name, value := range platform.Env {
		t.Setenv(name, value)
	}
	p := newPipeline(t)
	const staging, production = "clusters/staging", "clusters/production"
	apply := func() { p.must(p.terraform, "-chdir="+staging, "apply", "-input=false", "plan.bin") }
	t.Cleanup(func() { p.must(p.terraform, "-chdir="+staging, "destroy", "-auto-approve", "-input=false") })

	assert.Contains(t, p.ends(2, "plan.sh", staging), "worker-0..3 GPU 0")
	p.ends(0, "policy.sh", staging+"/plan.json")
	apply()
	p.ends(0, "plan.sh", staging)
	p.ends(0, "drift.sh", staging)
	assert.Empty(t, p.must("git", "status", "--porcelain"), "plans and states are not committed")

	p.release("staging", "train-2")
	main := filepath.Join(p.dir, staging, "main.tf")
	text, err := os.ReadFile(main)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(main, []byte(strings.Replace(string(text), `= "gpu"`, `= "gpu-2"`, 1)), 0o600))
	p.commit("Another job on another pool\n\nApprove: module.gpu.gpuplan_node_pool.gpu")
	p.ends(2, "plan.sh", staging)
	const ends, takes = `- module.gpu.gpuplan_training_job.release["train"] ends job default/train, which runs`, "- module.gpu.gpuplan_node_pool.gpu takes away node pool gpu"
	assert.Equal(t, "The plan is refused:\n"+takes+"\n"+ends+"\n", p.ends(3, "policy.sh", staging+"/plan.json"))
	approved := strings.Fields(p.must("git", "log", "-1", "--format=%(trailers:key=Approve,valueonly)"))
	assert.Equal(t, "The plan is refused:\n"+ends+"\n", p.ends(3, "policy.sh", append([]string{staging + "/plan.json"}, approved...)...))
	p.must("git", "revert", "--no-edit", "HEAD")
	p.ends(0, "plan.sh", staging)

	client := platform.Client(t)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodePoolNameLabel + "=gpu"})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 1)
	_, err = client.CoreV1().Nodes().Patch(t.Context(), nodes.Items[0].Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"ack.node.gpu.schedule":"default"}}}`), metav1.PatchOptions{FieldManager: "kubectl-label"})
	require.NoError(t, err)
	assert.Contains(t, p.ends(2, "drift.sh", staging), "The cluster is not as clusters/staging says:\n- module.gpu.gpuplan_node_pool.gpu: update\n")
	p.ends(2, "promote.sh", staging, production)
	assert.Empty(t, p.must("git", "status", "--porcelain"), "what has drifted is not promoted")
	p.ends(2, "plan.sh", staging)
	p.ends(0, "policy.sh", staging+"/plan.json")
	apply()
	p.ends(0, "drift.sh", staging)

	p.ends(0, "promote.sh", staging, production)
	p.commit("Production gets the release of staging")
	acctest.StartCloud(t) // another cluster
	assert.Contains(t, p.ends(2, "plan.sh", production), "default/train")
	p.ends(0, "policy.sh", production+"/plan.json")
}

// Why the policy refuses a plan, and what it lets pass.
func TestGitOpsPolicy(t *testing.T) {
	p := newPipeline(t)
	job := func(actions, before, after string) string {
		return `{"address": "gpuplan_training_job.x", "mode": "managed", "type": "gpuplan_training_job", "change": {"actions": [` + actions + `], "before": ` + before + `, "after": ` + after + `}}`
	}
	pool := func(actions string) string {
		return `{"address": "gpuplan_node_pool.x", "mode": "managed", "type": "gpuplan_node_pool", "change": {"actions": [` + actions + `], "before": {"name": "p"}, "after": {"name": "p"}}}`
	}
	const drains = `{"address": "action.gpuplan_drain_nodes.x", "type": "gpuplan_drain_nodes"}`
	const running = `{"id": "default/x", "status": "Running", "suspend": false}`
	for name, test := range map[string]struct {
		change, invokes, provider string
		approved                  []string
		want                      string
	}{
		"nothing":                 {},
		"pool, created":           {change: pool(`"create"`)},
		"pool, changed":           {change: pool(`"update"`)},
		"pool, deleted":           {change: pool(`"delete"`), want: "gpuplan_node_pool.x takes away node pool p"},
		"pool, replaced":          {change: pool(`"delete", "create"`), want: "gpuplan_node_pool.x takes away node pool p"},
		"pool, replaced, agreed":  {change: pool(`"create", "delete"`), approved: []string{"a", "gpuplan_node_pool.x"}},
		"job, ended":              {change: job(`"delete"`, running, "null"), want: "gpuplan_training_job.x ends job default/x, which runs"},
		"job, ended, done":        {change: job(`"delete"`, `{"id": "default/x", "status": "Succeeded"}`, "null")},
		"job, suspended":          {change: job(`"update"`, running, `{"suspend": true}`), want: "gpuplan_training_job.x suspends job default/x, which runs"},
		"job, unchanged":          {change: job(`"no-op"`, running, `{"allow_preemption": true}`)},
		"job, preempts":           {change: job(`"create"`, "null", `{"allow_preemption": true}`), want: "gpuplan_training_job.x may evict running jobs (allow_preemption)"},
		"job, disrupts":           {change: job(`"update"`, "null", `{"allow_disruption": true}`), want: "gpuplan_training_job.x may take nodes or quota from running jobs (allow_disruption)"},
		"job, not checked":        {change: job(`"create"`, "null", `{"placement_check": "off"}`), want: "gpuplan_training_job.x is not held to its placement (placement_check)"},
		"nodes, drained":          {invokes: drains, want: "action.gpuplan_drain_nodes.x evicts what runs on nodes"},
		"nodes, drained, agreed":  {invokes: drains, approved: []string{"action.gpuplan_drain_nodes.x"}},
		"job, run again":          {invokes: `{"address": "action.gpuplan_rerun_training_job.x", "type": "gpuplan_rerun_training_job"}`}, // refused while it runs
		"provider, checks":        {provider: `"placement_check": {"constant_value": "error"}`},
		"provider, warns":         {provider: `"placement_check": {"constant_value": "warn"}`, want: `provider gpuplan: placement_check is not "error"`},
		"provider, by a variable": {provider: `"placement_check": {"references": ["var.check"]}`, want: `provider gpuplan: placement_check is not "error"`},
	} {
		t.Run(name, func(t *testing.T) {
			plan := `{"resource_changes": [` + test.change + `], "action_invocations": [` + test.invokes + `], "configuration": {"provider_config": {"gpuplan": {"name": "gpuplan", "expressions": {` + test.provider + `}}, "aws": {"name": "aws"}}}}`
			require.NoError(t, os.WriteFile(filepath.Join(p.dir, "plan.json"), []byte(plan), 0o600))
			args := append([]string{"plan.json"}, test.approved...)
			if test.want == "" {
				assert.Empty(t, p.ends(0, "policy.sh", args...))
				return
			}
			assert.Equal(t, "The plan is refused:\n- "+test.want+"\n", p.ends(3, "policy.sh", args...))
		})
	}
}
