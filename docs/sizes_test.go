package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// listedLines is the size from which docs/design.md lists a package, mostLines the one above
	// which it says why the package is no smaller.
	listedLines, mostLines = 1000, 2500
	// sizeSlack is by how much a package may grow or shrink until its size is written again.
	sizeSlack = 150
)

// sizeRow is a row of the table of sizes: package, lines, why it is no smaller.
var sizeRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9,]+) \\| ?([^|]*?) ?\\|$")

// The table of sizes has every big package with its lines, and a reason for the biggest.
func TestSizes(t *testing.T) {
	design, err := os.ReadFile("design.md")
	require.NoError(t, err)
	written, reasons := map[string]int{}, map[string]bool{}
	for _, m := range sizeRow.FindAllStringSubmatch(string(design), -1) {
		lines, err := strconv.Atoi(strings.ReplaceAll(m[2], ",", ""))
		require.NoError(t, err)
		assert.NotContains(t, written, m[1], "docs/design.md has its size twice")
		written[m[1]] = lines
		reasons[m[1]] = m[3] != ""
	}
	sizes := map[string]int{}
	for _, file := range read(t).files {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") || strings.HasPrefix(file, "bench/") || strings.HasPrefix(file, "tools/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		sizes[path.Dir(file)] += bytes.Count(text, []byte("\n"))
	}
	for name, lines := range sizes {
		have, ok := written[name]
		if lines >= listedLines || ok {
			assert.InDelta(t, lines, have, sizeSlack, "docs/design.md: write | `%s` | %s |", name, thousands(lines/100*100))
		}
	}
	for name := range written {
		assert.Contains(t, sizes, name)
		assert.Equal(t, sizes[name] > mostLines, reasons[name], "docs/design.md says why a package has more than %d lines, and of no other: %s", mostLines, name)
	}
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
