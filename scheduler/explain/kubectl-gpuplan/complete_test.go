package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A shell completes kubectl, which runs a program of its own for each plugin; a completion that this
// program generates of itself would take the place of kubectl's.
func TestCompletionIsKubectls(t *testing.T) {
	assert.ErrorContains(t, run(t, nil, "completion", "bash"), `unknown command "completion"`)

	// The program stands for kubectl-gpuplan, and hands over what is typed, an empty last word included.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl-gpuplan"), []byte("#!/bin/sh\nprintf '[%s]' \"$@\"\n"), 0o755))
	program := exec.CommandContext(t.Context(), "./kubectl_complete-gpuplan", "why", "")
	program.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	typed, err := program.Output()
	require.NoError(t, err)
	assert.Equal(t, "[__complete][why][]", string(typed))

	var out strings.Builder
	require.NoError(t, run(t, &out, "__complete", ""))
	for _, name := range []string{"why\t", "fits\t", "gangs\t", "map\t", "without\t"} {
		assert.Contains(t, "\n"+out.String(), "\n"+name)
	}
	out.Reset()
	require.NoError(t, run(t, &out, "__complete", "map", "-o", ""))
	assert.Equal(t, "table\nsvg\njson\n:4\n", out.String())
	out.Reset()
	require.NoError(t, run(t, &out, "__complete", "map", "--member", ""))
	assert.Equal(t, ":1\n", out.String(), "clusters, which cannot be read here, and no files")
}

// Gangs of other namespaces are suggested by the names that stand for them from here.
func TestSuggestedGangs(t *testing.T) {
	snapshot := twoSweeps(t)
	assert.Equal(t, []string{"sweep", "research/sweep"}, gangNames(&seen{namespace: "default", clusters: []cluster{{snapshot: snapshot}}}))
	inTwo := &seen{namespace: "default", fleet: true, clusters: []cluster{{name: "a", snapshot: snapshot}, {name: "b", snapshot: snapshot}}}
	assert.Equal(t, []string{"sweep", "research/sweep"}, gangNames(inTwo))
	assert.Equal(t, []string{"default/sweep", "sweep"}, gangNames(&seen{namespace: "research", clusters: []cluster{{snapshot: snapshot}}}))
}

// A command line that is wrong says what the command wants, before the cluster is asked.
func TestWrongArguments(t *testing.T) {
	for line, want := range map[string]string{
		"why":        "kubectl gpuplan why wants the name of a gang, a job or a pod; kubectl gpuplan gangs -A lists them",
		"fits":       "kubectl gpuplan fits wants the name of a gang",
		"why a b":    "kubectl gpuplan why wants one name, not 2: a b",
		"gangs a":    `kubectl gpuplan gangs takes no names, and "a" is one`,
		"map a":      `kubectl gpuplan map takes no names, and "a" is one`,
		"without":    "kubectl gpuplan without wants the names of nodes; kubectl gpuplan map lists those with GPUs",
		"help whom":  `unknown command "whom" for "kubectl gpuplan"`,
		"whom":       `unknown command "whom" for "kubectl gpuplan"`,
		"map -o pdf": `output "pdf" is none of table, svg, json`,
	} {
		assert.ErrorContains(t, run(t, nil, strings.Fields(line)...), want, line)
	}
	var out strings.Builder
	require.NoError(t, run(t, &out, "help", "why"))
	assert.Contains(t, out.String(), "kubectl gpuplan why NAME")
}

// run runs the program without a cluster.
func run(t *testing.T, out *strings.Builder, args ...string) error {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if out == nil {
		out = &strings.Builder{}
	}
	c := command(out)
	c.SetErr(&strings.Builder{})
	c.SetArgs(args)
	return c.ExecuteContext(t.Context())
}
