package acsfake

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPoolStatesWhileItGrows(t *testing.T) {
	b := newBench(t, nil)
	status, answer := b.ask("POST", pools, poolBodyOf("v100", 2, ""))
	require.Equal(t, 200, status)
	path := pools + "/" + answer["nodepool_id"].(string)
	expect := func(state string, nodes int) {
		t.Helper()
		require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
		gotState, gotNodes := poolState(t, b, path)
		assert.Equal(t, state, gotState)
		assert.Equal(t, nodes, gotNodes, "nodes are listed when they have registered")
	}
	expect("initial", 0)
	b.step(t)
	expect("scaling", 0)
	b.step(t)
	expect("scaling", 0)
	_, task := b.ask("GET", "/tasks/"+answer["task_id"].(string), "")
	assert.Equal(t, "register_nodes", task["current_stage"])
	assert.Equal(t, "running", task["state"])
	assert.IsType(t, []any{}, task["task_result"], "an array, unlike what the vendor's SDK declares")
	b.settle(t)
	state, nodes := poolState(t, b, path)
	assert.Equal(t, "active", state)
	assert.Equal(t, 2, nodes)
}

func TestRefusedBodies(t *testing.T) {
	b := newBench(t, nil)
	group := func(extra string) string {
		return `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.gn6v-c10g1.20xlarge"],"vswitch_ids":["v"]` + extra + `}}`
	}
	with := func(block string) string { return poolBodyOf("x", 1, ","+block) }
	many := strings.TrimSuffix(strings.Repeat(`{"key":"k","value":"v"},`, 21), ",")
	for _, tc := range []struct{ name, body, code, message string }{
		{"no JSON", `{`, "InvalidParameter", "not JSON"},
		{"no name", `{"scaling_group":{"instance_types":["ecs.x"],"vswitch_ids":["v"]}}`, "InvalidParameter.Name", ""},
		{"no scaling group", `{"nodepool_info":{"name":"x"}}`, "InvalidParameter.ScalingGroup", ""},
		{"no types", `{"nodepool_info":{"name":"x"},"scaling_group":{"vswitch_ids":["v"]}}`, "InvalidParameter.InstanceTypes", ""},
		{"empty types", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":[],"vswitch_ids":["v"]}}`, "InvalidParameter.InstanceTypes", "1 to 10"},
		{"no vSwitch", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.x"]}}`, "InvalidParameter.VSwitchIds", ""},
		{"empty vSwitches", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.x"],"vswitch_ids":[]}}`, "InvalidParameter.VSwitchIds", ""},
		{"no ECS type", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["p3.large"],"vswitch_ids":["v"]}}`, "InvalidParameter.InstanceTypes", "does not exist"},
		{"boolean encrypted", group(`,"data_disks":[{"encrypted":true}]`), "InvalidParameter", "Unmarshal type error: expected=string, got=bool"},
		{"key_name", group(`,"key_name":"k"`), "InvalidParameter.ScalingGroup", "key_name"},
		{"min_size", group(`,"min_size":1`), "InvalidParameter.ScalingGroup", "min_size"},
		{"negative size", group(`,"desired_size":-1`), "InvalidParameter.DesiredSize", ""},
		{"huge size", group(`,"desired_size":2001`), "InvalidParameter.DesiredSize", ""},
		{"size with auto scaling", with(`"auto_scaling":{"enable":true,"max_instances":3}`), "InvalidDesiredSizeOrCount.NotNull", ""},
		{"count with auto scaling", strings.Replace(group(``), `}}`, `},"count":1,"auto_scaling":{"enable":true,"max_instances":3}}`, 1), "InvalidDesiredSizeOrCount.NotNull", ""},
		{"labels", with(`"kubernetes_config":{"labels":[` + many + `]}`), "InvalidParameter.Labels", "at most 20"},
		{"label prefix", with(`"kubernetes_config":{"labels":[{"key":"aliyun.com/x","value":""}]}`), "InvalidParameter.Labels", "must not start"},
		{"label length", with(`"kubernetes_config":{"labels":[{"key":"` + strings.Repeat("k", 65) + `","value":""}]}`), "InvalidParameter.Labels", "1 to 64"},
		{"taint", with(`"kubernetes_config":{"taints":[{"key":"k","value":"v","effect":"Never"}]}`), "InvalidParameter.Taints", "Never"},
		{"charge type", group(`,"instance_charge_type":"Free"`), "InvalidParameter.InstanceChargeType", "PostPaid, PrePaid"},
		{"no period", group(`,"instance_charge_type":"PrePaid"`), "InvalidParameter.Period", "must be set"},
		{"weeks", group(`,"period":12,"period_unit":"Week"`), "InvalidParameter.Period", "[1 2 3 4]"},
		{"renewal", group(`,"auto_renew_period":4`), "InvalidParameter.AutoRenewPeriod", "not 4"},
		{"spot strategy", group(`,"spot_strategy":"Cheap"`), "InvalidParameter.SpotStrategy", "NoSpot"},
		{"no price limit", group(`,"spot_strategy":"SpotWithPriceLimit"`), "InvalidParameter.SpotPriceLimit", "must be set"},
		{"price of another type", group(`,"spot_price_limit":[{"instance_type":"ecs.x","price_limit":"1"}]`), "InvalidParameter.SpotPriceLimit", "none of the pool's"},
		{"no price", group(`,"spot_price_limit":[{"instance_type":"ecs.gn6v-c10g1.20xlarge","price_limit":"low"}]`), "InvalidParameter.SpotPriceLimit", "no price"},
		{"spot pools", group(`,"spot_instance_pools":11`), "InvalidParameter.SpotInstancePools", "1 to 10"},
		{"base", group(`,"on_demand_base_capacity":1001`), "InvalidParameter.OnDemandBaseCapacity", ""},
		{"percentage", group(`,"on_demand_percentage_above_base_capacity":101`), "InvalidParameter.OnDemandPercentageAboveBaseCapacity", ""},
		{"disk category", group(`,"system_disk_category":"tape"`), "InvalidParameter.SystemDiskCategory", "tape"},
		{"disk level", group(`,"system_disk_category":"cloud_ssd","system_disk_performance_level":"PL1"`), "InvalidParameter.SystemDisk", "cloud_essd"},
		{"disk size", group(`,"system_disk_size":5`), "InvalidParameter.SystemDiskSize", "20 to 2048"},
		{"disk key", group(`,"system_disk_kms_key_id":"k"`), "InvalidParameter.SystemDiskKmsKeyId", "encrypted"},
		{"bursting", group(`,"system_disk_category":"cloud_essd","system_disk_bursting_enabled":true`), "InvalidParameter.SystemDisk", "cloud_auto"},
		{"many disks", group(`,"data_disks":[{},{},{},{},{},{},{},{},{},{},{}]`), "InvalidParameter.DataDisks", "at most 10"},
		{"data disk key", group(`,"data_disks":[{"kms_key_id":"k","encrypted":"false"}]`), "InvalidParameter.DataDisks", "encrypted"},
		{"mount target", group(`,"data_disks":[{"mount_target":"data"}]`), "InvalidParameter.DataDisks", "absolute"},
		{"no private pool", group(`,"private_pool_options":{"match_criteria":"Target"}`), "InvalidParameter.PrivatePoolOptions", "id must be set"},
		{"two kinds of pools", group(`,"private_pool_options":{"match_criteria":"Open"},"resource_pool_options":{"strategy":"PrivatePoolFirst"}`), "InvalidParameter.ResourcePoolOptions", "exclude"},
		{"only what", group(`,"resource_pool_options":{"strategy":"PrivatePoolOnly"}`), "InvalidParameter.ResourcePoolOptions", "must be set"},
		{"tag", group(`,"tags":[{"key":"acs:x","value":""}]`), "InvalidParameter.Tags", "must not start"},
		{"tag twice", group(`,"tags":[{"key":"x"},{"key":"x"}]`), "InvalidParameter.Tags", "comes once"},
		{"script", with(`"kubernetes_config":{"user_data":"#!/bin/sh"}`), "InvalidParameter.UserData", "base64"},
		{"runtime", with(`"kubernetes_config":{"runtime":"rkt"}`), "InvalidParameter.Runtime", "containerd"},
		{"level of vulnerabilities", with(`"management":{"enable":true,"auto_vul_fix_policy":{"vul_level":"asap,never"}}`), "InvalidParameter.Management", "never"},
		{"kubelet", with(`"node_config":{"kubelet_configuration":{"cpuManagerPolicy":"fast"}}`), "InvalidParameter.KubeletConfiguration", "none, static"},
		{"reservation", with(`"node_config":{"kubelet_configuration":{"kubeReserved":{"cpu":"much"}}}`), "InvalidParameter.KubeletConfiguration", "no quantity"},
		{"CPU policy", with(`"kubernetes_config":{"cpu_policy":"fast"}`), "InvalidParameter.CpuPolicy", "fast"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer := b.ask("POST", pools, tc.body)
			assert.Equal(t, 400, status)
			assert.Equal(t, tc.code, answer["code"])
			assert.Contains(t, answer["message"], tc.message)
			assert.NotContains(t, answer, "Code", "the service's own errors have lower-case keys")
		})
	}
	assert.Empty(t, b.State().Pools)
}

func TestModifyKeepsListsAndResetsScalars(t *testing.T) {
	b := newBench(t, nil)
	path := b.create(t, poolBodyOf("x", 1, `,"kubernetes_config":{"labels":[{"key":"a","value":"1"}],"user_data":"c2NyaXB0","unschedulable":true},"management":{"enable":true}`))
	status, answer := b.ask("PUT", path, `{"kubernetes_config":{"cpu_policy":"static"}}`)
	require.Equal(t, 200, status, answer)
	b.settle(t)
	_, pool := b.ask("GET", path, "")
	k := pool["kubernetes_config"].(map[string]any)
	assert.Equal(t, "static", k["cpu_policy"])
	assert.Len(t, k["labels"], 1, "an absent list stays")
	assert.NotContains(t, k, "user_data", "an absent scalar falls back to its default")
	assert.NotContains(t, k, "unschedulable")
	assert.Equal(t, map[string]any{"enable": true}, pool["management"], "an absent block stays")
	assert.InDelta(t, 1, pool["scaling_group"].(map[string]any)["desired_size"], 0)

	_, answer = b.ask("PUT", path, `{"kubernetes_config":{"labels":[]}}`)
	require.NotNil(t, answer["task_id"])
	b.settle(t)
	_, pool = b.ask("GET", path, "")
	assert.Empty(t, pool["kubernetes_config"].(map[string]any)["labels"])
}

func TestAutoScaling(t *testing.T) {
	b := newBench(t, nil)
	body := `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.gn6v-c10g1.20xlarge"],"vswitch_ids":["v"]},"auto_scaling":{"enable":true,"type":"gpu","min_instances":2,"max_instances":5}}`
	path := b.create(t, body)
	_, nodes := poolState(t, b, path)
	assert.Equal(t, 2, nodes)
	_, pool := b.ask("GET", path, "")
	assert.NotContains(t, pool["scaling_group"], "desired_size")
	status, answer := b.ask("PUT", path, `{"scaling_group":{"desired_size":3}}`)
	assert.Equal(t, 400, status)
	assert.Equal(t, "InvalidDesiredSizeOrCount.NotNull", answer["code"])
	status, _ = b.ask("PUT", path, `{"auto_scaling":{"enable":false},"scaling_group":{"desired_size":3}}`)
	assert.Equal(t, 200, status)
	b.settle(t)
	_, nodes = poolState(t, b, path)
	assert.Equal(t, 3, nodes)
}

func TestLabelsComeInRandomOrder(t *testing.T) {
	b := newBench(t, nil)
	var labels []string
	for i := range 10 {
		labels = append(labels, fmt.Sprintf(`{"key":"k%d","value":"v"}`, i))
	}
	path := b.create(t, poolBodyOf("x", 0, `,"kubernetes_config":{"labels":[`+strings.Join(labels, ",")+`]}`))
	orders := map[string]bool{}
	for range 20 {
		_, pool := b.ask("GET", path, "")
		orders[fmt.Sprint(pool["kubernetes_config"].(map[string]any)["labels"])] = true
	}
	assert.Greater(t, len(orders), 1)
}

func TestPasswordIsKeptNowhere(t *testing.T) {
	b := newBench(t, nil)
	path := b.create(t, `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.g7.large"],"vswitch_ids":["v"],"login_password":"Hunter2!"}}`)
	_, pool := b.ask("GET", path, "")
	assert.Equal(t, mask, pool["scaling_group"].(map[string]any)["login_password"])
	for _, kept := range []any{b.State(), b.Journal()} {
		raw, err := json.Marshal(kept)
		require.NoError(t, err)
		assert.NotContains(t, string(raw), "Hunter2!")
	}
}
