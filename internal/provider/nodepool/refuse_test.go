package nodepool_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// poolWith is a pool of one node with more attributes, which replace those of the same name.
func poolWith(more string) string {
	attributes := []string{
		`name = "v100"`, `instance_type = "ecs.gn6v-c10g1.20xlarge"`, `size = 1`, `mode = "topology"`, `vswitch_ids = ["vsw-1"]`,
	}
	var lines []string
	for _, a := range attributes {
		name, _, _ := strings.Cut(a, " ")
		if !strings.HasPrefix(more, name+" ") {
			lines = append(lines, a)
		}
	}
	return fmt.Sprintf("resource \"gpuplan_node_pool\" \"v100\" {\n  %s\n  %s\n}\n", strings.Join(lines, "\n  "), more)
}

// Each mistake is found at plan and shown at the line of its attribute.
func TestBadInput(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	long := strings.Repeat("x", 64)
	labels := make([]string, 18)
	for i := range labels {
		labels[i] = fmt.Sprintf("l%d = \"x\"", i)
	}
	for name, test := range map[string]struct{ attribute, says string }{
		"unknown instance type":    {`instance_type = "ecs.gn6v-c10g1.20xlarg"`, `There is no GPU instance type "ecs.gn6v-c10g1.20xlarg". Did you mean ecs.gn6v-c10g1.20xlarge`},
		"mode that does not exist": {`mode = "topologie"`, `There is no mode "topologie" for GPU nodes. The modes are default, topology,`},
		"policy of whole GPUs":     {`gpu_policy = "spread"`, `gpu_policy says how parts of GPUs are filled, and nodes of mode "topology" offer whole GPUs. Remove gpu_policy, or choose one of the modes share,`},
		"unknown policy":           {`gpu_policy = "pack"`, `value must be one of:`},
		"negative size":            {`size = -1`, `must be between 0 and 2000, got: -1`},
		"mode as a label":          {`labels = { "ack.node.gpu.schedule" = "topology" }`, `The label ack.node.gpu.schedule is set by the attribute mode.`},
		"policy as a label":        {`labels = { "ack.node.gpu.placement" = "spread" }`, `The label ack.node.gpu.placement is set by the attribute gpu_policy.`},
		"the provider's label":     {`labels = { "gpuplan.dev/pool" = "x" }`, `The label gpuplan.dev/pool is set by the provider or by the platform.`},
		"the cloud's label":        {`labels = { "aliyun.accelerator/nvidia_name" = "x" }`, `The service refuses labels that begin with "aliyun".`},
		"label value too long":     {fmt.Sprintf(`labels = { team = %q }`, long), `must be no more than 63 bytes`},
		"label key":                {`labels = { "-team" = "x" }`, `must consist of alphanumeric characters`},
		"too many labels":          {fmt.Sprintf(`labels = { %s }`, strings.Join(labels, ", ")), `There are 18 labels; a pool can have 17, since the service takes 20 and the provider needs 3 itself.`},
		"Kubernetes' label":        {`labels = { "kubernetes.io/hostname" = "x" }`, `The label kubernetes.io/hostname is set by the provider or by the platform.`},
		"a taint twice":            {`taints = [{ key = "a", value = "x", effect = "NoSchedule" }, { key = "a", value = "y", effect = "NoSchedule" }]`, `there are two with key "a" and effect NoSchedule`},
		"taint effect":             {`taints = [{ key = "a", effect = "Never" }]`, `value must be one of:`},
		"no vSwitch":               {`vswitch_ids = []`, `must contain at least 1 elements`},
		"name too long":            {fmt.Sprintf(`name = %q`, long), `must be between 1 and 63`},
		"name that is no label":    {`name = "v100 pool"`, `a valid label must be`},
		"fallback with other GPUs": {`fallback_instance_types = ["ecs.gn6i-c24g1.24xlarge"]`, `ecs.gn6i-c24g1.24xlarge has 4 × Tesla T4 with 16 GiB`},
		"fallback that is first":   {`fallback_instance_types = ["ecs.gn6v-c10g1.20xlarge"]`, `ecs.gn6v-c10g1.20xlarge is the instance_type: leave it out here.`},
		"fallback twice":           {`fallback_instance_types = ["ecs.ebmgn6v.24xlarge", "ecs.ebmgn6v.24xlarge"]`, `This attribute contains duplicate values`},
		"two CPU policies":         {"kubelet_config = { cpu_manager_policy = \"none\" }\n cpu_policy = \"static\"", `write the same twice, or one of them.`},
		"reservation of GPUs":      {`kubelet_config = { kube_reserved = { "nvidia.com/gpu" = "1" } }`, `a kubelet reserves no "nvidia.com/gpu"`},
		"no quantity":              {`kubelet_config = { system_reserved = { cpu = "much" } }`, `cpu: "much" is not an amount`},
		"period by use":            {`period = 1`, `period is for instances that are subscribed to.`},
		"subscription for ever":    {`instance_charge_type = "PrePaid"`, `For how long are instances subscribed to?`},
		"13 months":                {"period = 13\n instance_charge_type = \"PrePaid\"", `value must be one of:`},
		"12 weeks":                 {"period = 12\n instance_charge_type = \"PrePaid\"\n period_unit = \"Week\"", `for 1 to 4 weeks, and period is 12.`},
		"4 weeks more":             {"auto_renew_period = 6\n instance_charge_type = \"PrePaid\"\n period = 1\n period_unit = \"Week\"", `for 1 to 3 weeks, and auto_renew_period is 6.`},
		"renewal of nothing":       {"auto_renew_period = 1\n auto_renew = false\n instance_charge_type = \"PrePaid\"\n period = 1", `auto_renew is not true`},
		"renewal of what is not":   {"auto_renew_period = 1\n instance_charge_type = \"PrePaid\"\n period = 1", `auto_renew is not true`},
		"nothing to fill in for":   {"compensate_with_on_demand = true\n multi_az_policy = \"PRIORITY\"", `compensate_with_on_demand is for multi_az_policy = "COST_OPTIMIZED"`},
		"mode of other GPUs":       {`mode = "mig"`, `Mode mig divides GPUs by MIG, which Tesla V100-SXM2-16GB does not have (ecs.gn6v-c10g1.20xlarge).`},
		"spot by subscription":     {"spot_strategy = \"SpotAsPriceGo\"\n instance_charge_type = \"PrePaid\"\n period = 1", `Spot instances are paid by use`},
		"spot without limit":       {`spot_strategy = "SpotWithPriceLimit"`, `What may a spot instance cost at most?`},
		"limit of another type":    {"spot_price_limit = { \"ecs.gn6i-c4g1.xlarge\" = \"1\" }\n spot_strategy = \"SpotWithPriceLimit\"", `ecs.gn6i-c4g1.xlarge is none of the pool's instance types: ecs.gn6v-c10g1.20xlarge.`},
		"limit without spot":       {`spot_price_limit = { "ecs.gn6v-c10g1.20xlarge" = "1" }`, `spot_price_limit is for spot_strategy = "SpotWithPriceLimit".`},
		"no price":                 {`spot_price_limit = { "ecs.gn6v-c10g1.20xlarge" = "cheap" }`, `"cheap" is no price of an hour`},
		"price that is no number":  {`spot_price_limit = { "ecs.gn6v-c10g1.20xlarge" = "NaN" }`, `"NaN" is no price of an hour`},
		"price in hexadecimal":     {`spot_price_limit = { "ecs.gn6v-c10g1.20xlarge" = "0x10" }`, `"0x10" is no price of an hour`},
		"log without a size":       {`kubelet_config = { container_log_max_size = "fifty" }`, `"fifty" is no size of a log`},
		"log of nothing":           {`kubelet_config = { container_log_max_size = "0" }`, `"0" is no size of a log`},
		"level of another disk":    {"system_disk_performance_level = \"PL1\"\n system_disk_category = \"cloud_ssd\"", `Disks of category cloud_ssd have no performance level`},
		"bursting disk":            {"system_disk_bursting_enabled = true\n system_disk_category = \"cloud_essd\"", `Only disks of category cloud_auto`},
		"IOPS of the disk":         {"system_disk_provisioned_iops = 100\n system_disk_category = \"cloud_essd\"", `Only disks of category cloud_auto`},
		"key without encryption":   {"system_disk_kms_key_id = \"k\"\n system_disk_encrypted = false", `The system disk is not encrypted.`},
		"level of a data disk":     {`data_disks = [{ category = "cloud_ssd", performance_level = "PL1" }]`, `Disks of category cloud_ssd have no performance level.`},
		"bursting data disk":       {`data_disks = [{ category = "cloud_ssd", bursting_enabled = true }]`, `for disks of category cloud_auto, and this one is cloud_ssd`},
		"key of a data disk":       {`data_disks = [{ encrypted = false, kms_key_id = "k" }]`, `The disk is not encrypted.`},
		"disk that is not mounted": {`data_disks = [{ mount_target = "/mnt" }]`, `for disks that the service formats.`},
		"eleven data disks":        {`data_disks = [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}]`, `at most 10 elements`},
		"no target":                {`private_pool = { match_criteria = "Target" }`, `set id to the ID of the elasticity assurance`},
		"target that is not used":  {`private_pool = { match_criteria = "Open", id = "eap-1" }`, `id is for match_criteria = "Target", and it is "Open".`},
		"no reservations":          {`resource_pool = { strategy = "PrivatePoolOnly" }`, `set private_pool_ids to the IDs`},
		"reservations twice":       {"resource_pool = { strategy = \"None\" }\n private_pool = { match_criteria = \"Open\" }", `cannot be specified when`},
		"encoded script":           {`user_data = base64encode("#!/bin/sh")`, `This is the base64 text of a script.`},
		"the cloud's tag":          {`tags = { "acs:x" = "" }`, `begins with "acs:", which the service refuses`},
		"a tag with an address":    {`tags = { team = "http://team" }`, `contains "http://", which the service refuses`},
		"the provider's tag":       {`tags = { "gpuplan.dev/owner" = "me" }`, `The tag gpuplan.dev/owner is the provider's own: leave it out.`},
		"unknown CPU policy":       {`cpu_policy = "fast"`, `value must be one of:`},
		"disk too small":           {`system_disk_size = 5`, `must be between 20 and 2048`},
	} {
		t.Run(name, func(t *testing.T) {
			attribute, _, _ := strings.Cut(test.attribute, " ")
			cli.Refuses(t, poolWith(test.attribute), acctest.SayingAt(attribute, test.says))
		})
	}
}

