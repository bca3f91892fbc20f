package nodepool_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// service is a client of the emulated cloud.
func service(t *testing.T, cloud *acctest.Cloud) *acs.Client {
	t.Helper()
	client, err := acs.New(acs.Config{Credentials: cloud.Credentials(), Region: acctest.Region, Endpoint: cloud.Endpoint, UserAgent: "test", PollInterval: time.Millisecond, RetryDelay: time.Millisecond})
	require.NoError(t, err)
	return client
}

// record is the pool as the service has it.
func record(t *testing.T, cloud *acctest.Cloud) acs.NodePool {
	t.Helper()
	return recordOf(t, cloud, "v100")
}

// recordOf is a pool as the service has it.
func recordOf(t *testing.T, cloud *acctest.Cloud, name string) acs.NodePool {
	t.Helper()
	found, err := service(t, cloud).FindNodePool(t.Context(), acctest.ClusterID, name)
	require.NoError(t, err)
	require.NotNil(t, found)
	return *found
}

// someone changes the pool at the service.
func someone(t *testing.T, cloud *acctest.Cloud, change func(*acs.NodePoolSpec)) {
	t.Helper()
	someoneChanges(t, cloud, "v100", change)
}

// someoneChanges changes a pool at the service.
func someoneChanges(t *testing.T, cloud *acctest.Cloud, name string, change func(*acs.NodePoolSpec)) {
	t.Helper()
	client, has := service(t, cloud), recordOf(t, cloud, name)
	change(&has.NodePoolSpec)
	started, err := client.ModifyNodePool(t.Context(), acctest.ClusterID, has.Info.ID, has.NodePoolSpec, acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = client.WaitTask(t.Context(), started.TaskID, nil)
	require.NoError(t, err)
	started, err = client.ModifyNodeConfig(t.Context(), acctest.ClusterID, has.Info.ID, has.NodeConfig, 0)
	require.NoError(t, err)
	_, err = client.WaitTask(t.Context(), started.TaskID, nil)
	require.NoError(t, err)
}

// Each setting reaches the service, is changed in place, is read back as it was written also by an
// import, stays when it is left out, and shows when someone else has changed it.
func TestSettings(t *testing.T) {
	none := func(*acs.NodePoolSpec) {}
	tests := map[string]struct {
		first, then string
		// has checks what the service has after then.
		has func(*testing.T, acs.NodePoolSpec)
		// meanwhile is what someone else does to it.
		meanwhile func(*acs.NodePoolSpec)
	}{
		"nothing": {``, ``, func(*testing.T, acs.NodePoolSpec) {}, none},
		"subscription": {
			`instance_charge_type = "PrePaid"
			 period = 1`,
			`instance_charge_type = "PrePaid"
			 period = 2
			 period_unit = "Week"
			 auto_renew = true
			 auto_renew_period = 3`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Equal(t, "PrePaid", s.ScalingGroup.InstanceChargeType)
				assert.Equal(t, int64(2), *s.ScalingGroup.Period)
				assert.True(t, *s.ScalingGroup.AutoRenew)
			},
			func(s *acs.NodePoolSpec) { *s.ScalingGroup.AutoRenew = false },
		},
		"spot": {
			`spot_strategy = "SpotWithPriceLimit"
			 spot_price_limit = { "ecs.gn6v-c10g1.20xlarge" = "39.5" }`,
			`spot_strategy = "SpotAsPriceGo"
			 spot_price_limit = {}
			 multi_az_policy = "COST_OPTIMIZED"
			 spot_instance_pools = 3
			 spot_instance_remedy = true
			 compensate_with_on_demand = false
			 on_demand_base_capacity = 0
			 on_demand_percentage_above_base_capacity = 20
			 scaling_policy = "recycle"`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Equal(t, "SpotAsPriceGo", s.ScalingGroup.SpotStrategy)
				assert.Empty(t, s.ScalingGroup.SpotPriceLimits)
				assert.Equal(t, int64(0), *s.ScalingGroup.OnDemandBaseCapacity)
				assert.False(t, *s.ScalingGroup.CompensateWithOnDemand)
				assert.Equal(t, "recycle", s.ScalingGroup.ScalingPolicy)
			},
			func(s *acs.NodePoolSpec) { s.ScalingGroup.SpotStrategy = "NoSpot" },
		},
		"system disk": {
			`system_disk_category = "cloud_essd"
			 system_disk_performance_level = "PL0"
			 system_disk_encrypted = true
			 system_disk_kms_key_id = "key-1"`,
			`system_disk_category = "cloud_auto"
			 system_disk_categories = ["cloud_auto", "cloud_essd"]
			 system_disk_size = 200
			 system_disk_performance_level = ""
			 system_disk_encrypted = true
			 system_disk_encrypt_algorithm = "aes-256"
			 system_disk_bursting_enabled = true
			 system_disk_provisioned_iops = 1000
			 system_disk_snapshot_policy_id = "sp-1"`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Equal(t, "key-1", s.ScalingGroup.SystemDiskKMSKeyID, "what is left out stays")
				assert.Equal(t, int64(1000), *s.ScalingGroup.SystemDiskProvisionedIOPS)
				assert.Equal(t, []string{"cloud_auto", "cloud_essd"}, s.ScalingGroup.SystemDiskCategories)
			},
			func(s *acs.NodePoolSpec) { s.ScalingGroup.SystemDiskSize = 300 },
		},
		"data disks": {
			`data_disks = [{ category = "cloud_essd", size = 500 }]`,
			`data_disks = [
			   { category = "cloud_essd", size = 500, performance_level = "PL1", encrypted = true, kms_key_id = "key-1", snapshot_policy_id = "sp-1" },
			   { category = "cloud_auto", size = 1000, encrypted = false, auto_format = true, file_system = "ext4", mount_target = "/mnt/data", bursting_enabled = true, provisioned_iops = 100 },
			 ]`,
			func(t *testing.T, s acs.NodePoolSpec) {
				require.Len(t, s.ScalingGroup.DataDisks, 2)
				assert.Equal(t, "true", s.ScalingGroup.DataDisks[0].Encrypted)
				assert.Equal(t, "false", s.ScalingGroup.DataDisks[1].Encrypted)
				assert.Equal(t, "/mnt/data", s.ScalingGroup.DataDisks[1].MountTarget)
			},
			func(s *acs.NodePoolSpec) { s.ScalingGroup.DataDisks = s.ScalingGroup.DataDisks[:1] },
		},
		"no data disks": {
			`data_disks = [{ category = "cloud_essd" }, { snapshot_id = "s-1" }]`, `data_disks = []`,
			func(t *testing.T, s acs.NodePoolSpec) { assert.Empty(t, s.ScalingGroup.DataDisks) },
			func(s *acs.NodePoolSpec) { s.ScalingGroup.DataDisks = []acs.DataDisk{{Size: 100}} },
		},
		"reserved capacity": {
			`private_pool = { match_criteria = "Open" }`,
			`private_pool = { match_criteria = "Target", id = "eap-1" }
			 deployment_set_id = "ds-1"`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Equal(t, acs.PrivatePool{ID: "eap-1", MatchCriteria: "Target"}, *s.ScalingGroup.PrivatePool)
				assert.Equal(t, "ds-1", s.ScalingGroup.DeploymentSetID)
			},
			func(s *acs.NodePoolSpec) { s.ScalingGroup.PrivatePool.ID = "eap-2" },
		},
		"several reservations": {
			`resource_pool = { strategy = "PrivatePoolFirst" }`,
			`resource_pool = { strategy = "PrivatePoolOnly", private_pool_ids = ["eap-2", "eap-1"] }`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.ElementsMatch(t, []string{"eap-1", "eap-2"}, s.ScalingGroup.ResourcePool.PrivatePoolIDs)
			},
			func(s *acs.NodePoolSpec) { s.ScalingGroup.ResourcePool.Strategy = "PrivatePoolFirst" },
		},
		"one kind of reservations, then the other": {
			`private_pool = { match_criteria = "Open" }`,
			`resource_pool = { strategy = "None" }
			 private_pool = null`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Nil(t, s.ScalingGroup.PrivatePool)
			},
			func(s *acs.NodePoolSpec) { s.ScalingGroup.ResourcePool.Strategy = "PrivatePoolFirst" },
		},
		"scripts": {
			`user_data = "#!/bin/sh\necho $TOKEN > /etc/token\n"`,
			`user_data = ""
			 pre_user_data = "#cloud-config\n"`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Empty(t, *s.KubernetesConfig.UserData)
				text, err := base64.StdEncoding.DecodeString(*s.KubernetesConfig.PreUserData)
				require.NoError(t, err)
				assert.Equal(t, "#cloud-config\n", string(text))
			},
			func(s *acs.NodePoolSpec) { text := "IyE="; s.KubernetesConfig.UserData = &text },
		},
		"kubelet and runtime": {
			`cpu_policy = "static"
			 runtime = "containerd"`,
			`cpu_policy = "none"
			 runtime = "docker"
			 runtime_version = "19.3.15"`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Equal(t, "none", s.KubernetesConfig.CPUPolicy)
				assert.Equal(t, "19.3.15", s.KubernetesConfig.RuntimeVersion)
			},
			func(s *acs.NodePoolSpec) { s.KubernetesConfig.CPUPolicy = "static" },
		},
		"configuration of the kubelets": {
			`kubelet_config = { max_pods = 110, serialize_image_pulls = false }`,
			`kubelet_config = { cpu_manager_policy = "static", topology_manager_policy = "best-effort", kube_reserved = { cpu = "2", memory = "8Gi" }, system_reserved = { cpu = "500m" },
			                    pod_pids_limit = -1, allowed_unsafe_sysctls = ["net.core.somaxconn"], registry_pull_qps = 0, registry_burst = 20, container_log_max_size = "50Mi", container_log_max_files = 5 }`,
			func(t *testing.T, s acs.NodePoolSpec) {
				k := s.NodeConfig.Kubelet
				assert.Equal(t, int64(110), *k.MaxPods, "what is left out stays")
				assert.False(t, *k.SerializeImagePulls)
				assert.Equal(t, "static", k.CPUManagerPolicy)
				assert.Equal(t, map[string]string{"cpu": "2", "memory": "8Gi"}, k.KubeReserved)
				assert.Equal(t, int64(0), *k.RegistryPullQPS)
			},
			func(s *acs.NodePoolSpec) { s.NodeConfig.Kubelet.CPUManagerPolicy = "none" },
		},
		"management": {
			`management = { enabled = true, auto_repair = true, auto_upgrade = false }`,
			`management = { enabled = true, auto_repair = true, auto_repair_restarts = false, auto_repair_approval = true, auto_upgrade = true, auto_upgrade_kubelet = true, auto_upgrade_os = false,
			                auto_upgrade_runtime = false, auto_vul_fix = true, auto_vul_fix_restarts = false, vul_level = "asap,later" }`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.True(t, s.Management.Enable)
				assert.False(t, *s.Management.AutoRepairPolicy.RestartNode)
				assert.Equal(t, "asap,later", s.Management.AutoVulFixPolicy.Level)
			},
			func(s *acs.NodePoolSpec) { *s.Management.AutoRepairPolicy.RestartNode = true },
		},
		"no management": {
			`management = { enabled = true, auto_upgrade = false }`, `management = { enabled = false }`,
			func(t *testing.T, s acs.NodePoolSpec) { assert.False(t, s.Management.Enable) },
			func(s *acs.NodePoolSpec) { s.Management.Enable = true },
		},
		"tags": {
			`tags = { team = "vision", "cost-centre" = "" }
			 resource_group_id = "rg-1"`,
			`tags = { team = "speech" }
			 resource_group_id = "rg-2"`,
			func(t *testing.T, s acs.NodePoolSpec) {
				assert.Contains(t, s.ScalingGroup.Tags, acs.Tag{Key: "team", Value: "speech"})
				assert.NotContains(t, s.ScalingGroup.Tags, acs.Tag{Key: "cost-centre"})
				assert.Equal(t, "rg-2", s.Info.ResourceGroupID)
			},
			func(s *acs.NodePoolSpec) {
				s.ScalingGroup.Tags = append(s.ScalingGroup.Tags, acs.Tag{Key: "by", Value: "hand"})
			},
		},
	}
	// All of them at once, each in a pool of its own.
	names := slices.Sorted(maps.Keys(tests))
	named := func(i int) string { return fmt.Sprintf("p%d", i) }
	config := func(of func(name string) string) string {
		var all strings.Builder
		for i, name := range names {
			all.WriteString(strings.ReplaceAll(poolWith(of(name)), `"v100"`, strconv.Quote(named(i))))
		}
		return all.String()
	}
	then := config(func(name string) string { return tests[name].then })
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	has := func() {
		t.Helper()
		for i, name := range names {
			t.Run(name, func(t *testing.T) { tests[name].has(t, recordOf(t, cloud, named(i)).NodePoolSpec) })
		}
	}
	cli.Write(t, config(func(name string) string { return tests[name].first }))
	cli.Apply(t, len(names), 0, 0)
	cli.Unchanged(t)

	cli.Write(t, then)
	cli.Apply(t, 0, len(names)-1, 0) // one says nothing
	has()
	cli.Unchanged(t)

	cli.Write(t, config(func(string) string { return "" })) // what is left out stays
	cli.Unchanged(t)
	has()

	forget, imports := []string{"state", "rm"}, ""
	for i := range names {
		forget = append(forget, "gpuplan_node_pool."+named(i))
		imports += fmt.Sprintf("import {\n  to = gpuplan_node_pool.%[1]s\n  id = %[1]q\n}\n", named(i))
	}
	cli.Must(t, forget...)
	cli.Write(t, then+imports)
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), fmt.Sprintf("Plan: %d to import, 0 to add, 0 to change, 0 to destroy.", len(names)))
	cli.Write(t, then)
	cli.Unchanged(t)

	for i, name := range names {
		someoneChanges(t, cloud, named(i), tests[name].meanwhile)
	}
	cli.Apply(t, 0, len(names)-1, 0)
	has()
	cli.Unchanged(t)
	cli.Must(t, "destroy", "-auto-approve")
}

