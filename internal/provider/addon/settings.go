package addon

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// places gives the attribute of a setting, and what the user calls it.
type places func(setting []string) (at path.Path, called string)

// checkEmpty refuses settings without a value: what the service makes of them is another value, so that every
// plan would change them again.
func checkEmpty(c config, place places) (diags diag.Diagnostics) {
	for _, setting := range empty(c) {
		at, called := place(setting)
		diags.AddAttributeError(at, "Setting has no value", fmt.Sprintf(
			"%s is empty, which the service takes for no value: the setting would get its default. Give it a value, or leave it out.", called))
	}
	return diags
}

// checkSettings holds settings against the add-on's JSON schema. What the schema does not know is
// warned of: it may be behind.
func checkSettings(name, schema string, wanted config, place places) (diags diag.Diagnostics) {
	if schema == "" {
		return nil
	}
	unchecked := func(err error) diag.Diagnostics {
		diags.AddWarning("Settings are not checked", fmt.Sprintf("The schema of add-on %s cannot be used: %s.", name, err))
		return diags
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return unchecked(err)
	}
	const location = "addon.json"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(location, document); err != nil {
		return unchecked(err)
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return unchecked(err)
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(any(given(wanted))); errors.As(err, &invalid) {
		for _, leaf := range faults(invalid) {
			at, called := place(leaf.InstanceLocation)
			diags.AddAttributeError(at, "Invalid setting", fmt.Sprintf("Add-on %s does not take this: %s: %s.", name, called, leaf.ErrorKind.LocalizedString(message.NewPrinter(language.English))))
		}
	}
	for _, setting := range unknown(compiled, wanted) {
		at, called := place(setting)
		diags.AddAttributeWarning(at, "Unknown setting", fmt.Sprintf("The schema of add-on %s does not have %s.", name, called))
	}
	return diags
}

// given returns the settings that have a value: null and the empty text clear one of any type.
func given(c config) config {
	out := config{}
	for key, value := range c {
		if inner := section(c, key); inner != nil {
			value = given(inner)
		}
		if value != nil && value != "" {
			out[key] = value
		}
	}
	return out
}

// faults lists what is wrong, each at its setting.
func faults(e *jsonschema.ValidationError) (all []*jsonschema.ValidationError) {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	for _, cause := range e.Causes {
		all = append(all, faults(cause)...)
	}
	return all
}

// unknown lists the settings that an object with named properties does not have.
func unknown(schema *jsonschema.Schema, c config, at ...string) (all [][]string) {
	for schema.Ref != nil {
		schema = schema.Ref
	}
	if len(schema.Properties) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		here := append(slices.Clone(at), key)
		property, known := schema.Properties[key]
		if !known {
			all = append(all, here)
		} else if inner, ok := c[key].(map[string]any); ok {
			all = append(all, unknown(property, inner, here...)...)
		}
	}
	return all
}
