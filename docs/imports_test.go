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

// packageHead is the head of the table of packages.
const packageHead = "| package | what it is | may import |\n|---|---|---|\n"

var (
	// packageRow is a row of it: packages, what they are, what they may import.
	packageRow  = regexp.MustCompile(`(?m)^\| ([^|]*) \| [^|]* \| ?([^|]*)\|$`)
	inBackticks = regexp.MustCompile("`([^`]+)`")
)

// Every package has a row in the table of docs/design.md and imports of this repository what
// that allows it, and the table allows nothing that no package needs.
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
		importer := path.Dir(file)
		row := table.row(importer)
		if !assert.NotNil(t, row, "%s has no row in docs/design.md", importer) {
			continue
		}
		for _, imported := range importsOf(t, file) {
			by, allowed := table.allows(importer, imported)
			assert.True(t, allowed, "%s imports %s, which docs/design.md does not allow %v", file, imported, row.packages)
			used[row.packages[0]+" "+by] = true
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
	table := readImportTable("| `program` | `x` | y |\n\n" + packageHead +
		"| `internal/a`, `internal/b` | words, `code` | `c`, `scheduler/d` |\n| `internal/a/e` | program | |\n| `internal/c/i` | words | `c/` |\n| `scheduler` | 9 words | |\n| `new/f` | words | `a` |\n\n" +
		"| package | lines | why |\n|---|---|---|\n| `internal/z` | 100 | words |\n")
	require.Len(t, table, 5)
	assert.Same(t, &table[0], table.row("internal/a/f/g"))
	assert.Same(t, &table[0], table.row("internal/b"))
	assert.Same(t, &table[1], table.row("internal/a/e"))
	assert.Nil(t, table.row("internal/ab"))
	assert.Same(t, &table[4], table.row("new/f/g"))
	assert.Nil(t, table.row("."))
	assert.Nil(t, table.row("internal/z"))
	for _, test := range []struct {
		importer, imported string
		by                 string
		allowed            bool
	}{
		{"internal/a", "internal/c/h", "internal/c", true},
		{"internal/a", "scheduler/d", "scheduler/d", true},
		{"internal/a", "internal/cd", "", false},
		{"new/f", "internal/a", "internal/a", true},
		{"internal/a", "internal/c/i", "", false}, // it has a row of its own
		{"internal/a/e", "internal/c", "", false},
		{"internal/c/i", "internal/c/h", "internal/c/", true},
		{"internal/c/i", "internal/cd", "", false},
		{"internal/a", "internal/a/f", "", true},  // it is below
		{"internal/a", "internal/a/e", "", false}, // it has a row of its own
		{"internal/a/f", "internal/a", "", false}, // it is above
		{"internal/a/f", "internal/a/g", "", false},
		{"internal/b", "internal/a", "", false},
	} {
		by, allowed := table.allows(test.importer, test.imported)
		assert.Equal(t, test.allowed, allowed, "%s imports %s", test.importer, test.imported)
		assert.Equal(t, test.by, by, "%s imports %s", test.importer, test.imported)
	}
}

// importTable says what packages may import.
type importTable []importRow

type importRow struct{ packages, allowed []string }

func readImportTable(page string) (table importTable) {
	_, rows, _ := strings.Cut(page, packageHead)
	rows, _, _ = strings.Cut(rows, "\n\n")
	top := map[string]bool{} // the folders at the top, of which internal is left out in what is allowed
	for _, m := range packageRow.FindAllStringSubmatch(rows, -1) {
		row := importRow{packages: quoted(m[1]), allowed: quoted(m[2])}
		for _, name := range row.packages {
			top[topFolder(name)] = true
		}
		table = append(table, row)
	}
	for _, row := range table {
		for i, name := range row.allowed {
			if !top[topFolder(name)] {
				row.allowed[i] = "internal/" + name
			}
		}
	}
	return table
}

func topFolder(name string) string {
	folder, _, _ := strings.Cut(name, "/")
	return folder
}

// quoted lists what stands in backticks.
func quoted(text string) (words []string) {
	for _, m := range inBackticks.FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// row is the row that holds for a package: its own or that of the nearest folder above, nil for none.
func (table importTable) row(dir string) *importRow {
	for ; ; dir = path.Dir(dir) {
		for i := range table {
			if slices.Contains(table[i].packages, dir) {
				return &table[i]
			}
		}
		if !strings.Contains(dir, "/") {
			return nil
		}
	}
}

// allows reports whether a package may import another, and by which entry of its row, "" where
// the row is that of both. An entry holds for the packages below it as well, but without
// a slash at its end for none that has a row of its own.
func (table importTable) allows(importer, imported string) (by string, allowed bool) {
	row, of := table.row(importer), table.row(imported)
	if row == of {
		return "", strings.HasPrefix(imported, importer+"/")
	}
	for _, name := range row.allowed {
		folder, whole := strings.CutSuffix(name, "/")
		if imported == folder || strings.HasPrefix(imported, folder+"/") && (whole || table.row(folder) == of) {
			return name, true
		}
	}
	return "", false
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
