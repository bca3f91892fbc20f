package nodepool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool"
)

// Whatever is unknown of a pool until apply, the plan has not said what the apply does otherwise.
func TestUnknownAttributes(t *testing.T) {
	acctest.StartCloud(t)
	type object = acctest.Object
	type list = acctest.List
	texts := func(a, b string) [2]any { return [2]any{fmt.Sprintf("%q", a), fmt.Sprintf("%q", b)} }
	flags, numbers := [2]any{"true", "false"}, [2]any{"2", "1"}
	listed := [2]any{list{`"a"`}, list{`"b"`}}
	reserved := [2]any{object{"cpu": `"1"`}, object{"cpu": `"2"`}}
	subscribed := object{"instance_charge_type": `"PrePaid"`, "period": "1", "auto_renew": "true"}
	auto, limited := object{"system_disk_category": `"cloud_auto"`}, `"SpotWithPriceLimit"`
	prices := [2]any{object{`"ecs.gn6v-c10g1.20xlarge"`: `"39.5"`}, object{`"ecs.gn6v-c10g1.20xlarge"`: `"40.5"`}}
	encrypted, fast := object{"system_disk_encrypted": "true"}, object{"system_disk_category": `"cloud_essd"`}
	costs := object{"multi_az_policy": `"COST_OPTIMIZED"`}
	disk := func(of object) object { return object{"data_disks": list{of}} }
	taint := func(value string) object { return object{"key": `"k"`, "value": value, "effect": `"NoSchedule"`} }
	values := map[string][2]any{
		"allow_disruption": flags, "auto_renew": flags, "auto_renew_period": numbers, "compensate_with_on_demand": flags, "cpu_policy": texts("static", "none"),
		"data_disks": {list{object{"size": "100"}}, list{object{"size": "200"}}}, "data_disks.0.auto_format": flags, "data_disks.0.bursting_enabled": flags,
		"data_disks.0.category": texts("cloud_essd", "cloud_auto"), "data_disks.0.encrypted": flags, "data_disks.0.file_system": texts("ext4", "xfs"),
		"data_disks.0.kms_key_id": texts("a", "b"), "data_disks.0.mount_target": texts("/a", "/b"), "data_disks.0.performance_level": texts("PL0", "PL1"),
		"data_disks.0.provisioned_iops": {"1000", "2000"}, "data_disks.0.size": {"100", "200"}, "data_disks.0.snapshot_id": texts("a", "b"),
		"data_disks.0.snapshot_policy_id": texts("a", "b"), "deployment_set_id": texts("a", "b"),
		"fallback_instance_types": {list{`"ecs.gn6v-c8g1.16xlarge"`}, list{`"ecs.gn6v-c8g1.16xlarge"`}}, "gpu_policy": texts("spread", "binpack"),
		"image_id": texts("a", "b"), "image_type": texts("AliyunLinux3", "AliyunLinux4"), "instance_charge_type": texts("PostPaid", "PostPaid"),
		"instance_type": texts("ecs.gn6v-c10g1.20xlarge", "ecs.gn8v.6xlarge"), "key_pair": texts("a", "b"), "kubelet_max_parallelism": numbers,
		"kubelet_config": {object{"max_pods": "100"}, object{"max_pods": "110"}}, "kubelet_config.allowed_unsafe_sysctls": {list{`"net.core.somaxconn"`}, list{`"net.ipv4.ip_forward"`}},
		"kubelet_config.container_log_max_files": {"5", "6"}, "kubelet_config.container_log_max_size": texts("50Mi", "60Mi"),
		"kubelet_config.cpu_manager_policy": texts("static", "none"), "kubelet_config.kube_reserved": reserved, "kubelet_config.max_pods": {"100", "110"},
		"kubelet_config.pod_pids_limit": {"1000", "2000"}, "kubelet_config.registry_burst": numbers, "kubelet_config.registry_pull_qps": numbers,
		"kubelet_config.serialize_image_pulls": flags, "kubelet_config.system_reserved": reserved, "kubelet_config.topology_manager_policy": texts("best-effort", "none"),
		"labels": {object{"k": `"v"`}, object{"k": `"w"`}}, "management": {object{"enabled": "true"}, object{"enabled": "false"}}, "management.enabled": flags,
		"management.vul_level": texts("asap", "later"), "mode": texts("share", "core_mem"), "mode_change_policy": texts("report", "replace"),
		"multi_az_policy": texts("BALANCE", "PRIORITY"), "name": texts("one", "two"), "on_demand_base_capacity": numbers,
		"on_demand_percentage_above_base_capacity": numbers, "period": numbers, "period_unit": texts("Month", "Week"), "pre_user_data": texts("a", "b"),
		"private_pool": {object{"match_criteria": `"Target"`, "id": `"a"`}, object{"match_criteria": `"Open"`}}, "private_pool.match_criteria": texts("Target", "Target"),
		"private_pool.id": texts("a", "b"), "ram_role_name": texts("a", "b"), "remove_nodes": listed, "resource_group_id": texts("a", "b"),
		"resource_pool":          {object{"strategy": `"PrivatePoolFirst"`, "private_pool_ids": list{`"a"`}}, object{"strategy": `"None"`}},
		"resource_pool.strategy": texts("PrivatePoolFirst", "PrivatePoolOnly"), "resource_pool.private_pool_ids": listed, "runtime": texts("containerd", "docker"),
		"runtime_version": texts("1.6", "1.7"), "scaling_policy": texts("recycle", "release"), "security_group_ids": listed, "size": numbers,
		"spot_instance_pools": numbers, "spot_instance_remedy": flags, "spot_price_limit": prices, "spot_strategy": texts("NoSpot", "SpotAsPriceGo"),
		"system_disk_bursting_enabled": flags, "system_disk_categories": {list{`"cloud_essd"`}, list{`"cloud_auto"`}}, "system_disk_category": texts("cloud_essd", "cloud_auto"),
		"system_disk_encrypt_algorithm": texts("aes-256", ""), "system_disk_encrypted": flags, "system_disk_kms_key_id": texts("a", "b"),
		"system_disk_performance_level": texts("PL0", "PL1"), "system_disk_provisioned_iops": {"1000", "2000"}, "system_disk_size": {"100", "200"},
		"system_disk_snapshot_policy_id": texts("a", "b"), "tags": {object{"k": `"v"`}, object{"k": `"w"`}},
		"taints": {list{taint(`"v"`)}, list{taint(`"w"`)}}, "taints.0.key": texts("a", "b"), "taints.0.value": texts("a", "b"), "taints.0.effect": texts("NoExecute", "NoSchedule"),
		"timeouts": {object{"create": `"9m"`}, object{"create": `"8m"`}}, "timeouts.create": texts("9m", "8m"), "timeouts.update": texts("9m", "8m"),
		"timeouts.delete": texts("9m", "8m"), "user_data": texts("a", "b"), "vswitch_ids": listed,
	}
	for _, name := range strings.Fields("auto_repair auto_repair_approval auto_repair_restarts auto_upgrade auto_upgrade_kubelet auto_upgrade_os auto_upgrade_runtime auto_vul_fix auto_vul_fix_restarts") {
		values["management."+name] = flags
	}
	acctest.Unknown{
		Type: "gpuplan_node_pool", Resource: nodepool.New(), Values: values,
		Base: func(name string) object {
			return object{
				"name": fmt.Sprintf("%q", name), "instance_type": `"ecs.gn6v-c10g1.20xlarge"`, "size": "1", "mode": `"share"`, "vswitch_ids": list{`"vsw-1"`},
			}
		},
		With: map[string]object{
			"auto_renew": {"instance_charge_type": `"PrePaid"`, "period": "1"}, "auto_renew_period": subscribed, "period": {"instance_charge_type": `"PrePaid"`}, "period_unit": subscribed,
			"spot_price_limit": {"spot_strategy": limited}, "compensate_with_on_demand": costs, "spot_instance_pools": costs, "spot_instance_remedy": costs,
			"on_demand_base_capacity": costs, "on_demand_percentage_above_base_capacity": costs, "system_disk_bursting_enabled": auto, "system_disk_provisioned_iops": auto,
			"system_disk_encrypt_algorithm": encrypted, "system_disk_kms_key_id": encrypted, "system_disk_performance_level": fast,
			"data_disks.0.bursting_enabled": disk(object{"category": `"cloud_auto"`}), "data_disks.0.provisioned_iops": disk(object{"category": `"cloud_auto"`}),
			"data_disks.0.performance_level": disk(object{"category": `"cloud_essd"`}), "data_disks.0.kms_key_id": disk(object{"encrypted": "true"}),
			"data_disks.0.file_system": disk(object{"auto_format": "true"}), "data_disks.0.mount_target": disk(object{"auto_format": "true"}),
		},
		Needed: []string{"period", "spot_price_limit", "private_pool.id", "resource_pool.private_pool_ids"},
	}.Test(t)
}

