package addon_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const (
	schedulerAt  = "gpuplan_scheduler_config.x"
	controllerAt = "gpuplan_erdma_controller.x"
)

func scheduler(more string) string {
	return "resource \"gpuplan_scheduler_config\" \"x\" {\n  " + more + "\n}\n"
}

func controller(more string) string {
	return "resource \"gpuplan_erdma_controller\" \"x\" {\n  " + more + "\n}\n"
}

func empty(config string) resource.TestStep {
	return resource.TestStep{Config: config, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}}
}

// The parameters of ACK's scheduler that are given are the resource's, and no others; what they were comes back.
func TestSchedulerConfig(t *testing.T) {
	s := start(t)
	const name = "kube-scheduler"
	s.set(name, `{"binpackPluginWeight":7,"percentageOfNodesToScore":40,"featureGates":{"A":true,"B":false}}`)
	was := s.config(name)
	all := scheduler(`
  enable_reservation           = true
  preemption_algorithm         = "ElasticQuota"
  pod_max_backoff_seconds      = 60
  binpack_plugin_weight        = 9
  binpack_resource_weight      = { "nvidia.com/gpu" = 2, cpu = 1 }
  load_aware_aggregation       = "p95"
  feature_gates                = { B = true }
  extra_config                 = jsonencode({ loadAwareThreshold = [{ resourceName = "cpu", threshold = 80 }] })`)
	one := scheduler("enable_reservation = true")
	is := func(want map[string]any) resource.TestCheckFunc {
		return func(*terraform.State) error {
			assert.Equal(t, want, s.config(name))
			return nil
		}
	}
	with := func(more map[string]any) map[string]any {
		out := map[string]any{}
		for _, m := range []map[string]any{was, more} {
			for key, value := range m {
				out[key] = value
			}
		}
		return out
	}
	reserves := with(map[string]any{"enableReservation": true})
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		CheckDestroy:             is(with(map[string]any{"podMaxBackoffSeconds": 30.0})), // another's stays
		Steps: []resource.TestStep{
			{Config: all, Check: is(with(map[string]any{
				"enableReservation": true, "preemptionAlgorithm": "ElasticQuota", "podMaxBackoffSeconds": 60.0, "binpackPluginWeight": 9.0,
				"binpackResourceWeight":                   []any{map[string]any{"resourceName": "cpu", "resourceWeight": 1.0}, map[string]any{"resourceName": "nvidia.com/gpu", "resourceWeight": 2.0}},
				"loadAwareAggregatedUsageAggregationType": "p95", "featureGates": map[string]any{"A": true, "B": true},
				"loadAwareThreshold": []any{map[string]any{"resourceName": "cpu", "threshold": 80.0}},
			})), ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(schedulerAt, tfjsonpath.New("installed"), knownvalue.Bool(false)),
				statecheck.ExpectKnownValue(schedulerAt, tfjsonpath.New("id"), knownvalue.StringExact(acctest.ClusterID+"/kube-scheduler")),
				statecheck.ExpectKnownValue(schedulerAt, tfjsonpath.New("previous_config"), knownvalue.StringExact(
					`{"binpackPluginWeight":7,"binpackResourceWeight":null,"enableReservation":false,"featureGates":{"B":false},"loadAwareAggregatedUsageAggregationType":null,"loadAwareThreshold":null,"podMaxBackoffSeconds":null,"preemptionAlgorithm":"Auto"}`)),
			}},
			empty(all),
			{Config: all, PreConfig: func() {
				s.set(name, `{"binpackResourceWeight":[{"resourceName":"nvidia.com/gpu","resourceWeight":2},{"resourceName":"cpu","resourceWeight":1}],"percentageOfNodesToScore":40}`)
			}, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}}, // the order says nothing
			{Config: one, Check: is(reserves)}, // gives the others back
			empty(one),
			{Config: one, PreConfig: func() { s.set(name, `{"enableReservation":false,"podMaxBackoffSeconds":30}`) }, // drift, and another's
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(schedulerAt, plancheck.ResourceActionUpdate)}},
				Check:            is(with(map[string]any{"enableReservation": true, "podMaxBackoffSeconds": 30.0}))},
			{Config: one, ResourceName: schedulerAt, ImportState: true, ImportStateId: name, ImportStateKind: resource.ImportBlockWithID},
			{Config: one, ResourceName: schedulerAt, ImportState: true, ImportStateId: acctest.ClusterID + "/" + name, ImportStateKind: resource.ImportBlockWithID},
			{ResourceName: schedulerAt, ImportState: true, ImportStateId: "ack-arena", ExpectError: acctest.Saying(`"ack-arena" does not name an add-on of cluster ` + acctest.ClusterID + " that gpuplan_scheduler_config configures")},
		},
	})
}