// Managed operation needs an add-on: the plan warns where nobody installs it, and the service refuses.
func TestManagementWithoutItsAddon(t *testing.T) {
	addon := "resource \"gpuplan_addon\" \"npd\" {\n  name = \"ack-node-problem-detector\"\n}\n"
	for name, test := range map[string]struct {
		config string
		warns  bool
	}{
		"nobody installs it":         {poolWith(`management = { enabled = true }`), true},
		"the configuration does":     {addon + poolWith("management = { enabled = true }\n depends_on = [gpuplan_addon.npd]"), false},
		"the service does not do it": {poolWith(`management = { enabled = false }`), false},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			client := service(t, cloud)
			task, err := client.UninstallAddon(t.Context(), acctest.ClusterID, "ack-node-problem-detector")
			require.NoError(t, err)
			_, err = client.WaitTask(t.Context(), task, nil)
			require.NoError(t, err)
			cli := acctest.StartCLI(t)
			cli.Write(t, test.config)
			said := acctest.Unwrapped(cli.Must(t, "plan"))
			if !test.warns {
				assert.NotContains(t, said, "Managed operation lacks its add-on")
				cli.Must(t, "apply", "-auto-approve")
				return
			}
			assert.Contains(t, said, "will refuse node pool v100")
			said, err = cli.Run("apply", "-auto-approve")
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), "InvalidParameter.Management")
		})
	}
}

