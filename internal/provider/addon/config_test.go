package addon

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func read(t *testing.T, text string) config {
	t.Helper()
	c, err := parse(text)
	require.NoError(t, err)
	return c
}

// A resource owns the settings that it has, takes note of what they were, and gives that back.
func TestOwnedSettings(t *testing.T) {
	for name, test := range map[string]struct{ live, before, wanted, known, send, undo string }{
		"new":                     {live: `{"a":1,"b":2}`, wanted: `{"b":3}`, known: `{"b":2}`, send: `{"b":3}`, undo: `{"b":2}`},
		"not set before":          {live: `{}`, wanted: `{"a":{"b":true}}`, known: `{"a":{"b":null}}`, send: `{"a":{"b":true}}`, undo: `{"a":{"b":""}}`},
		"one less":                {live: `{"a":1,"b":2}`, before: `{"a":1,"b":2}`, wanted: `{"a":1}`, known: `{"a":1}`, send: `{"a":1,"b":""}`, undo: `{"a":1}`},
		"one less, nested":        {live: `{"x":{"a":1,"b":2}}`, before: `{"x":{"a":1,"b":2}}`, wanted: `{"x":{"b":2}}`, known: `{"x":{"b":2}}`, send: `{"x":{"a":"","b":2}}`, undo: `{"x":{"b":2}}`},
		"an object for a setting": {live: `{"a":1}`, before: `{"a":1}`, wanted: `{"a":{"b":1}}`, known: `{"a":{"b":null}}`, send: `{"a":{"b":1}}`, undo: `{"a":{"b":""}}`},
		"a setting for an object": {live: `{"a":{"b":1,"c":2}}`, before: `{"a":{"b":1,"c":2}}`, wanted: `{"a":"x"}`, known: `{"a":{"b":1,"c":2}}`, send: `{"a":"x"}`, undo: `{"a":{"b":1,"c":2}}`},
		"a list":                  {live: `{"a":[1,2]}`, wanted: `{"a":[3]}`, known: `{"a":[1,2]}`, send: `{"a":[3]}`, undo: `{"a":[1,2]}`},
		"a large number":          {live: `{"a":12345678901234567890}`, wanted: `{"a":1}`, known: `{"a":12345678901234567890}`, send: `{"a":1}`, undo: `{"a":12345678901234567890}`},
	} {
		t.Run(name, func(t *testing.T) {
			live, old, wanted := read(t, test.live), read(t, test.before), read(t, test.wanted)
			known := before(wanted, config{}, live)
			assert.JSONEq(t, test.known, text(known))
			assert.JSONEq(t, test.send, text(merged(undo(old, wanted, config{}), wanted)))
			assert.JSONEq(t, test.undo, text(undo(wanted, config{}, known)))
		})
	}
	assert.JSONEq(t, `{"a":{"b":1}}`, text(only(read(t, `{"a":{"b":1,"c":2},"d":3}`), read(t, `{"a":{"b":9},"e":1}`))))
	assert.True(t, same(read(t, `{"a":1.0}`), read(t, `{"a":1}`)))
	for _, wrong := range []string{"[]", "null", "1", "{} {}", "{", `{"a":[{"b":1e400}]}`} {
		_, err := parse(wrong)
		assert.Error(t, err, wrong)
	}
}

func TestEmptySettings(t *testing.T) {
	c := read(t, `{"a":null,"b":"","c":[],"d":{},"e":{"f":{"g":[]},"h":0},"i":false,"j":[null],"k":"x"}`)
	assert.Equal(t, [][]string{{"a"}, {"b"}, {"c"}, {"d"}, {"e", "f", "g"}}, empty(c))
	assert.Empty(t, empty(config{}))
}

func FuzzParse(f *testing.F) {
	f.Add(`{"a":{"b":[1,null,"x"]},"c":true}`, `{"a":{"b":2}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		old, err := parse(a)
		wanted, err2 := parse(b)
		if err != nil || err2 != nil {
			return
		}
		known := before(wanted, config{}, old)
		assert.True(t, same(only(merged(old, wanted), wanted), only(wanted, wanted)), "what is sent is there")
		_ = undo(wanted, config{}, known)
	})
}
