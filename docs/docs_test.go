// Package docs_test holds the hand-written documentation to the repository: paths, make
// targets, command-line flags, Go identifiers and names in backticks exist.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = ".."

// foreign are names of others and of earlier versions, with their owners; everything else in backticks is ours.
var foreign = map[string]string{
	"--build-arg":                   "docker",
	"--report-secrets":              "Karmada",
	"-parallelism=1":                "terraform",
	"-target":                       "terraform",
	"-replace":                      "terraform",
	"-state":                        "terraform",
	"app.Run":                       "kube-scheduler",
	"podgroup/gangscheduling":       "Kubernetes",
	"Queuing":                       "ack-kube-queue",
	"RUNNING":                       "arena",
	"gpuplan_plan_duration_seconds": "earlier versions",
}

// page is a documentation page that people wrote.
type page struct{ path, text string }

// pages are the pages, without those that are generated.
func pages(t *testing.T, r *repository) (list []page) {
	t.Helper()
	generated := []string{"docs/index.md", "docs/resources/", "docs/data-sources/", "templates/guides/"} // guides are looked at in docs/guides
	for _, path := range r.files {
		ext := filepath.Ext(path)
		if ext != ".md" && ext != ".tmpl" || strings.Contains(path, "testdata/") || slices.ContainsFunc(generated, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		list = append(list, page{path, string(text)})
	}
	require.Greater(t, len(list), 10)
	return list
}

func TestDocumentationNamesWhatExists(t *testing.T) {
	r := read(t)
	var all strings.Builder
	for _, p := range pages(t, r) {
		all.WriteString(p.text)
		t.Run(p.path, func(t *testing.T) {
			for _, fault := range r.faults(p) {
				assert.Fail(t, fault)
			}
		})
	}
	for word, owner := range foreign {
		assert.Contains(t, all.String(), "`"+word+"`", "this exception is not needed any more")
		assert.NotEmpty(t, r.span(word), "%s is no exception of %s: it is ours, too", word, owner)
	}
}

// What `kubectl gpuplan` is shown to say is what its tests compare its words with.
func TestSamplesOfAnswers(t *testing.T) {
	golden := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "scheduler/explain/testdata/*.txt"))
	require.NoError(t, err)
	heads := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			golden[strings.TrimRight(line, " ")] = true
			heads[line] = heads[line] || i == 0
		}
	}
	samples := 0
	for _, p := range pages(t, read(t)) {
		for _, m := range fence.FindAllStringSubmatch(p.text, -1) {
			lines := strings.Split(m[2], "\n")
			if len(lines) < 2 || !strings.HasPrefix(lines[0], "$ kubectl gpuplan") || !heads[lines[1]] {
				continue
			}
			samples++
			for _, line := range lines[1:] {
				assert.True(t, golden[strings.TrimRight(line, " ")], "%s: %s", p.path, line)
			}
		}
	}
	assert.GreaterOrEqual(t, samples, 4)
}