// Terraform does not show the line of what is within an attribute.
func TestBadInputWithinAttributes(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	for says, attribute := range map[string]string{
		"Attribute data_disks[0].mount_target must be an absolute path": `data_disks = [{ auto_format = true, mount_target = "mnt" }]`,
		"Attribute management.vul_level must be asap, later or nntf":    `management = { enabled = true, vul_level = "all" }`,
	} {
		cli.Refuses(t, poolWith(attribute), acctest.Saying(says))
	}
}

// What stays because it is left out may not go with what is written.
func TestSettingsThatDoNotGoTogether(t *testing.T) {
	acctest.StartCloud(t)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{Config: poolWith("system_disk_category = \"cloud_essd\"\n system_disk_performance_level = \"PL1\"")},
		{Config: poolWith("system_disk_category = \"cloud_auto\""), ExpectError: acctest.Saying(`it is PL1. Set system_disk_performance_level = ""`)},
		{Config: poolWith("system_disk_category = \"cloud_auto\"\n system_disk_performance_level = \"\"")},
	}})
}

// The service does not change the role of a pool that exists.
func TestRoleReplacesThePool(t *testing.T) {
	acctest.StartCloud(t)
	planned := func(config string, action plancheck.ResourceActionType) resource.TestStep {
		return resource.TestStep{Config: poolWith(config), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(pool, action)}}}
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{Config: poolWith("")},
		planned(`ram_role_name = "KubernetesWorkerRole-local"`, plancheck.ResourceActionNoop), // which the service has chosen
		planned(`ram_role_name = "trainers"`, plancheck.ResourceActionDestroyBeforeCreate),
		planned(`ram_role_name = "trainers"`, plancheck.ResourceActionNoop),
		planned("", plancheck.ResourceActionNoop),
		planned(`ram_role_name = ""`, plancheck.ResourceActionNoop),
	}})
}

