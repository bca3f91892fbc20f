package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Every example can be planned as it stands, before anything exists.
func TestExamples(t *testing.T) {
	folders := map[string][]string{}
	for _, pattern := range []string{"examples/*/*.tf", "examples/*/*/*.tf"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if filepath.Base(file) == "import-by-identity.tf" { // of what is there already
				continue
			}
			folders[filepath.Dir(file)] = append(folders[filepath.Dir(file)], file)
		}
	}
	require.Greater(t, len(folders), 7)
	for folder, files := range folders {
		t.Run(folder, func(t *testing.T) {
			if strings.Contains(folder, "examples/actions") && !acctest.Since(t, 14) {
				t.Skip("actions are HashiCorp's, and came with Terraform 1.14")
			}
			acctest.ClearEnv(t)
			t.Setenv("HOME", t.TempDir())
			if strings.Contains(folder, "ephemeral-resources") { // which are opened in the plan
				acctest.StartCloud(t)
				t.Setenv("KUBECONFIG", "")
			}
			terraform := newCLI(t, "")
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				// OpenTofu means another registry by the short name.
				full := strings.ReplaceAll(string(text), `"gpuplan/gpuplan"`, `"registry.terraform.io/gpuplan/gpuplan"`)
				require.NoError(t, os.WriteFile(filepath.Join(terraform.Dir, filepath.Base(file)), []byte(full), 0o600))
			}
			if folder == "examples/fleet" { // whose clusters are variables
				variables := `{"hub": {"kubeconfig": null}, "clusters": {
					"member-1": {"kubeconfig": null, "cluster_id": "c-1", "region": "cn-hangzhou"},
					"member-2": {"kubeconfig": null, "cluster_id": "c-2", "region": "cn-hangzhou"}}}`
				require.NoError(t, os.WriteFile(filepath.Join(terraform.Dir, "terraform.tfvars.json"), []byte(variables), 0o600))
			}
			output := terraform.Must(t, "plan")
			if strings.HasPrefix(folder, "examples/resources") {
				assert.Contains(t, output, " to add, 0 to change, 0 to destroy")
			}
		})
	}
}

// The error that the README shows is that of the quickstart with 20 workers.
func TestErrorOfTheReadme(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	text, err := os.ReadFile("examples/quickstart/main.tf")
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, says, found := strings.Cut(string(readme), "```\nError: ")
	require.True(t, found)
	says, _, _ = strings.Cut(says, "```")

	before, workers, found := strings.Cut(string(text), "worker   = { replicas = 4, gpus = 1 }")
	require.True(t, found)
	output, err := newCLI(t, before+"worker   = { replicas = 20, gpus = 1 }"+workers).Run("plan")
	require.Error(t, err)
	for paragraph := range strings.SplitSeq(says, "\n\n") {
		assert.Contains(t, acctest.Unwrapped(output), acctest.Unwrapped(paragraph))
	}
}

// arena knows every job of the quickstart.
func TestQuickstartIsForArena(t *testing.T) {
	text, err := os.ReadFile("examples/quickstart/main.tf")
	require.NoError(t, err)
	jobs := strings.Split(string(text), "\nresource \"gpuplan_training_job\" ")[1:]
	require.NotEmpty(t, jobs)
	for _, job := range jobs {
		body, _, _ := strings.Cut(job, "\n}\n")
		assert.Regexp(t, `(?m)^  arena_compatible += true\b`, body)
	}
}

// An import evaluates a configuration of which nothing else is in the state: no key may need it.
func TestImportIntoQuickstart(t *testing.T) {
	acctest.StartCloud(t)
	text, err := os.ReadFile("examples/quickstart/main.tf")
	require.NoError(t, err)
	begin := strings.Index(string(text), "resource \"gpuplan_node_pool\" \"v100\"")
	require.Positive(t, begin)
	pool := string(text)[begin:]
	pool = pool[:strings.Index(pool, "\n}\n")+3]
	first := newCLI(t, pool+"output \"id\" {\n  value = gpuplan_node_pool.v100.id\n}\n")
	first.Must(t, "apply", "-auto-approve")
	id := strings.TrimSpace(first.Must(t, "output", "-raw", "id"))

	output := newCLI(t, string(text)).Must(t, "import", "gpuplan_node_pool.v100", id)
	assert.Contains(t, output, "Import successful!")
}
