package acs

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
)

// Rest holds the keys of a block that this package has no field for, as the service
// answered them. They are sent back with the block, since the service resets what is
// absent from a block that it gets.
type Rest map[string]json.RawMessage

// Keys that the service answers and that are not part of the desired state. The
// password is answered masked; without it the service keeps the one it has.
var readOnlyKeys = map[string]bool{"scaling_group_id": true, "ram_policy": true, "login_password": true}

// UnmarshalJSON keeps unknown keys in Rest and leaves read-only ones out.
func (g *ScalingGroup) UnmarshalJSON(raw []byte) error {
	type fields ScalingGroup
	if err := decodeBlock(raw, (*fields)(g), &g.Rest); err != nil {
		return err
	}
	g.LoginPassword = ""
	return nil
}

// MarshalJSON writes the fields and Rest.
func (g ScalingGroup) MarshalJSON() ([]byte, error) {
	type fields ScalingGroup
	return encodeBlock(fields(g), g.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (k *KubernetesConfig) UnmarshalJSON(raw []byte) error {
	type fields KubernetesConfig
	return decodeBlock(raw, (*fields)(k), &k.Rest)
}

// MarshalJSON writes the fields and Rest.
func (k KubernetesConfig) MarshalJSON() ([]byte, error) {
	type fields KubernetesConfig
	return encodeBlock(fields(k), k.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (a *AutoScaling) UnmarshalJSON(raw []byte) error {
	type fields AutoScaling
	return decodeBlock(raw, (*fields)(a), &a.Rest)
}

// MarshalJSON writes the fields and Rest.
func (a AutoScaling) MarshalJSON() ([]byte, error) {
	type fields AutoScaling
	return encodeBlock(fields(a), a.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (m *Management) UnmarshalJSON(raw []byte) error {
	type fields Management
	return decodeBlock(raw, (*fields)(m), &m.Rest)
}

// MarshalJSON writes the fields and Rest.
func (m Management) MarshalJSON() ([]byte, error) {
	type fields Management
	return encodeBlock(fields(m), m.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (d *DataDisk) UnmarshalJSON(raw []byte) error {
	type fields DataDisk
	return decodeBlock(raw, (*fields)(d), &d.Rest)
}

// MarshalJSON writes the fields and Rest.
func (d DataDisk) MarshalJSON() ([]byte, error) {
	type fields DataDisk
	return encodeBlock(fields(d), d.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (r *RepairPolicy) UnmarshalJSON(raw []byte) error {
	type fields RepairPolicy
	return decodeBlock(raw, (*fields)(r), &r.Rest)
}

// MarshalJSON writes the fields and Rest.
func (r RepairPolicy) MarshalJSON() ([]byte, error) {
	type fields RepairPolicy
	return encodeBlock(fields(r), r.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (u *UpgradePolicy) UnmarshalJSON(raw []byte) error {
	type fields UpgradePolicy
	return decodeBlock(raw, (*fields)(u), &u.Rest)
}

// MarshalJSON writes the fields and Rest.
func (u UpgradePolicy) MarshalJSON() ([]byte, error) {
	type fields UpgradePolicy
	return encodeBlock(fields(u), u.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (v *VulFixPolicy) UnmarshalJSON(raw []byte) error {
	type fields VulFixPolicy
	return decodeBlock(raw, (*fields)(v), &v.Rest)
}

// MarshalJSON writes the fields and Rest.
func (v VulFixPolicy) MarshalJSON() ([]byte, error) {
	type fields VulFixPolicy
	return encodeBlock(fields(v), v.Rest)
}

// UnmarshalJSON keeps unknown keys in Rest.
func (k *KubeletConfig) UnmarshalJSON(raw []byte) error {
	type fields KubeletConfig
	return decodeBlock(raw, (*fields)(k), &k.Rest)
}

// MarshalJSON writes the fields and Rest.
func (k KubeletConfig) MarshalJSON() ([]byte, error) {
	type fields KubeletConfig
	return encodeBlock(fields(k), k.Rest)
}

// decodeBlock decodes an object into the fields of a struct, and the keys for which it
// has none into rest.
func decodeBlock(raw []byte, fields any, rest *Rest) error {
	var all Rest
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, fields); err != nil {
		return err
	}
	known := jsonKeys(reflect.TypeOf(fields).Elem())
	maps.DeleteFunc(all, func(key string, value json.RawMessage) bool {
		return known[key] || readOnlyKeys[key] || string(value) == "null"
	})
	*rest = nil
	if len(all) > 0 {
		*rest = all
	}
	return nil
}

func jsonKeys(t reflect.Type) map[string]bool {
	keys := map[string]bool{}
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		keys[key] = true
	}
	return keys
}

// encodeBlock writes fields, and the keys of rest that fields did not write.
func encodeBlock(fields any, rest Rest) ([]byte, error) {
	raw, err := json.Marshal(fields)
	if err != nil || len(rest) == 0 {
		return raw, err
	}
	all := maps.Clone(rest)
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
