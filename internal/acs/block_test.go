package acs

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBlockKeepsUnknownKeys(t *testing.T) {
	var g ScalingGroup
	require.NoError(t, json.Unmarshal([]byte(`{"instance_types":["ecs.x"],"vswitch_ids":["v"],"desired_size":0,"tags":[],
		"scaling_group_id":"asg-1","ram_policy":"","login_password":"******","nothing":null,"spot_price_limit":[{"price_limit":"0.5"}]}`), &g))
	assert.Equal(t, Rest{"spot_price_limit": json.RawMessage(`[{"price_limit":"0.5"}]`)}, g.Rest)
	assert.Equal(t, int64(0), *g.DesiredSize, "0 is not the same as absent")
	raw, err := json.Marshal(g)
	require.NoError(t, err)
	assert.JSONEq(t, `{"instance_types":["ecs.x"],"vswitch_ids":["v"],"desired_size":0,"tags":[],"spot_price_limit":[{"price_limit":"0.5"}]}`, string(raw))

	require.Error(t, json.Unmarshal([]byte(`[]`), &g))
	require.Error(t, json.Unmarshal([]byte(`{"instance_types":1}`), &g))
}

// What is read and written back is what was read.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte(`{"labels":[{"key":"a","value":"b"}],"unschedulable":true,"more":{"x":1}}`))
	f.Add([]byte(`{"instance_types":["ecs.x"],"desired_size":3,"Tags":[],"":0}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, block := range []any{&ScalingGroup{}, &KubernetesConfig{}, &AutoScaling{}, &Management{}} {
			if json.Unmarshal(raw, block) != nil {
				continue
			}
			first, err := json.Marshal(block)
			if err != nil {
				t.Fatalf("%T cannot be written: %v", block, err)
			}
			again := reflect.New(reflect.TypeOf(block).Elem()).Interface()
			if err := json.Unmarshal(first, again); err != nil {
				t.Fatalf("%T wrote %s: %v", block, first, err)
			}
			second, err := json.Marshal(again)
			if err != nil || string(first) != string(second) {
				t.Fatalf("%T changed from\n%s to\n%s (%v)", block, first, second, err)
			}
		}
	})
}
