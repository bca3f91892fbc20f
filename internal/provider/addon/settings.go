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

// checkEmpty refuses settings without a value: what the service makes of them is another value, so that every
// plan would change them again.
func checkEmpty(c config) (diags diag.Diagnostics) {
	for _, setting := range empty(c, "config") {
		diags.AddAttributeError(path.Root("config"), "Setting has no value", fmt.Sprintf(
			"%s is empty, which the service takes for no value: the setting would get its default. Give it a value, or leave it out.", setting))
	}
	return diags
}

// checkSettings holds settings against the add-on's JSON schema. What the schema does not know is
// warned of: it may be behind.
func checkSettings(name, schema string, wanted config) (diags diag.Diagnostics) {
	if schema == "" {
		return nil
	}
	unchecked := func(err error) diag.Diagnostics {
		diags.AddAttributeWarning(path.Root("config"), "Settings are not checked", fmt.Sprintf("The schema of add-on %s cannot be used: %s.", name, err))
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
		for _, fault := range faults(invalid) {
			diags.AddAttributeError(path.Root("config"), "Invalid setting", fmt.Sprintf("Add-on %s does not take this: %s.", name, fault))
		}
	}
	for _, setting := range unknown("config", compiled, wanted) {
		diags.AddAttributeWarning(path.Root("config"), "Unknown setting", fmt.Sprintf("The schema of add-on %s does not have %s.", name, setting))
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

// faults lists what is wrong, each with the setting's path.
func faults(e *jsonschema.ValidationError) (all []string) {
	if len(e.Causes) == 0 {
		at := strings.Join(append([]string{"config"}, e.InstanceLocation...), ".")
		return []string{at + ": " + e.ErrorKind.LocalizedString(message.NewPrinter(language.English))}
	}
	for _, cause := range e.Causes {
		all = append(all, faults(cause)...)
	}
	return all
}

// unknown lists the settings that an object with named properties does not have.
func unknown(at string, schema *jsonschema.Schema, c config) (all []string) {
	for schema.Ref != nil {
		schema = schema.Ref
	}
	if len(schema.Properties) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		property, known := schema.Properties[key]
		if !known {
			all = append(all, at+"."+key)
		} else if inner, ok := c[key].(map[string]any); ok {
			all = append(all, unknown(at+"."+key, property, inner)...)
		}
	}
	return all
}