// An import reads what there is and owns nothing: where the configuration says the same of a part of it, nothing is left to do,
// whoever changes the rest. The first update takes note of what was there, changes what differs, and leaves the others theirs.
func TestImportedAddon(t *testing.T) {
	const same, other = `{"featureGates":{"A":true},"podMaxBackoffSeconds":"","zone":{"a":1}}`, `{"featureGates":{"A":true},"zone":{"a":2}}`
	for name, test := range map[string]struct{ address, nothing, part, all, more, less string }{
		"by name": {
			address, addon("kube-scheduler", ""), addon("kube-scheduler", `config = "{ \"enableReservation\": true }"`),
			addon("kube-scheduler", `config = jsonencode({ zone = { a = 1 }, featureGates = { A = true }, enableReservation = true })`),
			addon("kube-scheduler", `config = jsonencode({ enableReservation = true, podMaxBackoffSeconds = 60 })`),
			addon("kube-scheduler", `config = jsonencode({ podMaxBackoffSeconds = 60 })`),
		},
		"by attributes": {
			schedulerAt, scheduler(""), scheduler("enable_reservation = true"),
			scheduler("enable_reservation = true\n  feature_gates = { A = true }\n  extra_config = jsonencode({ zone = { a = 1 } })"),
			scheduler("enable_reservation = true\n  pod_max_backoff_seconds = 60"),
			scheduler("pod_max_backoff_seconds = 60"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.set("kube-scheduler", `{"enableReservation":true}`)
			s.set("kube-scheduler", same)
			cli := acctest.StartCLI(t)
			for _, config := range []string{test.all, test.part, test.nothing} {
				cli.Write(t, config)
				cli.Must(t, "import", test.address, "kube-scheduler")
				cli.Unchanged(t)
				cli.Must(t, "state", "rm", test.address)
			}
			cli.Must(t, "import", test.address, "kube-scheduler")
			for _, config := range []string{test.all, test.part, test.nothing} {
				cli.Write(t, config)
				cli.Unchanged(t)
			}
			s.set("kube-scheduler", other)
			cli.Unchanged(t)
			assert.Contains(t, cli.Must(t, "apply", "-auto-approve", "-refresh-only"), "zone")
			cli.Write(t, strings.Replace(test.part, "\n}", "\n  keep_on_destroy = true\n}", 1))
			cli.Apply(t, 0, 1, 0) // which is about none of them
			assert.Equal(t, map[string]any{"a": 2.0}, s.config("kube-scheduler")["zone"])

			cli.Write(t, test.more)
			cli.Apply(t, 0, 1, 0)
			cli.Unchanged(t)
			is := func(reservation, backoff any) {
				t.Helper()
				c := s.config("kube-scheduler")
				assert.Equal(t, reservation, c["enableReservation"])
				assert.Equal(t, backoff, c["podMaxBackoffSeconds"])
				assert.Equal(t, map[string]any{"A": true}, c["featureGates"])
				assert.Equal(t, map[string]any{"a": 2.0}, c["zone"])
			}
			is(true, 60.0)
			cli.Write(t, test.less)
			cli.Apply(t, 0, 1, 0)
			is(true, 60.0)
			cli.Must(t, "destroy", "-auto-approve")
			is(true, nil)
		})
	}
}

// The controller of eRDMA devices is installed with its driver, and goes with the resource.
func TestERDMAController(t *testing.T) {
	s := start(t)
	const name = "ack-erdma-controller"
	agent := func(driver string, all bool) resource.TestCheckFunc {
		return func(*terraform.State) error {
			assert.Equal(t, map[string]any{"preferDriver": driver, "allocateAllDevices": all}, s.config(name)["agent"])
			return nil
		}
	}
	ofed := controller("driver = \"ofed\"\n  allocate_all_devices = true")
	compat := controller(`driver = "compat"`)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		CheckDestroy: func(*terraform.State) error {
			assert.Nil(t, s.config(name))
			return nil
		},
		Steps: []resource.TestStep{
			{Config: ofed, Check: agent("ofed", true), ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(controllerAt, tfjsonpath.New("installed"), knownvalue.Bool(true)),
				statecheck.ExpectKnownValue(controllerAt, tfjsonpath.New("state"), knownvalue.StringExact("active")),
			}},
			empty(ofed),
			{Config: compat, Check: agent("compat", false)}, // its default is back
			{Config: compat, PreConfig: func() { s.set(name, `{"agent":{"preferDriver":"ofed","allocateAllDevices":true}}`) }, Check: agent("compat", true)},
			empty(compat),
			{Config: compat, ResourceName: controllerAt, ImportState: true, ImportStateId: name, ImportStateKind: resource.ImportBlockWithID},
		},
	})
}

