package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository is what documentation can name.
type repository struct {
	files []string
	// paths are files and, with a slash at the end, folders; bases are names of files.
	paths, bases map[string]bool
	// code is all that is no documentation and no test.
	code strings.Builder
	// identifiers are "package.Name" and "Type.Member".
	identifiers map[string]bool
	// flags, commands and tests are by the folder that defines them. A command is a choice
	// of a switch, a text that is compared with, or what cobra is told.
	flags, commands, tests map[string]map[string]bool
	// targets are make's, by folder.
	targets map[string]map[string]bool
}

var target = regexp.MustCompile(`(?m)^([\w./-]+(?: [\w./-]+)*):`)

func read(t *testing.T) *repository {
	t.Helper()
	r := &repository{
		paths: map[string]bool{}, bases: map[string]bool{}, identifiers: map[string]bool{},
		flags: map[string]map[string]bool{}, tests: map[string]map[string]bool{}, commands: map[string]map[string]bool{},
		targets: map[string]map[string]bool{},
	}
	left := []string{".git", "bin", "dist", ".gpuplan", "shared"}
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(left, name) {
				return filepath.SkipDir
			}
			r.paths[name+"/"] = true
			return nil
		}
		r.files = append(r.files, name)
		r.paths[name], r.bases[path.Base(name)] = true, true
		return r.readFile(name)
	}))
	return r
}

func (r *repository) readFile(name string) error {
	base, ext := path.Base(name), path.Ext(name)
	if base == "GNUmakefile" || base == "Makefile" {
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, m := range target.FindAllStringSubmatch(string(text), -1) {
			for word := range strings.FieldsSeq(m[1]) {
				put(r.targets, strings.TrimSuffix(strings.TrimSuffix(name, base), "/"), word)
			}
		}
		if err != nil {
			return err
		}
	}
	switch {
	case ext == ".go":
		return r.readGo(name)
	case ext == ".md" || ext == ".tmpl" || ext == ".sum" || ext == ".gz" || strings.Contains(name, "testdata/"):
		return nil
	}
	text, err := os.ReadFile(filepath.Join(root, name))
	r.code.Write(text)
	r.code.WriteByte('\n')
	return err
}

func put(sets map[string]map[string]bool, dir, word string) {
	if sets[dir] == nil {
		sets[dir] = map[string]bool{}
	}
	sets[dir][word] = true
}

// readGo takes in the declarations, texts and flags of a Go file.
func (r *repository) readGo(name string) error {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir, test := path.Dir(name)+"/", strings.HasSuffix(name, "_test.go")
	if dir == "docs/" {
		return nil // these tests
	}
	if !test {
		r.code.Write(text)
		r.code.WriteByte('\n')
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			r.function(file.Name.Name, dir, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				r.declaration(file.Name.Name, spec)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CaseClause:
			for _, choice := range n.List {
				put(r.commands, dir, literal(choice))
			}
		case *ast.BinaryExpr:
			put(r.commands, dir, literal(n.Y))
		case *ast.CallExpr:
			if flag := flagOf(n); flag != "" {
				put(r.flags, dir, flag)
			}
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "subcommand" {
				use, _, _ := strings.Cut(literal(n.Args[0]), " ")
				put(r.commands, dir, use)
			}
		}
		return true
	})
	return nil
}

func (r *repository) function(pkg, dir string, d *ast.FuncDecl) {
	if d.Recv == nil {
		r.identifiers[pkg+"."+d.Name.Name] = true
		if strings.HasPrefix(d.Name.Name, "Test") || strings.HasPrefix(d.Name.Name, "Benchmark") {
			put(r.tests, dir, d.Name.Name)
		}
		return
	}
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if of, ok := receiver.(*ast.Ident); ok {
		r.identifiers[of.Name+"."+d.Name.Name] = true
	}
}

func (r *repository) declaration(pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			r.identifiers[pkg+"."+name.Name] = true
		}
	case *ast.TypeSpec:
		r.identifiers[pkg+"."+s.Name.Name] = true
		fields, ok := s.Type.(*ast.StructType)
		if !ok {
			return
		}
		for _, field := range fields.Fields.List {
			for _, name := range field.Names {
				r.identifiers[s.Name.Name+"."+name.Name] = true
			}
		}
	}
}

func literal(n ast.Expr) string {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}

var flagFunc = regexp.MustCompile(`^(Bool|Int|Int32|Int64|Uint|String|Strings|StringSlice|Duration|Float64|Text|Func|Var)(Var)?(P)?$`)

// flagOf is the name of the flag that a call defines, "" when it defines none. A short
// form is the next argument and is left to the name.
func flagOf(call *ast.CallExpr) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !flagFunc.MatchString(f.Sel.Name) {
		return ""
	}
	for _, arg := range call.Args[:min(2, len(call.Args))] {
		if text := literal(arg); text != "" && !strings.Contains(text, " ") {
			return text
		}
	}
	return ""
}

// flag tells whether a flag, "--name" or "--name=value", is defined below a folder.
func (r *repository) flag(word, below string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for dir, flags := range r.flags {
		if strings.HasPrefix(dir, below) && flags[name] {
			return true
		}
	}
	return false
}

func (r *repository) programFlag(program, word string) bool {
	for _, dir := range programs[program] {
		if r.flag(word, dir) {
			return true
		}
	}
	return false
}

func (r *repository) programCommand(program, word string) bool {
	for _, dir := range programs[program] {
		if r.commands[dir][word] {
			return true
		}
	}
	return false
}

// test tells whether there is a test or benchmark below a folder; where a folder is given,
// the name may be the beginning, as for `go test`. A part behind a slash is a file of its data.
func (r *repository) test(name, below string) bool {
	name, part, nested := strings.Cut(name, "/")
	for dir, tests := range r.tests {
		if !strings.HasPrefix(dir, below) {
			continue
		}
		named := tests[name]
		for test := range tests {
			named = named || below != "" && (strings.HasPrefix(test, name) || strings.HasPrefix(test, "Benchmark"+name))
		}
		if !named {
			continue
		}
		if !nested || slices.ContainsFunc(r.files, func(file string) bool {
			return strings.HasPrefix(file, dir+"testdata/") && path.Base(file) == part+".json"
		}) {
			return true
		}
	}
	return false
}

// mentions tells whether the code has a name. Those of resources and metrics are put
// together from a prefix and a rest, and so are a namespace and a name, or the fields of a path.
func (r *repository) mentions(name string) bool {
	if r.has(name) {
		return true
	}
	for _, prefix := range []string{"gpuplan_queue_", "gpuplan_", "gpuplan"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && r.has(`"`+rest+`"`) {
			return true
		}
	}
	parts := strings.Split(name, "/")
	if strings.HasPrefix(name, "spec.") {
		parts = strings.Split(name, ".")
	}
	return len(parts) > 1 && !slices.ContainsFunc(parts, func(part string) bool { return part != "" && !r.has(part) })
}

// has tells whether the code has a text that is not a part of a longer word.
func (r *repository) has(text string) bool {
	code := r.code.String()
	part := func(c byte) bool {
		return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	for at := 0; ; {
		i := strings.Index(code[at:], text)
		if i < 0 {
			return false
		}
		begin, end := at+i, at+i+len(text)
		if (begin == 0 || !part(code[begin-1])) && (end == len(code) || !part(code[end])) {
			return true
		}
		at = begin + 1
	}
}