func TestModeThatTheRegionDoesNotOffer(t *testing.T) {
	acctest.StartCloud(t)
	t.Setenv("ALIBABA_CLOUD_REGION_ID", "cn-wulanchabu")
	acctest.StartCLI(t).Refuses(t, poolWith(`mode = "core_mem"`), acctest.Saying("Region cn-wulanchabu does not offer mode core_mem; these do:"))
}

func TestModeInARegionThatNobodyKnows(t *testing.T) {
	acctest.StartCloud(t)
	t.Setenv("ALIBABA_CLOUD_REGION_ID", "cn-nanjing")
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(`mode = "core_mem"`))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "Whether region cn-nanjing offers mode core_mem is not known here")
}

// What the documents demand of the cluster for a mode fails at plan.
func TestModesNeedVersions(t *testing.T) {
	for name, test := range map[string]struct {
		mode, kubernetes, spec string
		addons                 map[string]string
		says                   string
		clusterType            string
	}{
		"no Pro cluster":      {"core_mem", "1.30.3-aliyun.1", "ack.standard", nil, "Mode core_mem works in ACK Pro clusters, and cluster " + acctest.ClusterID + " is of the specification ack.standard.", ""},
		"a dedicated cluster": {"core_mem", "1.30.3-aliyun.1", "", nil, "Mode core_mem works in ACK Pro clusters, and cluster " + acctest.ClusterID + " is of the type Kubernetes.", "Kubernetes"},
		"topology in it":      {"topology", "1.30.3-aliyun.1", "", nil, "", "Kubernetes"},
		"an older chart":      {"core_mem", "1.30.3-aliyun.1", "", map[string]string{"ack-ai-installer": "1.1.9"}, "Mode core_mem needs ack-ai-installer 1.2.0 or newer, and cluster " + acctest.ClusterID + " has 1.1.9", ""},
		"before shared GPUs":  {"core_mem", "1.18.8-aliyun.1", "", nil, "Mode core_mem needs kubernetes 1.20 or newer, and cluster " + acctest.ClusterID + " has 1.18.8-aliyun.1", ""},
		"an older cluster":    {"disabled", "1.32.3-aliyun.1", "", nil, "Mode disabled needs kubernetes 1.34 or newer, and cluster " + acctest.ClusterID + " has 1.32.3-aliyun.1", ""},
		"an older scheduler":  {"core_mem", "1.28.3-aliyun.1", "", map[string]string{"kube-scheduler": "v1.28.1-aliyun-5.5-1"}, "", ""},
		"mode share":          {"share", "1.30.3-aliyun.1", "ack.standard", map[string]string{"ack-ai-installer": "1.1.9"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t, func(o *acsfake.Options) {
				o.KubernetesVersion, o.ClusterSpec, o.ClusterType = test.kubernetes, test.spec, test.clusterType
				if test.addons == nil {
					return
				}
				o.State = &acsfake.State{Version: acsfake.StateVersion}
				for addon, version := range test.addons {
					o.State.Addons = append(o.State.Addons, &acsfake.AddonRecord{Name: addon, Version: version, State: acs.AddonActive})
				}
			})
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith(fmt.Sprintf("mode = %q", test.mode)))
			said, err := cli.Run("plan")
			said = acctest.Unwrapped(said)
			assert.Equal(t, test.says == "", err == nil, said)
			assert.Contains(t, said, test.says)
			assert.Equal(t, name == "an older scheduler", strings.Contains(said, "ACK's scheduler is too old for the mode"))
		})
	}
}

