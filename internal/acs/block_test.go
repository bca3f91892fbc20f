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
		"scaling_group_id":"asg-1","ram_policy":"","login_password":"******","nothing":null,"soc_enabled":[{"price_limit":"0.5"}]}`), &g))
	assert.Equal(t, Rest{"soc_enabled": json.RawMessage(`[{"price_limit":"0.5"}]`)}, g.Rest)
	assert.Equal(t, int64(0), *g.DesiredSize, "0 is not the same as absent")
	raw, err := json.Marshal(g)
	require.NoError(t, err)
	assert.JSONEq(t, `{"instance_types":["ecs.x"],"vswitch_ids":["v"],"desired_size":0,"tags":[],"soc_enabled":[{"price_limit":"0.5"}]}`, string(raw))

	var nested ScalingGroup
	written := `{"instance_types":null,"vswitch_ids":null,"tags":null,"data_disks":[{"size":40,"device":"/dev/xvdb"}],"system_disk_categories":[]}`
	require.NoError(t, json.Unmarshal([]byte(written), &nested))
	raw, err = json.Marshal(nested)
	require.NoError(t, err)
	assert.JSONEq(t, written, string(raw), "within a list, too; and an empty list is not an absent one")

	require.Error(t, json.Unmarshal([]byte(`[]`), &g))
	require.Error(t, json.Unmarshal([]byte(`{"instance_types":1}`), &g))
}

// What is read and written back is what was read.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte(`{"labels":[{"key":"a","value":"b"}],"unschedulable":true,"more":{"x":1}}`))
	f.Add([]byte(`{"instance_types":["ecs.x"],"desired_size":3,"Tags":[],"":0}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, block := range []any{&ScalingGroup{}, &KubernetesConfig{}, &AutoScaling{}, &Management{}, &NodeConfig{}} {
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
