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

// change is the beginning of a line of the changelog, a version or a kind of changes.
var change = regexp.MustCompile(`(?m)^(?:- |#|[A-Z ]+:$|\n)`)

// Each line of the changelog is whole, and there once: merges have cut some off, and doubled others.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	begins := change.FindAllStringIndex(string(text), -1)
	seen := map[string]bool{}
	for i, begin := range begins {
		end := len(text)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		entry := strings.TrimSpace(string(text[begin[0]:end]))
		if !strings.HasPrefix(entry, "- ") {
			continue
		}
		assert.False(t, seen[entry], "twice: %s", entry)
		assert.Regexp(t, `[.)]$`, entry, "cut off")
		seen[entry] = true
	}
	assert.Greater(t, len(seen), 100)
}
