package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// retiredWord is a word that the glossary of the design has replaced.
type retiredWord struct {
	// word is a regular expression for single words, without case; names are told word by word.
	word string
	now  string
	// within is where the word is retired, a regular expression of paths; "" for everywhere.
	within string
	// except is where the word means something else in prose: expressions that have it in them.
	except string
	// plain means that the word stays in prose altogether, where it is an ordinary verb.
	plain bool
}

const (
	// gangCode decides about gangs.
	gangCode = `^(internal/(placement|inventory|clusterstate|clusterlist)|scheduler/(clustercache|plugins|metrics))/`
	// gangs is that, its dashboard and the pages about it.
	gangs = gangCode + `|^scheduler/(main\.go|deploy/)|^(docs|docs/decisions|docs/guides|templates/guides)/[^/]+\.md$|^README\.md$`
	// planning is the planner, the scheduler, and the project's own pages.
	planning = gangCode + `|^scheduler/|^docs/[^/]+\.md$`
)

var retired = []retiredWord{
	{word: `cards?`, now: "GPU"},
	{word: `claimants?`, now: "preemptor"},
	{word: `seat(s|ed|ing)?`, now: "assumed pod"},
	{word: `hopeless`, now: "infeasible"},
	{word: `hopes?`, now: "feasible, infeasible", within: gangCode},
	{word: `rehears(e|es|ed|al|als)`, now: "dry run"},
	{word: `terrain`, now: "topology"},
	{word: `dealer|dealt`, now: "GPU assigner", except: `dealt with`},
	{word: `census`, now: "member counts"},
	{word: `stranded|strands`, now: "displaced"},
	{word: `whatif`, now: "displaced", within: gangCode},
	{word: `worklist|chores?`, now: "work queue"},
	{word: `pardon(s|ed)?|forgive[ns]?|wary`, now: "back-off, rejected node"},
	{word: `somebody|anew`, now: "someone, again"},
	{word: `denials?|deny`, now: "verdict cache", within: gangCode},
	{word: `dissolve(s|d)?`, now: "evict a partial gang"},
	{word: `scenes?`, now: "snapshot"},
	{word: `mix`, now: "workload", within: planning},
	{word: `lacks`, now: "missing", plain: true},
	{word: `adopt\w*`, now: "manage, take over", within: planning},
	{word: `rounds?`, now: "scheduling attempt", within: `^scheduler/plugins/`},
	{word: `claim(s|ed|ing)?`, now: "nomination", within: gangs, except: `(volume('s)?|resource|bound|unbound) claims?|claims? (of|for) (\w+ ){0,2}volumes?|claim = "\w+|claims\.go`},
	{word: `holds?`, now: "reservation", within: `^internal/placement/`, plain: true},
	{word: `turns?`, now: "position, order", within: gangs, except: `in turns?|turns? (\w+ ){0,3}(into|unhealthy|NotReady|.False)|turns? ((the( \w+){1,2}|\w+) )?(on|off)`},
	{word: `spares?`, now: "surplus", within: gangCode, plain: true},
	{word: `rooms`, now: "domain capacities", within: gangs + `|^scheduler/explain/`},
	{word: `ledgers?`, now: "release log", within: `^scheduler/queue/`},
	{word: `planner`, now: "reconciler", within: `^scheduler/queue/`},
	{word: `leader`, now: "first pod", within: `^scheduler/plugins/gang/`, except: `leader election`},
	{word: `(tell|say|look|settle)`, now: "record, check, reconcile", within: `^scheduler/(plugins/gang|queue)/`, plain: true},
}

// phrases are retired in messages, comments and pages.
var phrases = []retiredWord{
	{word: `held places?|places? held`, now: "reservation"},
	{word: `nobody goes`, now: "nobody is evicted"},
	{word: `goes in vain`, now: "is evicted in vain"},
	{word: `(takes?|taking) places from`, now: "preempt"},
	{word: `lets?(( (an?|the|this|each|every|no|one|another|other|more)( \w+)?)? (jobs?|gangs?|units?|pods?|ones?)| it| them)? (in|out)`, now: "activate, admit, release", except: `in (an?|any|each|every|the|its|their|place)`},
	{word: `tells that`, now: "means that, reports whether"},
}

