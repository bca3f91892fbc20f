package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the programs show to people and other programs, as it is written in their code.
var (
	metricName     = regexp.MustCompile(`"(gpuplan_[a-z_]+)"`)
	annotationName = regexp.MustCompile(`= "((?:\w+\.)?gpuplan\.dev/[\w-]+)"`)
	variableName   = regexp.MustCompile(`"(GPUPLAN_[A-Z_]+)"`)
	metricRest     = regexp.MustCompile(`(?:gauge|counter)\("([a-z_]+)"`) // behind a subsystem
	eventReason    = regexp.MustCompile(`EventType(?:Normal|Warning), ("?\w+"?)`)
	reasonConst    = regexp.MustCompile(`\b(\w*[rR]eason\w*|event\w+|\w+)\s+= "([A-Z][a-zA-Z]+)"`)
)

// spoken finds what a folder's code shows: names that stand as they are, and the reasons of
// events, which may be constants of the same package.
func spoken(code map[string]string) map[string][]string {
	found := map[string][]string{}
	for dir, text := range code {
		var names []string
		patterns := []*regexp.Regexp{variableName}
		if dir == "internal/contract" {
			patterns = append(patterns, annotationName)
		}
		if strings.HasPrefix(dir, "scheduler") || strings.HasPrefix(dir, "nodeagent") {
			patterns = append(patterns, metricName)
		}
		for _, pattern := range patterns {
			for _, m := range pattern.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(text, `Subsystem: "`+m[1]+`"`) {
					names = append(names, m[1])
					continue
				}
				for _, rest := range metricRest.FindAllStringSubmatch(text, -1) {
					names = append(names, m[1]+"_"+rest[1])
				}
			}
		}
		constants := map[string]string{}
		for _, m := range reasonConst.FindAllStringSubmatch(text, -1) {
			constants[m[1]] = m[2]
			if strings.HasPrefix(m[1], "ReasonInvalid") || m[1] == "ReasonCountsDisagree" {
				names = append(names, m[2])
			}
		}
		for _, m := range eventReason.FindAllStringSubmatch(text, -1) {
			if literal := strings.Trim(m[1], `"`); literal != m[1] {
				names = append(names, literal)
			} else if constants[m[1]] != "" {
				names = append(names, constants[m[1]])
			}
		}
		found[dir] = names
	}
	return found
}

// Every metric, annotation, environment variable and reason of an event is in the documentation.
func TestWhatProgramsShowIsDocumented(t *testing.T) {
	r := read(t)
	code := map[string]string{}
	var docs strings.Builder
	for _, path := range r.files {
		markdown := strings.HasPrefix(path, "docs/") && filepath.Ext(path) == ".md" || path == "README.md" || path == "CONTRIBUTING.md"
		source := filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go")
		if !markdown && !source {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		if markdown {
			docs.Write(text)
		} else {
			code[filepath.ToSlash(filepath.Dir(path))] += string(text)
		}
	}
	pages, count := docs.String(), 0
	for dir, names := range spoken(code) {
		for _, name := range names {
			count++
			known := strings.HasPrefix(name, "GPUPLAN_TEST_") || regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).MatchString(pages)
			assert.True(t, known, "%s of %s is not documented", name, dir)
		}
	}
	assert.Greater(t, count, 40)
}

// What is shown is found, whether it stands as it is or as a constant.
func TestSpokenIsFound(t *testing.T) {
	assert.Equal(t, map[string][]string{
		"scheduler/a":       {"gpuplan_lost", "GangLost", "Found"},
		"internal/contract": {"gpuplan.dev/lost", "local.gpuplan.dev/lost"},
		"nodeagent":         {"GPUPLAN_LOST"},
	}, spoken(map[string]string{
		"scheduler/a":       "const eventFound = \"Found\"\nName: \"gpuplan_lost\"\nr.Eventf(p, nil, corev1.EventTypeNormal, \"GangLost\", x)\nr.Event(p, corev1.EventTypeWarning, eventFound, x)\nr.Event(p, corev1.EventTypeWarning, reason, x)",
		"internal/contract": "A = \"gpuplan.dev/lost\"\n\tB = \"local.gpuplan.dev/lost\"",
		"nodeagent":         "os.Getenv(\"GPUPLAN_LOST\")",
	}))
}

// usual are flags that say what they do.
var usual = map[string]bool{"version": true, "v": true}

// Every flag of the programs that people start is in a page.
func TestFlagsAreDocumented(t *testing.T) {
	r := read(t)
	var all strings.Builder
	for _, p := range pages(t, r) {
		if p.path != "CHANGELOG.md" {
			all.WriteString(p.text)
		}
	}
	text, count := all.String(), 0
	for _, dir := range []string{"internal/local/", "nodeagent/", "scheduler/", "scheduler/fleet/", "scheduler/queue/", "scheduler/explain/kubectl-gpuplan/"} {
		for flag := range r.flags[dir] {
			if usual[flag] || strings.Contains(flag, ".") { // a dot is in those of tests
				continue
			}
			count++
			assert.True(t, regexp.MustCompile(`--`+flag+`\b`).MatchString(text), "--%s of %s is not documented", flag, dir)
		}
	}
	assert.Greater(t, count, 40)
}

var hostPath = regexp.MustCompile(`hostPath: \{path: ([\w./-]+)`)

// Every folder of the host that pods of the chart mount is in the page on rights.
func TestFoldersOfTheHostAreDocumented(t *testing.T) {
	page, err := os.ReadFile("install.md")
	require.NoError(t, err)
	chart, err := os.ReadFile(filepath.Join(root, "deploy/charts/gpuplan/templates/node-agent.yaml"))
	require.NoError(t, err)
	folders := hostPath.FindAllStringSubmatch(string(chart), -1)
	assert.Greater(t, len(folders), 9)
	for _, folder := range folders {
		assert.True(t, strings.Contains(string(page), "`"+folder[1]+"`"), "%s is not documented", folder[1])
	}
}

// quotedTitle is the title of a message as pages quote it, in brackets.
var quotedTitle = regexp.MustCompile(`(?:\(|, )"([A-Z][\w' -]+ [\w' -]+)"`)

// missingTitles lists the titles of messages that a page quotes and no program says.
func missingTitles(text, code string) (missing []string) {
	for _, m := range quotedTitle.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		words, more := strings.CutPrefix(m[1], "TrainingRuntime ") // of which there are several
		if !more {
			words += `"`
		}
		if !strings.Contains(code, `"`+words) {
			missing = append(missing, m[1])
		}
	}
	return missing
}

// A plan says what pages quote.
func TestQuotedTitles(t *testing.T) {
	r := read(t)
	code, count := r.code.String(), 0
	for _, p := range pages(t, r) {
		if p.path != "CHANGELOG.md" { // which is also about earlier versions
			count += len(quotedTitle.FindAllString(fence.ReplaceAllString(p.text, ""), -1))
			assert.Empty(t, missingTitles(p.text, code), p.path)
		}
	}
	assert.Greater(t, count, 40)
	assert.Equal(t, []string{"Job may lose", "Gang is lost"}, missingTitles(`a ("Gang does not fit", "Job may lose") and ("Gang is lost")`, `Summary: "Gang does not fit"`))
}
