package addon

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
)

// config is the configuration of an add-on, or a part of it, as JSON has it: objects are
// map[string]any, numbers [json.Number]. A setting is a value that is no object with keys.
type config = map[string]any

// parse reads a JSON object; an empty text is one without keys.
func parse(text string) (config, error) {
	if text == "" {
		return config{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	var c config
	if err := decoder.Decode(&c); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("there is more than one value")
	}
	if c == nil {
		return nil, errors.New("it is null")
	}
	return c, inRange(c)
}

// inRange refuses numbers that are too large to be compared.
func inRange(value any) (err error) {
	switch value := value.(type) {
	case json.Number:
		if _, err = value.Float64(); err != nil {
			err = fmt.Errorf("the number %.40s is too large", value)
		}
	case config:
		for _, inner := range value {
			err = cmp.Or(err, inRange(inner))
		}
	case []any:
		for _, inner := range value {
			err = cmp.Or(err, inRange(inner))
		}
	}
	return err
}

// text writes a configuration, keys in their order.
func text(c config) string {
	out, err := json.Marshal(c)
	if err != nil {
		panic("addon: " + err.Error()) // what was parsed can be written
	}
	return string(out)
}

// settingsText is the JSON object of settings, null for none.
func settingsText(c config) jsontypes.Normalized {
	if len(c) == 0 {
		return jsontypes.NewNormalizedNull()
	}
	return jsontypes.NewNormalizedValue(text(c))
}

// section is the object at a key, nil for a setting.
func section(c config, key string) config {
	if s, ok := c[key].(config); ok && len(s) > 0 {
		return s
	}
	return nil
}

// empty returns the settings that have no value, in order: the service takes an empty value for
// none, and gives the setting its default.
func empty(c config, at ...string) (settings [][]string) {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		here := append(slices.Clone(at), key)
		if inner := section(c, key); inner != nil {
			settings = append(settings, empty(inner, here...)...)
			continue
		}
		switch value := c[key].(type) {
		case nil:
			settings = append(settings, here)
		case string:
			if value == "" {
				settings = append(settings, here)
			}
		case []any:
			if len(value) == 0 {
				settings = append(settings, here)
			}
		case config:
			settings = append(settings, here)
		}
	}
	return settings
}

// only returns the settings of c that like has, with their values in c.
func only(c, like config) config {
	out := config{}
	for key := range like {
		value, present := c[key]
		if inner := section(like, key); inner != nil {
			if s := only(section(c, key), inner); len(s) > 0 {
				out[key] = s
			}
		} else if present {
			out[key] = value
		}
	}
	return out
}

// before returns for each setting of wanted what it was before it was owned: what known says, where
// that has it, else the live value, null for one that was not set.
func before(wanted, known, live config) config {
	out := config{}
	for key := range wanted {
		if inner := section(wanted, key); inner != nil {
			out[key] = before(inner, section(known, key), section(live, key))
		} else if value, ok := known[key]; ok {
			out[key] = value
		} else {
			out[key] = live[key]
		}
	}
	return out
}

// undo returns what gives back the settings that old has and wanted lacks: their value before, or an empty text,
// which clears them.
func undo(old, wanted, before config) config {
	out := config{}
	for key := range old {
		if inner := section(old, key); inner != nil {
			if s := undo(inner, section(wanted, key), section(before, key)); len(s) > 0 {
				out[key] = s
			}
		} else if _, kept := wanted[key]; !kept {
			out[key] = before[key]
			if out[key] == nil {
				out[key] = ""
			}
		}
	}
	return out
}

// without returns c without a setting.
func without(c config, setting []string) config {
	out := maps.Clone(c)
	inner := section(c, setting[0])
	if len(setting) > 1 && inner == nil {
		return out
	}
	if len(setting) > 1 {
		inner = without(inner, setting[1:])
	}
	if delete(out, setting[0]); len(setting) > 1 && len(inner) > 0 {
		out[setting[0]] = inner
	}
	return out
}

// covers reports whether all settings have each of some, with its value.
func covers(all, some jsontypes.Normalized) bool {
	if all.IsUnknown() || some.IsUnknown() {
		return false
	}
	have, err := parse(all.ValueString())
	if err != nil {
		return false
	}
	want, err := parse(some.ValueString())
	return err == nil && same(only(have, want), want)
}

// merged returns a with all settings of b.
func merged(a, b config) config {
	out := config{}
	for key, value := range a {
		out[key] = value
	}
	for key, value := range b {
		inner, into := section(b, key), section(out, key)
		if inner != nil && into != nil {
			value = merged(into, inner)
		}
		out[key] = value
	}
	return out
}

// same reports whether two configurations say the same, whatever the spelling of their numbers.
func same(a, b config) bool {
	var x, y any
	return json.Unmarshal([]byte(text(a)), &x) == nil && json.Unmarshal([]byte(text(b)), &y) == nil && reflect.DeepEqual(x, y)
}
