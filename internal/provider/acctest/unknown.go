package acctest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/stretchr/testify/require"
)

// Object is an object or a map in a configuration, List a list or a set: of these, and of expressions as strings.
type (
	Object map[string]any
	List   []any
)

// Unknown is a type of resource of which one part after the other is unknown until apply.
type Unknown struct {
	Type     string
	Resource resource.Resource
	// Base are the attributes of a resource, which has that name in the configuration.
	Base func(name string) Object
	// Values are two values of every attribute that can be written, by its path: names of attributes, keys of maps and
	// numbers in lists with dots between them. With are the attributes that what is at a path needs beside it.
	Values map[string][2]any
	With   map[string]Object
	// Needed are the paths of what a resource must have, though the schema lets it be left out.
	Needed []string
	// One means that there is one resource of the type at a time, whose parts are unknown by turns.
	One bool
	// Rest is the configuration beside the resources of these names, nil for nothing.
	Rest func(names []string) string
}

// only is the name of a resource of which there is one.
const only = "this"

// part is a part of a resource that is unknown in one instance of it.
type part struct {
	name   string
	path   []string
	values [2]any
	// base are the attributes beside it. optional means that it can be left out.
	base     Object
	optional bool
}

// Test requires that Terraform accepts what comes of unknown values of each part: a value in a resource that is new, none
// in the one that has it by then, or the same where it must have one, and another value in the one that lacks it.
func (u Unknown) Test(t *testing.T) {
	t.Helper()
	cli, parts := StartCLI(t), u.parts(t)
	if !u.One {
		u.apply(t, cli, parts)
		return
	}
	for _, p := range parts {
		u.apply(t, cli, []part{p})
	}
}

func (u Unknown) apply(t *testing.T, cli *CLI, parts []part) {
	t.Helper()
	for round := range 3 {
		var resources, later strings.Builder
		var names []string
		args := []string{"apply", "-auto-approve", "-parallelism=32"}
		for _, p := range parts {
			name, value := p.name, p.values[round/2]
			if u.One {
				name = only
			}
			if u.One && round == 0 {
				args = append(args, "-replace="+u.Type+"."+only)
			}
			if round == 1 && p.optional {
				value = "null"
			}
			fmt.Fprintf(&later, "    %q = %s\n", name, Written(value))
			fmt.Fprintf(&resources, "resource %q %q %s\n", u.Type, name, Written(set(p.base, p.path, fmt.Sprintf("terraform_data.later.output[%q]", name))))
			names = append(names, name)
		}
		rest := ""
		if u.Rest != nil {
			rest = u.Rest(names)
		}
		cli.Write(t, fmt.Sprintf("resource \"terraform_data\" \"later\" {\n  input = {\n    round = timestamp()\n%s  }\n}\n", &later)+rest+resources.String())
		if output, err := cli.Run(args...); err != nil {
			t.Errorf("%s, round %d: %s:\n%s", strings.Join(parts[0].path, "."), round+1, err, errorsIn(output))
		}
	}
}

func (u Unknown) parts(t *testing.T) (parts []part) {
	t.Helper()
	add := func(path []string, values [2]any, optional bool) {
		at := strings.Join(path, ".")
		p := part{name: strings.NewReplacer(".", "-", "_", "-", `"`, "", "/", "-").Replace(at), path: path, values: values}
		p.base = u.Base(p.name)
		for i := 1; i < len(path); i++ { // what it is a part of has to be there
			if values, ok := u.Values[strings.Join(path[:i], ".")]; ok {
				p.base = set(p.base, path[:i], values[0])
			}
		}
		for prefix, beside := range u.With {
			if at == prefix || strings.HasPrefix(at, prefix+".") {
				maps.Copy(p.base, beside)
			}
		}
		p.optional = optional && !slices.Contains(u.Needed, at)
		parts = append(parts, p)
	}
	var attribute func(path []string, a schema.Attribute)
	attribute = func(path []string, a schema.Attribute) {
		if !a.IsOptional() && !a.IsRequired() {
			return
		}
		values, ok := u.Values[strings.Join(path, ".")]
		require.True(t, ok, "no values of %s", strings.Join(path, "."))
		add(path, values, a.IsOptional())
		within := func(path []string) {
			if nested, ok := a.(schema.NestedAttribute); ok {
				all := nested.GetNestedObject().GetAttributes()
				for _, name := range slices.Sorted(maps.Keys(all)) {
					attribute(append(slices.Clone(path), name), all[name])
				}
			}
		}
		if _, single := a.(schema.SingleNestedAttribute); single {
			within(path)
			return
		}
		for key, value := range elements(values[0]) {
			element := append(slices.Clone(path), key)
			if !requires(a) {
				add(element, [2]any{value, elements(values[1])[key]}, false)
			}
			within(element)
		}
	}
	var s resource.SchemaResponse
	u.Resource.Schema(t.Context(), resource.SchemaRequest{}, &s)
	for _, name := range slices.Sorted(maps.Keys(s.Schema.Attributes)) {
		attribute([]string{name}, s.Schema.Attributes[name])
	}
	return parts
}

// requires reports whether objects in an attribute have attributes of which the plugin framework says that they are missing
// while the object is unknown.
func requires(a schema.Attribute) bool {
	nested, ok := a.(schema.NestedAttribute)
	if !ok {
		return false
	}
	for _, attribute := range nested.GetNestedObject().GetAttributes() {
		if attribute.IsRequired() {
			return true
		}
	}
	return false
}

// elements are those of an object, or of a list by their numbers.
func elements(value any) Object {
	list, ok := value.(List)
	if !ok {
		object, _ := value.(Object)
		return object
	}
	numbered := Object{}
	for i, element := range list {
		numbered[strconv.Itoa(i)] = element
	}
	return numbered
}

// set returns an object that has a value at a path.
func set(object Object, path []string, value any) Object {
	return put(object, path, value).(Object) //nolint:forcetypeassert // an object stays one
}

func put(in any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if list, ok := in.(List); ok {
		list = slices.Clone(list)
		i, err := strconv.Atoi(path[0])
		if err != nil {
			panic(err) // paths are made of the numbers of elements
		}
		list[i] = put(list[i], path[1:], value)
		return list
	}
	object, _ := in.(Object)
	if object = maps.Clone(object); object == nil {
		object = Object{}
	}
	object[path[0]] = put(object[path[0]], path[1:], value)
	return object
}

// Written is a value as a configuration has it.
func Written(value any) string {
	var lines strings.Builder
	switch value := value.(type) {
	case Object:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			fmt.Fprintf(&lines, "%s = %s\n", key, Written(value[key]))
		}
		return "{\n" + lines.String() + "}"
	case List:
		for _, element := range value {
			lines.WriteString(Written(element) + ",\n")
		}
		return "[\n" + lines.String() + "]"
	default:
		return fmt.Sprint(value)
	}
}

// heading begins a diagnostic that terraform prints.
var heading = regexp.MustCompile(`(?m)^[│ ]*(Error|Warning): `)

// errorsIn are the errors in what terraform prints.
func errorsIn(output string) string {
	var found []string
	starts := append(heading.FindAllStringIndex(output, -1), []int{len(output), len(output)})
	for i, at := range starts[:len(starts)-1] {
		if text := Unwrapped(output[at[0]:starts[i+1][0]]); strings.HasPrefix(text, "Error") {
			found = append(found, text)
		}
	}
	return strings.Join(found, "\n")
}