// What the add-ons do not take fails at plan, at its attribute.
func TestTypedSettingsAreChecked(t *testing.T) {
	start(t)
	cli := acctest.StartCLI(t)
	for name, test := range map[string]struct{ config, at, says string }{
		"too long a time":         {scheduler("pod_max_backoff_seconds = 100001"), "pod_max_backoff_seconds", "pod_max_backoff_seconds value must be between 1 and 100000"},
		"more than all nodes":     {scheduler("percentage_of_nodes_to_score = 101"), "percentage_of_nodes_to_score", "value must be between 0 and 100"},
		"no algorithm":            {scheduler(`preemption_algorithm = "Gang"`), "preemption_algorithm", `value must be one of: ["Default" "ElasticQuota" "Auto" "None"]`},
		"no aggregation":          {scheduler(`load_aware_aggregation = "p42"`), "load_aware_aggregation", "value must be one of"},
		"no weights":              {scheduler("binpack_resource_weight = {}"), "binpack_resource_weight", "map must contain at least 1 elements"},
		"more than the schema":    {scheduler("binpack_plugin_weight = 100001"), "binpack_plugin_weight", "Add-on kube-scheduler does not take this: binpack_plugin_weight: maximum: got 100,001, want 100,000."},
		"an attribute beside":     {scheduler(`extra_config = jsonencode({ enableReservation = true })`), "extra_config", "extra_config.enableReservation is what the attribute enable_reservation is for: write it there."},
		"one of the driver":       {controller(`extra_config = jsonencode({ agent = { preferDriver = "ofed" } })`), "extra_config", "extra_config.agent.preferDriver is what the attribute driver is for"},
		"a wrong type beside":     {scheduler(`extra_config = jsonencode({ loadAwareThreshold = 80 })`), "extra_config", "extra_config.loadAwareThreshold: got number, want array."},
		"nothing beside":          {scheduler(`extra_config = jsonencode({ loadAwareThreshold = [] })`), "extra_config", "extra_config.loadAwareThreshold is empty"},
		"no object":               {scheduler(`extra_config = "[]"`), "extra_config", "extra_config is no JSON object: write it as extra_config = jsonencode({ loadAwareThreshold"},
		"no driver":               {controller(`driver = "roce"`), "driver", `driver value must be one of: ["default" "compat" "ofed"]`},
		"beside, known at plan":   {"resource \"terraform_data\" \"c\" {\n  input = \"enableReservation\"\n}\n" + scheduler(`extra_config = jsonencode({ (terraform_data.c.input) = true })`), "extra_config", "extra_config.enableReservation is what the attribute enable_reservation is for: write it there."},
		"a version that is gone":  {scheduler(`version = "v1.20.0"`), "version", "Version v1.20.0 is older than v1.36.3-aliyun.1, which runs: the service only upgrades add-ons. Write v1.36.3-aliyun.1 or a newer one, or leave version out."},
		"too low a weight":        {scheduler(`binpack_resource_weight = { cpu = -1 }`), "binpack_resource_weight", "value must be at least 0"},
		"settings that are empty": {controller(`extra_config = jsonencode({ agent = null })`), "extra_config", "extra_config.agent is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			cli.Refuses(t, test.config, acctest.SayingAt(test.at, test.says))
		})
	}
}

