package setting

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// Each field of the model is one setting, with the type of its schema.
func TestTable(t *testing.T) {
	fields := map[string]reflect.Type{}
	for i := range reflect.TypeOf(Values{}).NumField() {
		f := reflect.TypeOf(Values{}).Field(i)
		fields[f.Tag.Get("tfsdk")] = f.Type
	}
	for _, s := range table() {
		kind, ok := fields[s.name]
		require.True(t, ok, s.name)
		assert.Equal(t, reflect.TypeOf(s.attribute.GetType().ValueType(t.Context())), kind, s.name)
		assert.True(t, s.attribute.IsOptional() && s.attribute.IsComputed(), s.name)
		assert.NotEmpty(t, s.attribute.GetMarkdownDescription(), s.name)
		var v Values
		assert.Same(t, &v, func() *Values { s.set(&v, s.get(v)); return &v }())
		delete(fields, s.name)
	}
	assert.Empty(t, fields, "fields without a setting")
	assert.Len(t, Attributes(), len(table()))
}

// full is a pool of which the service has everything.
const full = `{
  "nodepool_info": {"name": "v100", "type": "ess", "resource_group_id": "rg-1"},
  "scaling_group": {
    "instance_types": ["ecs.x"], "vswitch_ids": ["vsw-1"], "desired_size": 1, "security_group_ids": ["sg-1"],
    "instance_charge_type": "PrePaid", "period": 1, "period_unit": "Month", "auto_renew": false, "auto_renew_period": 1,
    "spot_strategy": "SpotWithPriceLimit", "spot_price_limit": [{"instance_type": "ecs.x", "price_limit": "1.5"}], "spot_instance_pools": 2,
    "spot_instance_remedy": true, "compensate_with_on_demand": true, "on_demand_base_capacity": 0, "on_demand_percentage_above_base_capacity": 5,
    "system_disk_category": "cloud_auto", "system_disk_categories": ["cloud_auto"], "system_disk_size": 120, "system_disk_performance_level": "PL1", "system_disk_encrypted": true,
    "system_disk_encrypt_algorithm": "aes-256", "system_disk_kms_key_id": "k", "system_disk_bursting_enabled": true, "system_disk_provisioned_iops": 7, "system_disk_snapshot_policy_id": "sp",
    "data_disks": [{"category": "cloud_auto", "size": 40, "performance_level": "PL0", "encrypted": "true", "kms_key_id": "k", "snapshot_id": "s", "auto_format": true, "file_system": "xfs",
      "mount_target": "/data", "bursting_enabled": false, "provisioned_iops": 3, "auto_snapshot_policy_id": "sp", "device": "/dev/xvdb"}],
    "image_id": "m", "image_type": "AliyunLinux3", "key_pair": "ops", "multi_az_policy": "BALANCE", "scaling_policy": "recycle", "deploymentset_id": "ds",
    "private_pool_options": {"id": "eap", "match_criteria": "Target"}, "resource_pool_options": {"strategy": "PrivatePoolOnly", "private_pool_ids": ["eap"]}, "ram_role_name": "role",
    "tags": [{"key": "gpuplan.dev/owner", "value": "me"}, {"key": "team", "value": "a"}], "soc_enabled": true
  },
  "kubernetes_config": {"labels": [], "taints": [], "cpu_policy": "static", "cms_enabled": true, "runtime": "containerd", "runtime_version": "2.1", "user_data": "IyE=", "pre_user_data": "/w==", "unschedulable": true},
  "auto_scaling": {"enable": false},
  "management": {"enable": true, "auto_repair": true, "auto_repair_policy": {"restart_node": false, "approval_required": true, "max_parallel_repairing_nodes": "5"},
    "auto_upgrade": false, "auto_upgrade_policy": {"auto_upgrade_kubelet": true, "auto_upgrade_os": false, "auto_upgrade_runtime": true},
    "auto_vul_fix": true, "auto_vul_fix_policy": {"restart_node": true, "vul_level": "asap", "exclude_packages": "kernel"}, "upgrade_config": {"surge": 1}},
  "node_config": {"kubelet_configuration": {"cpuManagerPolicy": "static", "topologyManagerPolicy": "none", "kubeReserved": {"cpu": "1"}, "systemReserved": {"memory": "1Gi"}, "maxPods": 64,
    "podPidsLimit": 100, "allowedUnsafeSysctls": ["kernel.msg*"], "serializeImagePulls": false, "registryPullQPS": 5, "registryBurst": 10, "containerLogMaxSize": "10Mi", "containerLogMaxFiles": 3, "eventBurst": 9}}
}`

func fullSpec(t *testing.T) (spec acs.NodePoolSpec) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(full), &spec))
	return spec
}

func jsonOf(t *testing.T, spec acs.NodePoolSpec) string {
	t.Helper()
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	return string(raw)
}

func read(t *testing.T, spec acs.NodePoolSpec) (v Values) {
	t.Helper()
	require.Empty(t, v.Read(t.Context(), spec, true))
	return v
}

