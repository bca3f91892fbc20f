package docs_test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
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
	// plain tells that the word stays in prose: there it has other meanings.
	plain bool
}

// gangCode decides about gangs.
const gangCode = `^(internal/(placement|inventory|clusterstate|clusterlist)|scheduler/(clustercache|plugins|metrics))/`

var retired = []retiredWord{
	{word: `cards?`, now: "GPU"},
	{word: `claimants?`, now: "preemptor"},
	{word: `seat(s|ed|ing)?`, now: "assumed pod"},
	{word: `hopeless`, now: "infeasible"},
	{word: `hopes?`, now: "feasible, infeasible", within: gangCode, plain: true},
	{word: `rehears(e|es|ed|al|als)`, now: "dry run"},
	{word: `terrain`, now: "topology"},
	{word: `dealer|dealt`, now: "GPU assigner", plain: true},
	{word: `census`, now: "member counts"},
	{word: `stranded|strands`, now: "displaced"},
	{word: `whatif`, now: "displaced", within: gangCode},
	{word: `worklist|chores?`, now: "work queue"},
	{word: `pardon(s|ed)?|forgive[ns]?|wary`, now: "back-off, rejected node"},
	{word: `somebody|anew`, now: "someone, again"},
	{word: `denials?|deny`, now: "verdict cache", within: gangCode},
	{word: `dissolve(s|d)?`, now: "evict a partial gang"},
	{word: `scenes?`, now: "snapshot", plain: true},
	{word: `mix`, now: "workload", plain: true},
	{word: `lacks`, now: "missing", plain: true},
	{word: `adopt(s|ed)?`, now: "manage", plain: true},
	{word: `rounds?`, now: "scheduling attempt", within: `^scheduler/plugins/`},
	{word: `claims?|claimed`, now: "nomination", within: gangCode, plain: true},
	{word: `holds?`, now: "reservation", within: `^internal/placement/`, plain: true},
	{word: `turns?`, now: "position, order", within: gangCode, plain: true},
	{word: `spares?`, now: "surplus", within: gangCode, plain: true},
	{word: `rooms`, now: "domain capacities", within: gangCode, plain: true},
	{word: `ledgers?`, now: "release log", within: `^scheduler/queue/`},
	{word: `planner`, now: "reconciler", within: `^scheduler/queue/`, plain: true},
	{word: `leader`, now: "first pod", within: `^scheduler/plugins/gang/`, plain: true},
	{word: `(tell|say|look|settle)`, now: "record, check, reconcile", within: `^scheduler/(plugins/gang|queue)/`, plain: true},
}

// phrases are retired in messages, comments and pages.
var phrases = []retiredWord{
	{word: `held places?`, now: "reservation"},
	{word: `nobody goes`, now: "nobody is evicted"},
	{word: `goes in vain`, now: "is evicted in vain"},
	{word: `(takes?|taking) places from`, now: "preempt"},
	{word: `lets? out`, now: "release"},
	{word: `lets? in`, now: "activate, admit"},
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
type glossary struct{ whole, inText, inPhrases []*regexp.Regexp }

func newGlossary() *glossary {
	g := &glossary{}
	for _, r := range retired {
		g.whole = append(g.whole, regexp.MustCompile(`(?i)^(`+r.word+`)$`))
		g.inText = append(g.inText, regexp.MustCompile(`(?i)\b(`+r.word+`)\b`))
	}
	for _, r := range phrases {
		g.inPhrases = append(g.inPhrases, regexp.MustCompile(`(?i)\b`+strings.ReplaceAll(r.word, " ", `(\s|//)+`)+`\b`))
	}
	return g
}

// name checks an identifier or the name of a file, word by word.
func (g *glossary) name(path, name string) (faults []string) {
	for word := range strings.FieldsFuncSeq(camel.ReplaceAllString(name, "${1} ${2}"), func(r rune) bool { return strings.ContainsRune(" _-./", r) }) {
		for i, re := range g.whole {
			if re.MatchString(word) && within(retired[i], path) && !allows(path, word) {
				faults = append(faults, path+": "+name+": say "+retired[i].now+" for "+word)
			}
		}
	}
	return faults
}

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// text checks prose.
func (g *glossary) text(path, text string) (faults []string) {
	check := func(re *regexp.Regexp, r retiredWord) {
		if r.plain || !within(r, path) {
			return
		}
		for _, word := range slices.Compact(re.FindAllString(text, -1)) {
			if !allows(path, word) {
				faults = append(faults, path+": say "+r.now+" for "+strconv.Quote(word)+" in "+strconv.Quote(around(text, word)))
			}
		}
	}
	for i, re := range g.inText {
		check(re, retired[i])
	}
	for i, re := range g.inPhrases {
		check(re, phrases[i])
	}
	return faults
}

func around(text, word string) string {
	at := strings.Index(text, word)
	return text[max(0, at-30):min(len(text), at+len(word)+30)]
}

func within(r retiredWord, path string) bool {
	return r.within == "" || regexp.MustCompile(r.within).MatchString(path)
}

// file checks one file: its name, and in Go what it declares, says and comments.
func (g *glossary) file(t *testing.T, path string, src []byte) []string {
	t.Helper()
	faults := g.name(path, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	if filepath.Ext(path) != ".go" {
		return append(faults, g.text(path, string(src))...)
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
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
		case *ast.Ident:
			if !foreign[x] && !names[x.Name] {
				names[x.Name] = true
				faults = append(faults, g.name(path, x.Name)...)
			}
		}
		return true
	})
	var s scanner.Scanner
	s.Init(fset.AddFile(path, -1, len(src)), src, nil, scanner.ScanComments)
	for {
		_, tok, lit := s.Scan()
		if tok == token.EOF {
			return faults
		}
		if tok == token.COMMENT || tok == token.STRING {
			faults = append(faults, g.text(path, lit)...)
		}
	}
}

func TestGlossary(t *testing.T) {
	g := newGlossary()
	checked := 0
	for _, path := range read(t).files {
		if ext := filepath.Ext(path); !slices.Contains([]string{".go", ".md", ".tmpl", ".tf", ".yaml"}, ext) {
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