// Reservation needs versions of the cluster and of the scheduler.
func TestVersionsThatReservationNeeds(t *testing.T) {
	for name, test := range map[string]struct{ kubernetes, version, says string }{
		"an old cluster":   {"1.26.3-aliyun.1", "", "enable_reservation of add-on kube-scheduler needs kubernetes 1.28 or newer, and it is 1.26.3-aliyun.1 (Alibaba Cloud: gang scheduling in a fleet, prerequisites). Upgrade the cluster, or leave the setting out."},
		"an old scheduler": {"1.30.3-aliyun.1", `version = "v1.40.1-aliyun-6.7.2.abc"`, "enable_reservation of add-on kube-scheduler needs kube-scheduler 6.8.0 or newer, and it is v1.40.1-aliyun-6.7.2.abc (Alibaba Cloud: gang scheduling in a fleet, prerequisites). Set version to a newer one, or leave the setting out."},
		"new enough":       {"1.28.0-aliyun.1", `version = "v1.40.1-aliyun-6.8.0.abc"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t, func(o *acsfake.Options) { o.KubernetesVersion = test.kubernetes })
			cli := acctest.StartCLI(t)
			reserving := scheduler("enable_reservation = true\n" + test.version)
			changes := 0
			if test.says != "" {
				cli.Refuses(t, reserving, acctest.SayingAt("enable_reservation", test.says))
			} else {
				cli.Write(t, reserving)
				cli.Apply(t, 1, 0, 0)
				cli.Unchanged(t)
				changes = 1
			}
			cli.Write(t, scheduler("enable_reservation = false\n"+test.version))
			cli.Apply(t, 1-changes, changes, 0)
			cli.Unchanged(t)
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
}

// An add-on belongs to one resource, of whichever type.
func TestTwoResourcesForOneAddon(t *testing.T) {
	s := start(t)
	cli := acctest.StartCLI(t)
	second := func(config string) string { return strings.Replace(config, `"x"`, `"y"`, 1) }
	for name, test := range map[string]struct{ config, object string }{
		"typed and by name":      {scheduler("enable_reservation = true") + addon("kube-scheduler", ""), "gpuplan_addon kube-scheduler"},
		"typed twice":            {scheduler("enable_reservation = true") + second(scheduler("pod_max_backoff_seconds = 5")), "gpuplan_addon kube-scheduler"},
		"controller and by name": {controller(`driver = "ofed"`) + addon("ack-erdma-controller", ""), "gpuplan_addon ack-erdma-controller"},
		"by name twice":          {addon("ack-arena", "") + second(addon("ack-arena", "")), "gpuplan_addon ack-arena"},
	} {
		t.Run(name, func(t *testing.T) {
			cli.Refuses(t, test.config, acctest.Saying("Two resources of this configuration are one object, "+test.object))
		})
	}
	cli.Write(t, scheduler("enable_reservation = true")+addon("ack-erdma-controller", ""))
	cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.", "different add-ons")
	cli.Must(t, "destroy", "-auto-approve")

	cli.Write(t, addon("kube-scheduler", "config = jsonencode({ enableReservation = true })"))
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "state", "rm", address)
	cli.Write(t, scheduler("enable_reservation = true"))
	cli.Must(t, "import", schedulerAt, "kube-scheduler")
	cli.Must(t, "apply", "-auto-approve")
	assert.Equal(t, true, s.config("kube-scheduler")["enableReservation"])
}

// One device by NUMA node takes pools that pin CPUs, where they have eRDMA devices.
func TestDevicesByNUMANode(t *testing.T) {
	pool := func(name, instanceType, policy string) acs.NodePoolSpec {
		size := int64(1)
		return acs.NodePoolSpec{
			Info:             acs.NodePoolInfo{Name: name, Type: "ess"},
			ScalingGroup:     acs.ScalingGroup{InstanceTypes: []string{instanceType}, VSwitchIDs: []string{"vsw-1"}, DesiredSize: &size},
			KubernetesConfig: acs.KubernetesConfig{CPUPolicy: policy, Labels: []acs.Label{{Key: contract.NodeModeLabel, Value: "default"}}},
		}
	}
	const fast, slow = "ecs.ebmgn8is.32xlarge", "ecs.gn6v-c10g1.20xlarge"
	typed := func(all string) string {
		return controller("driver = \"ofed\"\n  allocate_all_devices = " + all)
	}
	byName := func(agent string) string {
		return addon(contract.ERDMAController, "config = jsonencode({ agent = { "+agent+" } })")
	}
	installed := func(s service) {
		task, err := s.InstallAddon(t.Context(), acctest.ClusterID, acs.Addon{Name: contract.ERDMAController, Config: `{"agent":{"allocateAllDevices":true}}`})
		require.NoError(t, err)
		_, err = s.WaitTask(t.Context(), task, nil)
		require.NoError(t, err)
	}
	const refuses = "have eRDMA devices and another policy: b."
	for name, test := range map[string]struct {
		pools       []acs.NodePoolSpec
		config      string
		before      func(service)
		at, refuses string // "" for a pass
	}{
		"no pools":               {nil, typed("false"), nil, "", ""},
		"pools that pin CPUs":    {[]acs.NodePoolSpec{pool("a", fast, "static")}, typed("false"), nil, "", ""},
		"pools without eRDMA":    {[]acs.NodePoolSpec{pool("a", slow, "none")}, typed("false"), nil, "", ""},
		"one that does not":      {[]acs.NodePoolSpec{pool("a", fast, "static"), pool("b", fast, "none"), pool("c", slow, "none")}, typed("false"), nil, "allocate_all_devices", refuses},
		"by default":             {[]acs.NodePoolSpec{pool("b", fast, "")}, typed("false"), nil, "allocate_all_devices", refuses},
		"all devices":            {[]acs.NodePoolSpec{pool("b", fast, "none")}, typed("true"), nil, "", ""},
		"not said":               {[]acs.NodePoolSpec{pool("b", fast, "none")}, typed("null"), nil, "allocate_all_devices", refuses},
		"said before":            {[]acs.NodePoolSpec{pool("b", fast, "none")}, typed("null"), installed, "", ""},
		"by name":                {[]acs.NodePoolSpec{pool("b", fast, "none")}, byName("allocateAllDevices = false"), nil, "config", "config.agent.allocateAllDevices is not true"},
		"by name, not said":      {[]acs.NodePoolSpec{pool("b", fast, "none")}, byName("preferDriver = \"ofed\""), nil, "config", refuses},
		"by name, all devices":   {[]acs.NodePoolSpec{pool("b", fast, "none")}, byName("allocateAllDevices = true"), nil, "", ""},
		"another add-on by name": {[]acs.NodePoolSpec{pool("b", fast, "none")}, addon("ack-arena", ""), nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			for _, p := range test.pools {
				started, err := s.CreateNodePool(t.Context(), acctest.ClusterID, p)
				require.NoError(t, err)
				_, err = s.WaitNodePool(t.Context(), acctest.ClusterID, started.PoolID, 1, nil)
				require.NoError(t, err)
			}
			if test.before != nil {
				test.before(s)
			}
			cli := acctest.StartCLI(t)
			if test.refuses != "" {
				cli.Refuses(t, test.config, acctest.SayingAt(test.at, test.refuses))
				return
			}
			cli.Write(t, test.config)
			cli.Apply(t, 1, 0, 0)
			cli.Unchanged(t)
			cli.Must(t, "destroy", "-auto-approve")
		})
	}

	s := start(t)
	started, err := s.CreateNodePool(t.Context(), acctest.ClusterID, pool("b", fast, "none"))
	require.NoError(t, err)
	_, err = s.WaitNodePool(t.Context(), acctest.ClusterID, started.PoolID, 1, nil)
	require.NoError(t, err)
	cli := acctest.StartCLI(t)
	cli.Write(t, typed("true"))
	cli.Apply(t, 1, 0, 0)
	cli.Unchanged(t)
	cli.Refuses(t, controller(`driver = "ofed"`), acctest.Saying(refuses)) // what it was before comes back
	cli.Write(t, typed("true"))
	cli.Must(t, "destroy", "-auto-approve")
}

// The rule holds for pools of the same plan, in whatever order they are visited.
func TestDevicesByNUMANodeOfPlannedPools(t *testing.T) {
	pool := poolOf
	one := controller("allocate_all_devices = false")
	all := controller("allocate_all_devices = true")
	after := func(more string) string { return more + "\n  depends_on = [gpuplan_erdma_controller.x]" }
	first := strings.Replace(one, "\n}\n", "\n  depends_on = [gpuplan_node_pool.fast]\n}\n", 1)
	const pinned, free = `cpu_policy = "static"`, `cpu_policy = "none"`
	const refuses = "only pods that are pinned to CPUs have one, and the CPU policy of the nodes is not static."
	kubelet := func(policy string) string { return "kubelet_config = { cpu_manager_policy = \"" + policy + "\" }" }
	for name, test := range map[string]struct {
		config  string
		refuses *regexp.Regexp
	}{
		"no policy":               {one + pool(after("")), acctest.Saying(refuses)},
		"another policy":          {one + pool(after(free)), acctest.SayingAt("cpu_policy", refuses)},
		"the pool first":          {first + pool(free), acctest.SayingAt("allocate_all_devices", "have eRDMA devices and another policy: fast.")},
		"a policy that is pinned": {one + pool(after(pinned)), nil},
		"by the kubelets":         {one + pool(after(kubelet("static"))), nil},
		"not by the kubelets":     {one + pool(after(kubelet("none"))), acctest.SayingAt("kubelet_config", refuses)},
		"all devices":             {all + pool(after(free)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			start(t)
			cli := acctest.StartCLI(t)
			if test.refuses != nil {
				cli.Refuses(t, test.config, test.refuses)
				return
			}
			cli.Write(t, test.config)
			cli.Apply(t, 2, 0, 0)
			cli.Unchanged(t)
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
	start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, all+pool(after(free)))
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, one+pool(after(free)))
	said, err := cli.Run("plan")
	require.Error(t, err, "a pool that stays as it is")
	assert.Contains(t, acctest.Unwrapped(said), refuses)
	for config, plans := range map[string]string{
		one: "1 to change, 1 to destroy", // the pool goes
		one + strings.Replace(pool(after(pinned)), `"fast"`+"\n  instance", `"faster"`+"\n  instance", 1): "1 to add, 1 to change, 1 to destroy",
		one + strings.Replace(pool(after(free)), "gn8is.4xlarge", "gn6i-c8g1.2xlarge", 1):                 "1 to add, 1 to change, 1 to destroy",
	} {
		cli.Write(t, config)
		assert.Contains(t, cli.Must(t, "plan"), plans, "what is judged is what will stand")
	}
	const warns = "Nodes get cpu_policy when they join, and these have joined with another one: cn-hangzhou.10.0.1.1."
	cli.Write(t, one+pool(after(pinned)))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), warns, "nodes that are there keep their policy")
	cli.Must(t, "plan", "-replace=gpuplan_node_pool.fast")
	cli.Write(t, strings.Replace(first, "= false", "= null", 1)+pool(pinned))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "Nodes of these pools have joined with another one, which they keep until they are replaced: fast.")
	cli.Write(t, one+pool(after(kubelet("static"))))
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "Nodes keep their CPU policy", "kubelets start again")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
	cli.Write(t, one+pool(after(kubelet("none"))))
	said, err = cli.Run("plan")
	require.Error(t, err, "of the controller nothing changes")
	assert.Contains(t, acctest.Unwrapped(said), refuses)
	cli.Write(t, all+pool(after(free+"\n  "+kubelet("none"))))
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, all+pool(after(pinned+"\n  "+kubelet("static"))))
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), "1 changed")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}

// A pool is warned of where the cluster has a controller that this configuration does not, or that it comes to later.
func TestPoolsBesideAControllerThatIsThere(t *testing.T) {
	const free, pinned, warns = `cpu_policy = "none"`, `cpu_policy = "static"`, "the add-on ack-erdma-controller as it is configured now gives each pod one of them, by its NUMA node"
	for name, test := range map[string]struct {
		installed, config string
		warns             bool
	}{
		"one by NUMA node":     {`{"agent":{"allocateAllDevices":false}}`, poolOf(free), true},
		"by default":           {`{}`, poolOf(""), true},
		"all devices":          {`{"agent":{"allocateAllDevices":true}}`, poolOf(free), false},
		"pinned CPUs":          {`{}`, poolOf(pinned), false},
		"no controller":        {"", poolOf(free), false},
		"of the same plan":     {`{}`, poolOf(free+"\n  depends_on = [gpuplan_erdma_controller.x]") + controller("allocate_all_devices = true"), false},
		"the pool comes first": {`{}`, poolOf(free) + controller("allocate_all_devices = true\n  depends_on = [gpuplan_node_pool.fast]"), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			if test.installed != "" {
				task, err := s.InstallAddon(t.Context(), acctest.ClusterID, acs.Addon{Name: contract.ERDMAController, Config: test.installed})
				require.NoError(t, err)
				_, err = s.WaitTask(t.Context(), task, nil)
				require.NoError(t, err)
			}
			cli := acctest.StartCLI(t)
			cli.Write(t, test.config)
			said := acctest.Unwrapped(cli.Must(t, "plan"))
			assert.Equal(t, test.warns, strings.Contains(said, warns), said)
			cli.Must(t, "apply", "-auto-approve")
			assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), warns, "nothing changes")
		})
	}
}

// poolOf is a pool with eRDMA devices.
func poolOf(more string) string {
	return "resource \"gpuplan_node_pool\" \"fast\" {\n  name = \"fast\"\n  instance_type = \"ecs.gn8is.4xlarge\"\n  size = 1\n  vswitch_ids = [\"vsw-1\"]\n  " + more + "\n}\n"
}