// The add-on that offers the GPUs of nodes in ACK's own modes is there once the plan is carried out, or the plan says so.
func TestModesNeedTheirAddon(t *testing.T) {
	const installer = "resource \"gpuplan_addon\" \"x\" {\n  name = \"ack-ai-installer\"\n}\n"
	const after = "\n  depends_on = [gpuplan_addon.x]"
	for name, test := range map[string]struct {
		mode, config, pool string
		addons             []string
		says               string
	}{
		"computing power":  {"core_mem", "", "", nil, "Mode core_mem needs the add-on ack-ai-installer, which cluster " + acctest.ClusterID + " lacks (Alibaba Cloud: allocate computing power by scheduling shared GPU): "},
		"topology":         {"topology", "", "", nil, "Mode topology needs the add-on ack-ai-installer, which cluster " + acctest.ClusterID + " lacks (Alibaba Cloud: activate GPU topology-aware scheduling"},
		"memory alone":     {"share", "", "", nil, "Mode share needs the add-on ack-ai-installer, which cluster " + acctest.ClusterID + " lacks (Alibaba Cloud: allocate computing power by scheduling shared GPU): "},
		"isolated memory":  {"cgpu", "", "", nil, "Mode cgpu needs the add-on ack-ai-installer"},
		"by MPS":           {"mps", "", "", nil, "Mode mps needs the add-on ack-ai-installer"},
		"regular GPUs":     {"default", "", "", nil, ""},
		"installed":        {"topology", "", "", []string{"ack-ai-installer"}, ""},
		"another add-on":   {"topology", "", "", []string{"ack-arena"}, "name it in depends_on of the node pool"},
		"of the same plan": {"core_mem", installer, after, nil, ""},
		"by the node agent": {"topology", "resource \"gpuplan_node_agent\" \"x\" {\n  image = \"agent:1\"\n  device_plugins = true\n}\n",
			"\n  depends_on = [gpuplan_node_agent.x]", nil, ""},
		"beside a node agent": {"topology", "resource \"gpuplan_node_agent\" \"x\" {\n  image = \"agent:1\"\n}\n",
			"\n  depends_on = [gpuplan_node_agent.x]", nil, "Mode topology needs the add-on ack-ai-installer"},
	} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t, func(o *acsfake.Options) {
				o.State = &acsfake.State{Version: acsfake.StateVersion}
				for _, addon := range test.addons {
					o.State.Addons = append(o.State.Addons, &acsfake.AddonRecord{Name: addon, Version: "1.12.0", State: acs.AddonActive})
				}
			})
			cli := acctest.StartCLI(t)
			cli.Write(t, test.config+poolWith(fmt.Sprintf("mode = %q", test.mode)+test.pool))
			said := acctest.Unwrapped(cli.Must(t, "plan"))
			assert.Equal(t, test.says != "", strings.Contains(said, "Mode lacks its add-on"), said)
			assert.Contains(t, said, test.says)
		})
	}
}