// Which nodes go, a plan does not say as long as it does not know that.
func TestNodesThatGoAreUnknown(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, shrunk(3))
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, `resource "terraform_data" "later" { input = "`+nodeNumber(2)+"\" }\n"+poolWith("size = 2\n  remove_nodes = [terraform_data.later.output]"))
	cli.Apply(t, 1, 1, 0)
	assert.ElementsMatch(t, []string{nodeNumber(1), nodeNumber(3)}, cloud.NodeNames(t))
	cli.Unchanged(t)
}

// Running jobs count where it is unknown whether their nodes go.
func TestUnknownChangesUnderRunningJobs(t *testing.T) {
	const unknown = "resource \"terraform_data\" \"x\" {\n  input = %s\n}\n"
	for name, test := range map[string]struct{ config, at, says string }{
		"mode":         {fmt.Sprintf(unknown, `"default"`) + poolWith("mode = terraform_data.x.output"), "mode", "may replace node pool v100, since mode is unknown until apply"},
		"remove_nodes": {fmt.Sprintf(unknown, "[]") + poolWith("size = 0\n  remove_nodes = terraform_data.x.output"), "size", "shrinks node pool v100 from 1 to 0 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith(""))
			cli.Apply(t, 1, 0, 0)
			cli.Write(t, test.config)
			cli.Must(t, "plan")
			cloud.Put(t, acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1))
			cli.Refuses(t, test.config, acctest.SayingAt(test.at, "The plan "+test.says))
		})
	}
}

// A pool that the service did not delete is replaced, whatever is known of the new one.
func TestUnknownChangesOfAPoolThatLeaves(t *testing.T) {
	for name, size := range map[string]string{"known": "2", "unknown": "terraform_data.x.output"} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith(""))
			cli.Apply(t, 1, 0, 0)
			cloud.ACS.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{{Code: "Busy", Message: "It is busy."}}})
			said, err := cli.Run("destroy", "-auto-approve")
			require.Error(t, err, said)
			require.Equal(t, "delete_failed", cloud.ACS.State().Pools[0].State)

			cli.Write(t, "resource \"terraform_data\" \"x\" {\n  input = 2\n}\n"+poolWith("size = "+size))
			assert.Contains(t, cli.Must(t, "plan", "-out=saved"), "Plan: 2 to add, 0 to change, 1 to destroy.")
			cli.Must(t, "apply", "saved")
			cli.Unchanged(t)
		})
	}
}