// What is wrong in a page is found.
func TestFaultsAreFound(t *testing.T) {
	r := read(t)
	for text, want := range map[string]string{
		"`internal/nowhere`":                                                  "no path internal/nowhere",
		"`scheduler/fleets/`":                                                 "no path scheduler/fleets/",
		"`nodeagent/main.c`":                                                  "no path nodeagent/main.c",
		"[design](docs/designs.md)":                                           "no path docs/designs.md",
		"[queue](docs/queue.md#no-such-part)":                                 "no heading no-such-part in docs/queue.md",
		"`make tests`":                                                        "no make target tests",
		"    make tset # all tests\n":                                         "no make target tset",
		"```sh\nmake -C bench/schedulers go\n```":                             "no make target go in bench/schedulers",
		"`--pods-steady-timeout`":                                             "no flag --pods-steady-timeout",
		"```sh\nbin/gpuplan-local up --purge\n```":                            "",
		"```sh\nbin/gpuplan-local up --purged\n```":                           "gpuplan-local has no flag --purged",
		"`bin/gpuplan-local up | stop`":                                       "gpuplan-local has no command stop",
		"`kubectl gpuplan whom NAME`":                                         "kubectl-gpuplan has no command whom",
		"`gpuplan-scheduler queues`":                                          "gpuplan-scheduler has no command queues",
		"`gpuplan-node-agent --period 3s`":                                    "gpuplan-node-agent has no flag --period",
		"```sh\ngo run ./internal/gpu/gpuset -svgs a.svg b.json\n```":         "./internal/gpu/gpuset has no flag -svgs",
		"```sh\ngo test -run TestNothing ./internal/gpu\n```":                 "no test or benchmark TestNothing in ./internal/gpu",
		"`go test -bench Nothing ./internal/placement`":                       "no test or benchmark Nothing in ./internal/placement",
		"`TestFitsNot`":                                                       "no test TestFitsNot",
		"`TestScenarios/nothing`":                                             "no test TestScenarios/nothing",
		"`Wiring.GBpsPerGPU`":                                                 "no identifier Wiring.GBpsPerGPU",
		"`inventory.Gangster`":                                                "no identifier inventory.Gangster",
		"`gpuplan_gang_rollbacks`":                                            "gpuplan_gang_rollbacks is nowhere in the code",
		"`AllocationIsAltered`":                                               "AllocationIsAltered is nowhere in the code",
		"`allow_disruptions = true`":                                          "allow_disruptions is nowhere in the code",
		"`gpuplan.dev/rout`":                                                  "gpuplan.dev/rout is nowhere in the code",
		"`View.Pods` and `internal/gpu`, `make test` and `--requeue-backoff`": "",
	} {
		faults := r.faults(page{"README.md", text})
		if want == "" {
			assert.Empty(t, faults, text)
			continue
		}
		assert.Equal(t, []string{want}, faults, text)
	}
}

var (
	fence  = regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```")
	indent = regexp.MustCompile(`(?m)^    (make .*)$`)
	span   = regexp.MustCompile("`([^`\n]+)`")
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// faults lists what a page names and the repository does not have.
func (r *repository) faults(p page) (faults []string) {
	seen := map[string]bool{}
	add := func(list ...string) {
		for _, fault := range list {
			if fault != "" && !seen[fault] {
				seen[fault] = true
				faults = append(faults, fault)
			}
		}
	}
	for _, m := range fence.FindAllStringSubmatch(p.text, -1) {
		switch {
		case m[1] == "sh" || m[1] == "console":
			for line := range strings.SplitSeq(strings.ReplaceAll(m[2], "\\\n", " "), "\n") {
				add(r.command(strings.TrimPrefix(line, "$ "))...)
			}
		case m[1] == "" && strings.Contains(m[2], "\ninternal/\n"):
			add(r.tree(m[2])...)
		}
	}
	text := fence.ReplaceAllString(p.text, "")
	for _, m := range indent.FindAllStringSubmatch(text, -1) {
		add(r.command(m[1])...)
	}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		add(r.link(filepath.Dir(p.path), m[1]))
	}
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		if foreign[m[1]] == "" {
			add(r.span(m[1])...)
		}
	}
	return faults
}

// tree checks a drawing of folders: the first word of a line is a folder, others that end
// with a slash are below it.
func (r *repository) tree(text string) (faults []string) {
	above := ""
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		base := ""
		if strings.HasPrefix(line, " ") {
			base = above
		} else {
			above = words[0]
		}
		first := base + words[0]
		for i, word := range words {
			word = strings.Trim(word, ",;()")
			if !strings.HasSuffix(word, "/") || strings.Contains(word, "<") {
				continue
			}
			if i == 0 && r.paths[base+word] || i > 0 && (r.paths[first+word] || r.paths[word] || r.paths[base+word]) {
				continue
			}
			faults = append(faults, "no path "+first+" "+word)
		}
	}
	return faults
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noWord  = regexp.MustCompile(`[^a-z0-9 -]`)
)

// address is where the repository is, for pages that are read elsewhere.
var address = regexp.MustCompile(`^https://github\.com/gpuplan/terraform-provider-gpuplan/(?:blob|tree)/main/`)

// link checks the target of a link.
func (r *repository) link(dir, target string) string {
	if own := address.FindString(target); own != "" {
		dir, target = "", strings.TrimPrefix(target, own)
	}
	if strings.Contains(target, "://") {
		return ""
	}
	path, anchor, _ := strings.Cut(target, "#")
	path = filepath.Join(dir, path)
	if !r.paths[path] && !r.paths[path+"/"] {
		return "no path " + path
	}
	if anchor == "" {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(root, path)) // it exists
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		if strings.ReplaceAll(noWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
			return ""
		}
	}
	return "no heading " + anchor + " in " + path
}