// The version counts that an add-on has once the plan is carried out, where the pool comes after it.
func TestModesNeedVersionsOfThePlan(t *testing.T) {
	brings := func(addon, more string) string {
		return fmt.Sprintf("resource \"gpuplan_addon\" \"x\" {\n  name = %q\n  %s\n}\n", addon, more)
	}
	const after, before = "\n  depends_on = [gpuplan_addon.x]", "\n  depends_on = [gpuplan_node_pool.v100]"
	const refused = "Mode core_mem needs ack-ai-installer 1.2.0 or newer, and cluster " + acctest.ClusterID + " has "
	for name, test := range map[string]struct{ config, pool, says string }{
		"upgraded":                  {brings("ack-ai-installer", `version = "1.12.0"`), after, ""},
		"not upgraded enough":       {brings("ack-ai-installer", `version = "1.1.10"`), after, refused + "1.1.10"},
		"left as it is":             {brings("ack-ai-installer", ""), after, refused + "1.1.9"},
		"upgraded after the pool":   {brings("ack-ai-installer", `version = "1.12.0"`+before), "", refused + "1.1.9"},
		"upgraded by someone, once": {"", "", "Upgrade it, for example with version of a gpuplan_addon, and name it in depends_on of the node pool, so that its version counts."},
		"the scheduler, too": {brings("ack-ai-installer", `version = "1.12.0"`) + "resource \"gpuplan_scheduler_config\" \"x\" {\n  version = \"v1.28.12-aliyun-6.6.3.d9ea6ebb\"\n}\n",
			"\n  depends_on = [gpuplan_addon.x, gpuplan_scheduler_config.x]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t, func(o *acsfake.Options) {
				o.KubernetesVersion = "1.28.3-aliyun.1"
				o.State = &acsfake.State{Version: acsfake.StateVersion}
				for addon, version := range map[string]string{"ack-ai-installer": "1.1.9", contract.KubeScheduler: "v1.28.1-aliyun-5.5-1"} {
					o.State.Addons = append(o.State.Addons, &acsfake.AddonRecord{Name: addon, Version: version, State: acs.AddonActive})
				}
			})
			cli := acctest.StartCLI(t)
			cli.Write(t, test.config+poolWith(`mode = "core_mem"`+test.pool))
			said, err := cli.Run("plan")
			said = acctest.Unwrapped(said)
			assert.Equal(t, test.says == "", err == nil, said)
			assert.Contains(t, said, test.says)
			if err == nil {
				assert.Equal(t, name == "upgraded", strings.Contains(said, "ACK's scheduler is too old for the mode"), said)
			}
		})
	}
}

func TestTwoPoolsOfOneName(t *testing.T) {
	acctest.StartCloud(t)
	two := poolWith("") + strings.Replace(poolWith(""), `"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "other"`, 1)
	acctest.StartCLI(t).Refuses(t, two, acctest.Saying(`Another gpuplan_node_pool or gpuplan_node_gpu of this configuration is called "v100" too.`))
}

