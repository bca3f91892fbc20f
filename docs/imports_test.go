package docs_test

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/gpuplan/terraform-provider-gpuplan/"

var (
	// packageRow is a row of the table of packages: packages, what they are, what they may import.
	packageRow  = regexp.MustCompile("(?m)^\\| (`(?:internal|scheduler|nodeagent|deploy|bench)[^|]*) \\| [^|0-9][^|]* \\| ?([^|]*)\\|$")
	inBackticks = regexp.MustCompile("`([^`]+)`")
)

// A package imports of this repository what the table in docs/design.md allows it, and the
// table allows nothing that no package needs.
func TestImports(t *testing.T) {
	design, err := os.ReadFile("design.md")
	require.NoError(t, err)
	table := readImportTable(string(design))
	require.Greater(t, len(table), 25)
	used := map[string]bool{}
	for _, file := range read(t).files {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") {
			continue
		}
		importer := table.row(path.Dir(file))
		if importer == nil {
			continue
		}
		for _, imported := range importsOf(t, file) {
			if importer == table.row(imported) {
				continue
			}
			by := table.allows(importer, imported)
			assert.NotEmpty(t, by, "%s imports %s, which docs/design.md does not allow %v", file, imported, importer.packages)
			used[importer.packages[0]+" "+by] = true
		}
	}
	for _, row := range table {
		for _, name := range row.allowed {
			assert.True(t, used[row.packages[0]+" "+name], "docs/design.md allows %v to import %s, which they do not", row.packages, name)
		}
	}
}

// What the table does not allow is found.
func TestImportTable(t *testing.T) {
	table := readImportTable("| `internal/a`, `internal/b` | words, `code` | `c`, `scheduler/d` |\n| `internal/a/e` | program | |\n| `internal/c/i` | words | `c/` |\n")
	require.Len(t, table, 3)
	both, program := &table[0], &table[1]
	assert.Same(t, both, table.row("internal/a/f/g"))
	assert.Same(t, both, table.row("internal/b"))
	assert.Same(t, program, table.row("internal/a/e"))
	assert.Nil(t, table.row("internal/ab"))
	assert.Equal(t, "internal/c", table.allows(both, "internal/c/h"))
	assert.Equal(t, "scheduler/d", table.allows(both, "scheduler/d"))
	assert.Empty(t, table.allows(both, "internal/cd"))
	assert.Empty(t, table.allows(both, "internal/c/i"), "it has a row of its own")
	assert.Empty(t, table.allows(program, "internal/c"))
	assert.Equal(t, "internal/c/", table.allows(&table[2], "internal/c/h"))
	assert.Empty(t, table.allows(&table[2], "internal/cd"))
}

// importTable says what packages may import.
type importTable []importRow

type importRow struct{ packages, allowed []string }

func readImportTable(page string) (table importTable) {
	for _, m := range packageRow.FindAllStringSubmatch(page, -1) {
		row := importRow{packages: quoted(m[1]), allowed: quoted(m[2])}
		for i, name := range row.allowed {
			if !strings.HasPrefix(name, "scheduler/") && !strings.HasPrefix(name, "nodeagent/") && !strings.HasPrefix(name, "deploy/") {
				row.allowed[i] = "internal/" + name
			}
		}
		table = append(table, row)
	}
	return table
}

// quoted lists what stands in backticks.
func quoted(text string) (words []string) {
	for _, m := range inBackticks.FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// row is the row that holds for a package, nil for none.
func (table importTable) row(dir string) *importRow {
	for ; dir != "."; dir = path.Dir(dir) {
		for i := range table {
			if slices.Contains(table[i].packages, dir) {
				return &table[i]
			}
		}
	}
	return nil
}

// allows returns the entry by which a row's packages may import another, "" for none. An entry
// holds for the packages below it as well, but without a slash at its end for none that has a row of its own.
func (table importTable) allows(row *importRow, imported string) string {
	of := table.row(imported)
	for _, name := range row.allowed {
		folder, whole := strings.CutSuffix(name, "/")
		if imported == folder || strings.HasPrefix(imported, folder+"/") && (whole || table.row(folder) == of) {
			return name
		}
	}
	return ""
}

// importsOf lists the packages of this repository that a file imports.
func importsOf(t *testing.T, file string) (list []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if inner, ours := strings.CutPrefix(name, module); ours {
			list = append(list, inner)
		}
	}
	return list
}
