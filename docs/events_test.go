package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chosen are the reasons of events that a call of a recorder is handed, by folder and expression.
var chosen = map[string][]string{
	"scheduler/plugins/gang/ reason":                             {"Unschedulable", "Scheduled"},
	"scheduler/plugins/gang/ problem.Reason":                     {"InvalidReplicaCount", "ReplicaCountsDisagree", "InvalidGPUCount", "InvalidPlannedPlacement", "InvalidRoleMinimum"},
	"scheduler/fleet/ reason":                                    {"ScheduleBindingSucceed", "ScheduleBindingFailed", "WithdrawnFromCluster"},
	"scheduler/repair/ reason":                                   {"NodeLost", "GPUUnhealthy"},
	"scheduler/queue/ contract.QuotaTreeKind + condition.Reason": {"ElasticQuotaTree", "InForce", "Invalid", "NotTheOldest"},
}

var eventRow = regexp.MustCompile("(?m)^\\| (`[^|]+) \\|")

// The table of events in docs/explain.md has the reasons that the programs write, and no others.
func TestEvents(t *testing.T) {
	text, err := os.ReadFile("explain.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Events\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for _, row := range eventRow.FindAllStringSubmatch(section, -1) {
		for _, name := range inBackticks.FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = true
		}
	}
	written := map[string]bool{}
	for _, file := range read(t).files {
		program := strings.HasPrefix(file, "scheduler/") || strings.HasPrefix(file, "nodeagent/")
		if !program || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, reason := range reasonsIn(t, file) {
			written[reason] = true
		}
	}
	assert.Greater(t, len(written), 20)
	assert.Equal(t, written, documented)
}

// reasonsIn lists the reasons of the events that a file writes.
func reasonsIn(t *testing.T, file string) (reasons []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
	require.NoError(t, err)
	folder := path.Dir(file) + "/"
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || function.Sel.Name != "Event" && function.Sel.Name != "Eventf" || len(call.Args) < 4 {
			return true
		}
		// The reason comes after the type, which is the second argument, or the third behind
		// the related object.
		at := 2
		if kind := types.ExprString(call.Args[1]); kind != "kind" && !strings.HasPrefix(kind, "corev1.EventType") {
			at = 3
		}
		expression := call.Args[at]
		name, isName := expression.(*ast.Ident)
		switch options := chosen[folder+" "+types.ExprString(expression)]; {
		case options != nil:
			reasons = append(reasons, options...)
		case literal(expression) != "":
			reasons = append(reasons, literal(expression))
		case isName && constant(t, folder, name.Name) != "":
			reasons = append(reasons, constant(t, folder, name.Name))
		default:
			assert.Fail(t, "unknown reason of an event", "%s: say in this test what %s can be", file, types.ExprString(expression))
		}
		return true
	})
	return reasons
}

// constant is the text of a constant of a package, "" when there is none.
func constant(t *testing.T, folder, name string) (text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name == name && len(spec.Values) == 1 {
				text = literal(spec.Values[0])
			}
			return true
		})
	}
	return text
}