func TestPoolThatTerraformDoesNotKnow(t *testing.T) {
	acctest.StartCloud(t)
	other := acctest.Owner("b") + strings.Replace(poolWith(""), `"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "other"`, 1)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: acctest.Owner("a") + poolWith("")},
			{Config: acctest.Forgotten("gpuplan_node_pool.v100")},
			{Config: other, PlanOnly: true, ExpectError: acctest.Saying("is right only once that configuration has given it up (`terraform state rm` there")},
			{Config: other, PlanOnly: true, ExpectError: acctest.Saying(`another Terraform configuration manages it, with the owner "a" (this one is "b"). Change it there, or choose another name here; `)},
			{Config: other, ResourceName: "gpuplan_node_pool.other", ImportState: true, ImportStateId: "v100", ImportStatePersist: true},
		},
	})
}

func TestImportOfNothing(t *testing.T) {
	acctest.StartCloud(t)
	for id, says := range map[string]string{
		"a100":              `has no node pool named "a100". Write the name of one that it has`,
		"c-other/np1":       `The provider is configured for cluster c-acctest, and the import names cluster c-other.`,
		"c-acctest/np/1":    `does not name a node pool: write CLUSTER_ID/NODEPOOL_ID, or the name of the pool.`,
		"c-acctest/np-gone": `Cannot import non-existent remote object`,
	} {
		t.Run(id, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps:                    []resource.TestStep{{Config: poolWith(""), ResourceName: pool, ImportState: true, ImportStateId: id, ExpectError: acctest.Saying(says)}},
			})
		})
	}
}

// A change that takes nodes away from running jobs is refused at plan, at the attribute
// that makes it, and names the jobs.
func TestRunningJobsAreNotDisplaced(t *testing.T) {
	const node = "cn-hangzhou.10.0.1.1"
	anyPod := acctest.GangPod("trainer", "trainer-0", node, 0, 1)
	selecting := acctest.GangPod("trainer", "trainer-0", node, 0, 1)
	selecting.Spec.NodeSelector = map[string]string{"team": "a"}
	before := poolWith(`labels = { team = "a" }`)
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		after     string
		attribute string
		says      string
		replaces  bool // consent must be there before
	}{
		"size":               {anyPod, poolWith("size = 0\n  labels = { team = \"a\" }"), "size", "shrinks node pool v100 from 1 to 0 nodes (the cloud chooses which ones go)", false},
		"mode":               {anyPod, poolWith("mode = \"default\"\n  labels = { team = \"a\" }"), "mode", "switches node pool v100 from mode topology to default", false},
		"mode by a new pool": {anyPod, poolWith("mode = \"core_mem\"\n  labels = { team = \"a\" }"), "mode", "replaces node pool v100 from mode topology to core_mem", true},
		"instance type":      {anyPod, poolWith("instance_type = \"ecs.ebmgn6v.24xlarge\"\n  labels = { team = \"a\" }"), "instance_type", "replaces node pool v100", true},
		"name":               {anyPod, poolWith("name = \"other\"\n  labels = { team = \"a\" }"), "name", "replaces node pool v100", true},
		"label":              {selecting, poolWith(`labels = { team = "b" }`), "labels", "changes labels of node pool v100 that jobs select their nodes by (team)", false},
		"taint":              {anyPod, poolWith("taints = [{ key = \"out\", effect = \"NoExecute\" }]\n  labels = { team = \"a\" }"), "taints", "adds taints to node pool v100 that evict jobs without a toleration", false},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			consent := func(config string) string {
				return strings.TrimSuffix(config, "}\n") + "  allow_disruption = true\n}\n"
			}
			refused := func(advice string) *regexp.Regexp {
				return acctest.SayingAt(test.attribute, "The plan "+test.says+", and there are running jobs that would lose their nodes: default/trainer (on "+node+"). "+
					"Wait until they have finished, delete them first, or set allow_disruption = true"+advice)
			}
			cli.Write(t, before)
			cli.Apply(t, 1, 0, 0)
			cloud.Put(t, test.pod)
			if test.replaces {
				cli.Refuses(t, test.after, refused(" and apply that before."))
				cli.Refuses(t, consent(test.after), refused(" and apply that before."))
			} else {
				cli.Refuses(t, test.after, refused("."))
				cli.Write(t, consent(test.after))
				assert.Contains(t, cli.Must(t, "plan"), "Plan:")
			}
			cli.Write(t, consent(before))
			cli.Apply(t, 0, 1, 0)
			cli.Unchanged(t)
			cli.Write(t, consent(test.after))
			assert.Contains(t, cli.Must(t, "plan"), "Plan:")
			cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Pod"), "default", test.pod.Name)
			cli.Write(t, before)
			cli.Apply(t, 0, 1, 0)
			cli.Unchanged(t)
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
}

