package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// literals are the texts with a slash, as names of labels, annotations and resources are, that a
// file has as values, by the constant that each is the value of, "" for none.
func literals(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field: // a tag of a field is none
			return false
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if text, ok := textOf(value); ok {
					found[text] = n.Names[i].Name
				}
			}
		case *ast.BasicLit:
			if text, ok := textOf(n); ok && found[text] == "" {
				found[text] = ""
			}
		}
		return true
	})
	return found
}

// textOf is a text with a slash that an expression is.
func textOf(e ast.Expr) (text string, ok bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil && strings.Contains(text, "/")
}

// What package contract names is written there and nowhere else, but for resource names in the
// packages that may not import it, and in the programs of another module, which cannot.
func TestNamesAreThoseOfContract(t *testing.T) {
	const folder = "internal/contract"
	names, files := map[string]string{}, []string{}
	for _, file := range read(t).files {
		switch {
		case path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") || strings.HasPrefix(file, "internal/local/joboperator/") || strings.HasPrefix(file, "internal/local/karmada/"):
		case path.Dir(file) == folder:
			for text, constant := range literals(t, file) {
				if constant != "" {
					names[text] = constant
				}
			}
		default:
			files = append(files, file)
		}
	}
	require.Greater(t, len(names), 50)
	without := []string{"internal/catalog", "internal/placement", "internal/placement/placementtest"}
	for _, file := range files {
		for text := range literals(t, file) {
			constant := names[text]
			allowed := strings.HasPrefix(constant, "Resource") && slices.Contains(without, path.Dir(file))
			assert.True(t, constant == "" || allowed, "%s has %q, which is contract.%s", file, text, constant)
		}
	}
}
