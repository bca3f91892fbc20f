package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every step of the vendor's documents has what stands for it here, and what shows it: a test or a
// command, which [TestDocumentationNamesWhatExists] looks for, or the reason why there is none.
func TestEveryStepOfTheDocumentsIsShown(t *testing.T) {
	text, err := os.ReadFile("documents.md")
	require.NoError(t, err)
	document, steps := "", map[string]int{}
	for _, line := range strings.Split(string(text), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			document = title
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| the document ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !assert.Len(t, cells, 3, line) {
			continue
		}
		steps[document]++
		here, shown := cells[1], cells[2]
		switch shown {
		case "a real node":
			assert.True(t, strings.Contains(here, "a real node") || strings.Contains(here, "*planned*"), line)
		case "a fleet":
			assert.True(t, strings.Contains(here, "a fleet") || strings.Contains(here, "*planned*"), line)
		default:
			assert.Regexp(t, "^`(Test[A-Za-z]+|make [a-z-]+)`(, `(Test[A-Za-z]+|make [a-z-]+)`)*$", shown, line)
		}
	}
	require.Len(t, steps, 5, "the documents")
	for document, n := range steps {
		assert.GreaterOrEqual(t, n, 13, document)
	}
}