// A replacement deletes the pool as it is in the state: consent that comes with the change
// is none, and the plan says so before the apply would.
func TestConsentThatComesWithAReplacement(t *testing.T) {
	cloud := acctest.StartCloud(t)
	pod := acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1)
	change := poolWith("mode = \"core_mem\"\n  allow_disruption = true")
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: poolWith("")},
			{Config: change, PreConfig: func() { cloud.Put(t, pod) }, PlanOnly: true,
				ExpectError: acctest.SayingAt("mode", "or set allow_disruption = true and apply that before.")},
			{Config: poolWith("allow_disruption = true")},
			{Config: change},
		},
	})
}

// Nobody changed the pool, and it is replaced all the same.
func TestReplaceOptionUnderARunningJob(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Must(t, "apply", "-auto-approve")
	cloud.Put(t, acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1))

	output, err := cli.Run("plan", "-replace="+pool)
	require.Error(t, err, output)
	require.Contains(t, acctest.Unwrapped(output), "The plan replaces node pool v100, and there are running jobs that would lose their nodes: default/trainer")
	cli.Must(t, "plan")

	cli.Write(t, poolWith("allow_disruption = true"))
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "plan", "-replace="+pool)
}

// A pool stays in its cluster, whichever the provider is told of later.
func TestPoolOfAnotherCluster(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Must(t, "apply", "-auto-approve")
	t.Setenv("GPUPLAN_CLUSTER_ID", "c-other")
	said, err := cli.Run("plan")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "is one of cluster "+acctest.ClusterID+", and the provider is configured for cluster c-other (cluster_id)")
	said, err = cli.Run("plan", "-destroy")
	require.Error(t, err, "jobs on its nodes would be looked for in the other cluster")
	assert.Contains(t, acctest.Unwrapped(said), "Set cluster_id back")
	t.Setenv("GPUPLAN_CLUSTER_ID", acctest.ClusterID)
	cli.Must(t, "destroy", "-auto-approve")
}

// The cluster of a pool may be in a region that the provider is not told of any more: the pool is not made a second time without a word.
func TestPoolOfAClusterThatIsNotFound(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Must(t, "apply", "-auto-approve")
	name := filepath.Join(cli.Dir, "terraform.tfstate")
	state, err := os.ReadFile(name)
	require.NoError(t, err)
	elsewhere := regexp.MustCompile(`("id": *")`+acctest.ClusterID+"/").ReplaceAll(state, []byte("${1}c-elsewhere/")) // OpenTofu writes no spaces
	require.NotEqual(t, string(state), string(elsewhere))
	require.NoError(t, os.WriteFile(name, elsewhere, 0o600))
	said, _ := cli.Run("plan")
	assert.Contains(t, acctest.Unwrapped(said), "Node pool v100 counts as gone: it is one of cluster c-elsewhere, which region cn-hangzhou does not have, "+
		"and the provider is configured for cluster "+acctest.ClusterID+" (cluster_id). Where that cluster is in another region, do not apply")
	said, err = cli.Run("destroy", "-auto-approve", "-refresh=false")
	require.Error(t, err, "it would be forgotten")
	assert.Contains(t, acctest.Unwrapped(said), "Node pool v100 is one of cluster c-elsewhere")
}

// What a plan may do to running jobs because its user agreed to that, it names.
func TestDisruptionThatIsAllowedIsNamed(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith("allow_disruption = true"))
	cli.Must(t, "apply", "-auto-approve")
	cloud.Put(t, acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1))
	cli.Write(t, poolWith("size = 0\n  allow_disruption = true"))
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Equal(t, 1, strings.Count(said, "The plan shrinks node pool v100 from 1 to 0 nodes (the cloud chooses which ones go), which allow_disruption permits. "+
		"Jobs run there, of which those that stay may lose their nodes: default/trainer (on cn-hangzhou.10.0.1.1)."), said)
	cli.Write(t, poolWith("allow_disruption = true"))
	cli.Must(t, "apply", "-auto-approve")
	cloud.Put(t, acctest.GangPod("other", "other-0", cloud.NodeNames(t)[0], 0, 1))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-destroy", "-auto-approve")), "which allow_disruption permits, and with its nodes what runs there: default/other")
}