// What kubelets keep from pods counts in the plan of nodes that do not exist yet. Of those that do it is
// known when their kubelets have started again, as many at a time as the user allows.
func TestReservationsOfTheKubelets(t *testing.T) {
	cloud := acctest.StartCloud(t)
	planned := func(more string, checks ...plancheck.PlanCheck) resource.TestStep {
		return resource.TestStep{Config: poolWith(more), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: checks}}
	}
	node := func(attribute string) tfjsonpath.Path {
		return at("capacity").AtMapKey("nodes").AtSliceIndex(0).AtMapKey(attribute)
	}
	plain, ok := catalog.Lookup("ecs.gn6v-c10g1.20xlarge")
	require.True(t, ok)
	offer, err := catalog.Allocatable(plain, "topology", catalog.Setup{Pods: 110, SystemDiskGiB: 200})
	require.NoError(t, err)
	changed := planned("kubelet_max_parallelism = 3\n kubelet_config = { max_pods = 100, kube_reserved = { cpu = \"8\" } }",
		plancheck.ExpectResourceAction(pool, plancheck.ResourceActionUpdate), plancheck.ExpectUnknownValue(pool, at("capacity", "nodes")))
	changed.Check = func(*terraform.State) error {
		last := ""
		for _, e := range cloud.ACS.Journal() {
			if strings.HasSuffix(e.Target, "/node_config") {
				last = e.Body
			}
		}
		assert.Contains(t, last, `"rolling_policy":{"max_parallelism":3}`)
		return nil
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		planned(`system_disk_size = 200
		         kubelet_config = { max_pods = 110, kube_reserved = { cpu = "4", memory = "16Gi", ephemeral-storage = "3Gi" }, system_reserved = { cpu = "500m", ephemeral-storage = "1Gi" } }`,
			plancheck.ExpectKnownValue(pool, node("milli_cpu"), knownvalue.Int64Exact(offer.MilliCPU-4500)),
			plancheck.ExpectKnownValue(pool, node("memory_mib"), knownvalue.Int64Exact(offer.MemoryBytes/(1<<20)-16<<10)),
			plancheck.ExpectKnownValue(pool, node("pods"), knownvalue.Int64Exact(110)),
			plancheck.ExpectKnownValue(pool, node("extended").AtMapKey("ephemeral-storage"), knownvalue.Int64Exact(offer.EphemeralStorageBytes-4<<30))),
		changed,
		planned("kubelet_max_parallelism = 3\n kubelet_config = { max_pods = 100, kube_reserved = { cpu = \"8\" } }", plancheck.ExpectEmptyPlan()),
		planned("kubelet_max_parallelism = 1\n kubelet_config = { max_pods = 100 }", plancheck.ExpectResourceAction(pool, plancheck.ResourceActionUpdate), plancheck.ExpectKnownValue(pool, at("capacity", "gpus"), knownvalue.Int64Exact(8))),
		{Config: acctest.Forgotten(pool)},
		{Config: poolWith("kubelet_max_parallelism = 1"), ResourceName: pool, ImportState: true, ImportStatePersist: true, ImportStateId: "v100"},
		planned("kubelet_max_parallelism = 1", plancheck.ExpectEmptyPlan()),
	}})
}

