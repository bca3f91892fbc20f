package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateDocuments = flag.Bool("update-documents", false, "write the tables of documents.md")

const (
	documentsBegin = "<!-- the tables: made by go test ./docs -args -update-documents -->\n"
	documentsEnd   = "<!-- end of the tables -->\n"
)

// document is one of ACK's documents.
type document struct {
	title string
	steps []step
}

// step is what a document says, what stands for it here, and what shows that: tests, each with its folder before it, and
// commands; or what has to show it in their place.
type step struct {
	says, here string
	shown      []string
}

// elsewhere is what shows a step that no test can show, with the words by which its row says so.
var elsewhere = map[string]*regexp.Regexp{
	"a real node": regexp.MustCompile(`a real node|\*planned\*`),
	"a fleet":     regexp.MustCompile(`a fleet|\*planned\*`),
}

// cell is what the table has for what shows a step, a link to its folder for a test.
func (r *repository) cell(t *testing.T, s step, shown string) string {
	t.Helper()
	if words := elsewhere[shown]; words != nil {
		assert.Len(t, s.shown, 1, s.says)
		assert.Regexp(t, words, s.here, s.says)
		return shown
	}
	if strings.HasPrefix(shown, "make ") {
		return "`" + shown + "`" // TestDocumentationNamesWhatExists looks for it
	}
	folder, test, _ := strings.Cut(shown, " ")
	assert.True(t, r.tests[folder+"/"][test], "%s: there is no test %s in %s", s.says, test, folder)
	if folder == "." {
		return "`" + test + "`"
	}
	return fmt.Sprintf("[`%s`](%s)", test, filepath.ToSlash(filepath.Join(root, folder)))
}

var (
	// attributeOf is an attribute that a row says is one of a resource.
	attributeOf = regexp.MustCompile("`([a-z_]+)` of (?:`[a-z_]+` and of )?`(gpuplan_[a-z_]+)`")
	// attribute is a line of a generated page.
	attribute = regexp.MustCompile("(?m)^- `([a-z_]+)` \\(")
)

// Every step of the vendor's documents has what stands for it here, and what shows it: a test or a command that there is,
// or the reason why there is none. Attributes that a row gives to a resource are its own.
func TestEveryStepOfTheDocumentsIsShown(t *testing.T) {
	r := read(t)
	attributes := map[string]map[string]bool{}
	for _, folder := range []string{"resources", "data-sources", "ephemeral-resources"} {
		pages, err := filepath.Glob(folder + "/*.md")
		require.NoError(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			for _, m := range attribute.FindAllStringSubmatch(string(text), -1) {
				put(attributes, "gpuplan_"+strings.TrimSuffix(filepath.Base(page), ".md"), m[1])
			}
		}
	}
	require.Len(t, documents, 5)
	var tables strings.Builder
	for _, d := range documents {
		assert.GreaterOrEqual(t, len(d.steps), 13, d.title)
		fmt.Fprintf(&tables, "\n## %s\n\n| the document | here | shown by |\n|---|---|---|\n", d.title)
		for _, s := range d.steps {
			assert.NotEmpty(t, s.shown, s.says)
			var cells []string
			for _, shown := range s.shown {
				cells = append(cells, r.cell(t, s, shown))
			}
			for _, m := range attributeOf.FindAllStringSubmatch(s.here, -1) {
				assert.True(t, attributes[m[2]][m[1]], "%s: %s has no attribute %s", s.says, m[2], m[1])
			}
			fmt.Fprintf(&tables, "| %s | %s | %s |\n", s.says, s.here, strings.Join(cells, ", "))
		}
	}
	tables.WriteString("\n")
	text, err := os.ReadFile("documents.md")
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), documentsBegin)
	have, after, closed := strings.Cut(rest, documentsEnd)
	require.True(t, found && closed, "documents.md has no place for the tables")
	if *updateDocuments {
		require.NoError(t, os.WriteFile("documents.md", []byte(before+documentsBegin+tables.String()+documentsEnd+after), 0o600))
		return
	}
	assert.Equal(t, tables.String(), have, "run go test ./docs -run TestEveryStepOfTheDocumentsIsShown -args -update-documents")
}