// allowed are words that stay, by what begins the path; "" stands for the whole file.
var allowed = []struct{ path, word, why string }{
	{"docs/glossary_test.go", "", "it lists the words"},
	{"docs/names_test.go", "", "it is about words"},
	{"internal/provider/trainingjob/upgrade", "card", "states of earlier versions have that key"},
	{"internal/openb/testdata/", "", "published traces"},
	{"docs/resources/", "", "generated from the schemas"},
	{"docs/data-sources/", "", "generated from the schemas"},
	{"docs/index.md", "", "generated"},
	{"internal/inventory/volume", "claim", "Kubernetes calls the requests for volumes so"},
	{"internal/clusterstate/volume", "claim", "Kubernetes calls the requests for volumes so"},
	{"scheduler/clustercache/volume", "claim", "Kubernetes calls the requests for volumes so"},
	{"internal/inventory/resourceclaim", "claim", "Kubernetes calls the requests for devices so"},
	{"scheduler/clustercache/resourceclaim", "claim", "Kubernetes calls the requests for devices so"},
	{"internal/clusterlist/", "claim", "Kubernetes calls the requests for volumes so"},
	{"internal/inventory/surroundings", "claim", "Kubernetes calls the requests for volumes so"},
	{"internal/acsfake/", "", "what the cloud answers"},
}

func allows(path, word string) bool {
	for _, a := range allowed {
		if strings.HasPrefix(path, a.path) && (a.word == "" || strings.HasPrefix(strings.ToLower(word), a.word)) {
			return true
		}
	}
	return false
}

// glossary finds retired words.
type glossary struct{ words, phrases []rule }

// rule finds one retired word.
type rule struct {
	retiredWord
	whole, inText, except, paths *regexp.Regexp
}

func newGlossary() *glossary {
	// In comments and pages a line may end between two words.
	text := func(words string) *regexp.Regexp {
		return regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(words, " ", `\s+`) + `)\b`)
	}
	rules := func(all []retiredWord) (list []rule) {
		for _, r := range all {
			made := rule{retiredWord: r, whole: regexp.MustCompile(`(?i)^(` + r.word + `)$`), inText: text(r.word), paths: regexp.MustCompile(r.within)}
			if r.except != "" {
				made.except = text(r.except)
			}
			list = append(list, made)
		}
		return list
	}
	return &glossary{words: rules(retired), phrases: rules(phrases)}
}

// name checks an identifier or the name of a file, word by word.
func (g *glossary) name(path, name string) (faults []string) {
	for word := range strings.FieldsFuncSeq(camel.ReplaceAllString(name, "${1} ${2}"), func(r rune) bool { return strings.ContainsRune(" _-./", r) }) {
		for _, r := range g.words {
			if r.whole.MatchString(word) && r.paths.MatchString(path) && !allows(path, word) {
				faults = append(faults, path+": "+name+": say "+r.now+" for "+word)
			}
		}
	}
	return faults
}

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// text checks prose.
func (g *glossary) text(path, text string) (faults []string) {
	for _, r := range slices.Concat(g.words, g.phrases) {
		if r.plain || !r.paths.MatchString(path) {
			continue
		}
		rest := text
		if r.except != nil {
			rest = r.except.ReplaceAllString(text, "…")
		}
		for _, at := range r.inText.FindAllStringIndex(rest, -1) {
			if word := rest[at[0]:at[1]]; !allows(path, word) {
				around := rest[max(0, at[0]-30):min(len(rest), at[1]+30)]
				faults = append(faults, path+": say "+r.now+" for "+strconv.Quote(word)+" in "+strconv.Quote(around))
			}
		}
	}
	return faults
}

// file checks one file: its name, and in Go what it declares, says and comments.
func (g *glossary) file(t *testing.T, path string, src []byte) []string {
	t.Helper()
	faults := g.name(path, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	if filepath.Ext(path) != ".go" {
		return append(faults, g.text(path, string(src))...)
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	names := map[string]bool{}
	foreign := map[*ast.Ident]bool{} // what is selected may be another project's
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.SelectorExpr:
			foreign[x.Sel] = true
		case *ast.KeyValueExpr:
			if id, ok := x.Key.(*ast.Ident); ok {
				foreign[id] = true
			}
		case *ast.BasicLit:
			if x.Kind == token.STRING {
				faults = append(faults, g.text(path, x.Value)...)
			}
		case *ast.Ident:
			if !foreign[x] && !names[x.Name] {
				names[x.Name] = true
				faults = append(faults, g.name(path, x.Name)...)
			}
		}
		return true
	})
	for _, comment := range parsed.Comments {
		faults = append(faults, g.text(path, comment.Text())...)
	}
	return faults
}