// Reservations that are empty are none: there is nothing to do for them, and no kubelet starts again.
func TestNoReservationsOfTheKubelets(t *testing.T) {
	for _, more := range []string{"", ", max_pods = 20"} {
		cloud := acctest.StartCloud(t)
		cli := acctest.StartCLI(t)
		const none = "kubelet_config = { kube_reserved = {}, system_reserved = {}%s }\n"
		restarts := func() (n int) {
			for _, e := range cloud.ACS.Journal() {
				if strings.HasSuffix(e.Target, "/node_config") {
					n++
				}
			}
			return n
		}
		cli.Write(t, poolWith(fmt.Sprintf(none, more)))
		cli.Apply(t, 1, 0, 0)
		cli.Unchanged(t)
		cli.Write(t, poolWith(fmt.Sprintf(none, more)+"tags = { team = \"a\" }"))
		cli.Apply(t, 0, 1, 0)
		assert.Zero(t, restarts())

		cli.Write(t, poolWith("kubelet_config = { kube_reserved = { cpu = \"1\" } }\ntags = { team = \"a\" }"))
		cli.Apply(t, 0, 1, 0)
		cli.Write(t, poolWith(fmt.Sprintf(none, more)+"tags = { team = \"a\" }"))
		cli.Apply(t, 0, 1, 0)
		cli.Unchanged(t)
		assert.Equal(t, 2, restarts())
		assert.Empty(t, record(t, cloud).NodeConfig.Kubelet.KubeReserved)
	}
}

func TestNodesThatRefusePods(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	for policy, warns := range map[string]bool{"best-effort": false, "restricted": true, "single-numa-node": true} {
		cli.Write(t, poolWith(fmt.Sprintf("kubelet_config = { topology_manager_policy = %q }", policy)))
		said := acctest.Unwrapped(cli.Must(t, "plan"))
		assert.Equal(t, warns, strings.Contains(said, "a node refuses a pod (TopologyAffinityError)"), policy)
	}
}