// Every setting is read, and what was read is written as it was, keys that no setting has included.
func TestReadAndWrite(t *testing.T) {
	spec := fullSpec(t)
	require.JSONEq(t, full, jsonOf(t, spec))
	v := read(t, spec)
	for _, s := range table() {
		value, err := s.get(v).ToTerraformValue(t.Context())
		require.NoError(t, err)
		assert.True(t, !value.IsNull() && value.IsFullyKnown(), s.name)
		for part, has := range parts(s.get(v)) {
			assert.False(t, has.IsNull(), "%s.%s", s.name, part)
		}
	}
	same := fullSpec(t)
	require.Empty(t, v.Write(t.Context(), &same))
	assert.JSONEq(t, full, jsonOf(t, same))

	// Laid over nothing, it is read again.
	var fresh acs.NodePoolSpec
	require.Empty(t, v.Write(t.Context(), &fresh))
	again := read(t, fresh)
	for _, s := range table() {
		if slices.Contains([]string{"private_pool", "pre_user_data"}, s.name) {
			continue // resource_pool takes its place; no text, which a user cannot write
		}
		assert.Equal(t, s.get(v), s.get(again), s.name)
	}
	assert.Empty(t, v.Differ(v))
}

func parts(value attr.Value) map[string]attr.Value {
	switch value := value.(type) {
	case types.Object:
		return value.Attributes()
	case types.List:
		if first, ok := value.Elements()[0].(types.Object); ok {
			return first.Attributes()
		}
	}
	return nil
}

// What nobody said is neither read nor written, but for what is shown.
func TestWhatIsLeftOut(t *testing.T) {
	spec := fullSpec(t)
	var v Values
	require.Empty(t, v.Write(t.Context(), &spec))
	assert.JSONEq(t, full, jsonOf(t, spec))
	require.Empty(t, v.Read(t.Context(), spec, false))
	for _, s := range table() {
		assert.Equal(t, !s.shown, s.get(v).IsNull(), s.name)
	}

	// Of an object that says little, the rest is left out as well.
	all := read(t, spec)
	little := func(whole types.Object, name string) types.Object {
		kinds, said := whole.AttributeTypes(t.Context()), map[string]attr.Value{}
		for part, kind := range kinds {
			said[part] = null(t, kind)
		}
		said[name] = whole.Attributes()[name]
		return types.ObjectValueMust(kinds, said)
	}
	v.Management, v.KubeletConfig = little(all.Management, "enabled"), little(all.KubeletConfig, "max_pods")
	disk, ok := all.DataDisks.Elements()[0].(types.Object)
	require.True(t, ok)
	v.DataDisks = types.ListValueMust(disk.Type(t.Context()), []attr.Value{little(disk, "size")})
	said := v
	require.Empty(t, v.Read(t.Context(), spec, false))
	assert.Equal(t, said.Management, v.Management)
	assert.Equal(t, said.KubeletConfig, v.KubeletConfig)
	assert.Equal(t, said.DataDisks, v.DataDisks)
	require.Empty(t, v.Write(t.Context(), &spec))
	assert.JSONEq(t, full, jsonOf(t, spec), "what is said is so already")

	v.DataDisks = types.ListValueMust(disk.Type(t.Context()), []attr.Value{little(disk, "size"), little(disk, "category")})
	require.Empty(t, v.Write(t.Context(), &spec))
	require.Len(t, spec.ScalingGroup.DataDisks, 2)
	assert.Equal(t, fullSpec(t).ScalingGroup.DataDisks[0], spec.ScalingGroup.DataDisks[0], "a disk beside it changes nothing of the first")
	assert.Equal(t, acs.DataDisk{Category: "cloud_auto"}, spec.ScalingGroup.DataDisks[1])
}

func null(t *testing.T, kind attr.Type) attr.Value {
	t.Helper()
	unknown := map[attr.Type]attr.Value{types.StringType: types.StringNull(), types.Int64Type: types.Int64Null(), types.BoolType: types.BoolNull()}
	if value, ok := unknown[kind]; ok {
		return value
	}
	if list, ok := kind.(types.ListType); ok {
		return types.ListNull(list.ElemType)
	}
	elements, ok := kind.(types.MapType)
	require.True(t, ok)
	return types.MapNull(elements.ElemType)
}

// The service may leave out of its answer what is off or 0; what it decides itself is another thing.
func TestOffIsWritten(t *testing.T) {
	v := Values{AutoRenew: types.BoolValue(false), OnDemandBaseCapacity: types.Int64Value(0), UserData: types.StringValue("")}
	var spec acs.NodePoolSpec
	require.Empty(t, v.Write(t.Context(), &spec))
	require.NotNil(t, spec.ScalingGroup.AutoRenew)
	require.NotNil(t, spec.ScalingGroup.OnDemandBaseCapacity)
	said := v
	require.Empty(t, v.Read(t.Context(), acs.NodePoolSpec{}, false))
	assert.Equal(t, said.AutoRenew, v.AutoRenew)
	assert.Equal(t, said.OnDemandBaseCapacity, v.OnDemandBaseCapacity)
	on := true
	require.Empty(t, v.Read(t.Context(), acs.NodePoolSpec{ScalingGroup: acs.ScalingGroup{AutoRenew: &on}}, false))
	assert.True(t, v.AutoRenew.ValueBool())
}

func TestSensitiveSettings(t *testing.T) {
	for name, a := range Attributes() {
		assert.Equal(t, slices.Contains([]string{"user_data", "pre_user_data"}, name), a.IsSensitive(), name)
	}
}