func TestGlossary(t *testing.T) {
	g := newGlossary()
	checked := 0
	for _, path := range read(t).files {
		if ext := filepath.Ext(path); !slices.Contains([]string{".go", ".md", ".tmpl", ".tf", ".yaml"}, ext) && !strings.HasPrefix(path, "scheduler/deploy/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		checked++
		for _, fault := range g.file(t, path, src) {
			assert.Fail(t, fault)
		}
	}
	require.Greater(t, checked, 500)
}

// Each kind of violation is found, and what has another meaning is not.
func TestGlossaryFindsViolations(t *testing.T) {
	g := newGlossary()
	for name, test := range map[string]struct {
		path, src string
		faults    int
	}{
		"identifier":            {"internal/job/x.go", "package job\nfunc freeCards() {}", 1},
		"local variable":        {"internal/job/x.go", "package job\nfunc f() { card := 1; _ = card }", 1},
		"field":                 {"internal/job/x.go", "package job\ntype T struct{ Hopeless bool }", 1},
		"message":               {"internal/job/x.go", "package job\nvar m = \"no free card\"", 1},
		"key":                   {"internal/job/x.go", "package job\ntype T struct{ GPUs int `json:\"cards\"` }", 1},
		"comment":               {"internal/job/x.go", "package job\n// nobody goes in vain\n", 2},
		"name of a file":        {"internal/placement/dealer.go", "package placement", 1},
		"page":                  {"docs/planner.md", "A card.", 1},
		"configuration":         {"examples/x.tf", "cards = 4", 1},
		"where it is retired":   {"internal/placement/x.go", "package placement\nfunc claim() {}", 1},
		"prose":                 {"docs/design.md", "Before a place is claimed, a place is held; it has a place held. Claims follow.", 3},
		"part of a message":     {"scheduler/plugins/gang/x.go", "package gang\nvar cause = \"Claim\"", 1},
		"derived word":          {"internal/clusterstate/x.go", "package clusterstate\nfunc adoptable() {} // an adopted pod", 2},
		"comment of a gang":     {"scheduler/plugins/gang/x.go", "package gang\n// its turn comes\nvar x int", 1},
		"snapshot":              {"scheduler/explain/doc.go", "// Package explain answers from a scene: rooms.\npackage explain", 2},
		"phrase over two lines": {"scheduler/plugins/gang/x.go", "package gang\n// f lets the one\n// in that comes after it.\nfunc f() {}", 1},
		"phrase with an object": {"docs/queue.md", "## What lets a job out", 1},
		"dashboard":             {"scheduler/deploy/monitoring/dashboard.json", `{"legendFormat": "claims given up"}`, 1},
		"other senses":          {"docs/design.md", "Volume claims in turn; it turns real pods into gangs, and lets the job wait in the queue.", 0},
		"jobs let out":          {"docs/queue.md", "It lets jobs out. The queue lets the next one in, which is let in again.", 3},
		"what is let in":        {"docs/planner.md", "Once one more gang is let in, the planner lets it out.", 2},
		"plain let":             {"docs/design.md", "It lets you write durations in any unit, lets users see which jobs run in a pool, lets a job in the queue wait, and lets Terraform replace it in place.", 0},
		"plain turn":            {"docs/guides/x.md", "To turn the policy off or on, turn it off. Nodes turn NotReady; turn on the agent.", 0},
		"plain claim":           {"docs/guides/x.md", "The claim of a volume, claims for the volumes, a volume's claim: `claim = \"data\"`.", 0},
		"plain mix and adopt":   {"internal/provider/x.go", "package provider\nvar x = \"adopt the pool: types mix\"", 0},
		"guide to a pool":       {"templates/guides/x.md", "A pool may mix instance types. Adopt what exists.", 0},
		"mix of the scheduler":  {"scheduler/workload/mix.go", "package workload", 1},
		"volume claim":          {"internal/job/x.go", "package job\nfunc claim() {}", 0},
		"other word":            {"internal/job/x.go", "package job\nfunc wildcard() {}", 0},
		"another project's":     {"internal/job/x.go", "package job\nvar x = other.Card", 0},
		"state of old versions": {"internal/provider/trainingjob/upgrade.go", "package trainingjob\nvar k = \"cards\"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Len(t, g.file(t, test.path, []byte(test.src)), test.faults)
		})
	}
}