// A job that waits may start on nodes that a plan gives up before they go; then the apply would
// fail halfway. Terraform leaves out the warnings of a replacement that nobody but its user asks for.
func TestJobsThatWaitForNodesThatGo(t *testing.T) {
	const (
		says   = "Jobs that wait may start on its nodes before that: default/waiter."
		advice = "or on the pool set allow_disruption = true, and apply that before if the plan replaces or deletes it."
	)
	for name, test := range map[string]struct {
		config string
		option []string
		fails  bool
		want   string
	}{
		"shrunk":            {config: poolWith("size = 0"), want: "The plan shrinks node pool v100 from 1 to 0 nodes (the cloud chooses which ones go). " + says},
		"replaced":          {config: poolWith("mode = \"core_mem\""), want: "The plan replaces node pool v100 from mode topology to core_mem. " + says},
		"replaced by order": {config: poolWith(""), option: []string{"-replace=" + pool}, fails: true, want: "The plan replaces node pool v100. " + says},
		"deleted":           {config: "# nothing left", want: "The plan deletes node pool v100. " + says},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith(""))
			cli.Must(t, "apply", "-auto-approve")
			waiter := acctest.GangPod("waiter", "waiter-0", "", 0)
			waiter.Annotations = nil
			waiter.Spec.SchedulerName, waiter.Status.Phase = contract.SchedulerName, corev1.PodPending
			cloud.Put(t, waiter)
			cli.Write(t, test.config)
			output, err := cli.Run(append([]string{"plan"}, test.option...)...)
			require.Equal(t, test.fails, err != nil, output)
			require.Contains(t, acctest.Unwrapped(output), test.want)
			require.Contains(t, acctest.Unwrapped(output), advice)

			cli.Write(t, poolWith("allow_disruption = true"))
			cli.Must(t, "apply", "-auto-approve")
			cli.Write(t, strings.Replace(test.config, "}", "  allow_disruption = true\n}", 1))
			require.NotContains(t, cli.Must(t, append([]string{"plan"}, test.option...)...), "Jobs that wait")
		})
	}
}

func TestDeletionUnderARunningJob(t *testing.T) {
	cloud := acctest.StartCloud(t)
	pod := acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: poolWith("")},
			{Config: `# nothing left`, PreConfig: func() { cloud.Put(t, pod) }, ExpectError: acctest.Saying("The plan deletes node pool v100, and there are running jobs")},
			{Config: poolWith("allow_disruption = true")},
			{Config: `# nothing left`},
		},
	})
}

// Whether a job of this provider goes in the same plan is not known when the pool is
// planned; the plan passes, and the apply refuses as long as the job runs. A job with the
// pool's stamp counts as one, whatever the stamp is now: both may have been imported.
func TestDeletionUnderAJobOfThisProvider(t *testing.T) {
	for name, test := range map[string]struct{ created, now, label, value string }{
		"without a stamp":       {"", "", contract.ManagedByLabel, contract.ManagedByValue},
		"with the pool's stamp": {acctest.Owner("a"), acctest.Owner("b"), contract.OwnerLabel, "a"},
		"with the stamp of now": {acctest.Owner("a"), acctest.Owner("b"), contract.OwnerLabel, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			pod := acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1)
			pod.Labels[contract.ManagedByLabel] = contract.ManagedByValue
			pod.Labels[test.label] = test.value
			nothing := test.now + "# nothing left"
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{
					{Config: test.created + poolWith("")},
					{Config: nothing, PlanOnly: true, ExpectNonEmptyPlan: true, PreConfig: func() { cloud.Put(t, pod) }},
					{Config: nothing, ExpectError: acctest.Saying("running jobs that would lose their nodes: default/trainer")},
					{Config: nothing, PreConfig: func() { cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Pod"), "default", "trainer-0") }},
				},
			})
		})
	}
}

// Two pools cannot have one name, so create_before_destroy replaces nothing; Terraform says that it does.
func TestReplacementBesideItsNamesake(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith("lifecycle {\n    create_before_destroy = true\n  }"))
	cli.Must(t, "apply", "-auto-approve")
	before := cloud.NodeNames(t)
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve", "-replace="+pool))
	assert.Contains(t, said, "of this configuration exists, so it goes on with its nodes, changed where it differed. "+
		"If it was to be replaced, with create_before_destroy, give the new one another name")
	assert.Equal(t, before, cloud.NodeNames(t))
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}
