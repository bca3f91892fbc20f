package addon_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

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
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const address = "gpuplan_addon.x"

func addon(name, more string) string {
	return fmt.Sprintf("resource \"gpuplan_addon\" \"x\" {\n  name = %q\n  %s\n}\n", name, more)
}

// service is the emulated service, for what Terraform does not do.
type service struct {
	*acs.Client
	t *testing.T
}

func start(t *testing.T, options ...func(*acsfake.Options)) service {
	t.Helper()
	cloud := acctest.StartCloud(t, options...)
	client, err := acs.New(acs.Config{Credentials: cloud.Credentials(), Region: acctest.Region, Endpoint: cloud.Endpoint, PollInterval: time.Millisecond})
	require.NoError(t, err)
	return service{client, t}
}

// config is the configuration of an add-on, nil for one that is not installed.
func (s service) config(name string) map[string]any {
	live, err := s.GetAddon(s.t.Context(), acctest.ClusterID, name)
	if acs.IsNotFound(err) {
		return nil
	}
	require.NoError(s.t, err)
	var c map[string]any
	require.NoError(s.t, json.Unmarshal([]byte(live.Config), &c))
	return c
}

func (s service) set(name, config string) {
	require.NoError(s.t, s.ModifyAddon(s.t.Context(), acctest.ClusterID, name, config))
	_, err := s.WaitAddon(s.t.Context(), acctest.ClusterID, name, nil)
	require.NoError(s.t, err)
}

// Of an add-on that the cluster has, the resource owns what it was given: the rest is left to
// others, and what it changed comes back.
func TestAddonThatIsThere(t *testing.T) {
	s := start(t)
	s.set("kube-scheduler", `{"binpackPluginWeight":7}`)
	is := func(reservation bool, weight, backoff any) resource.TestCheckFunc {
		return func(*terraform.State) error {
			c := s.config("kube-scheduler")
			assert.Equal(t, reservation, c["enableReservation"])
			assert.Equal(t, weight, c["binpackPluginWeight"])
			assert.Equal(t, backoff, c["podMaxBackoffSeconds"])
			return nil
		}
	}
	both := addon("kube-scheduler", `config = jsonencode({ enableReservation = true, binpackPluginWeight = 9 })`)
	one := addon("kube-scheduler", `config = "{ \"enableReservation\": true }"`)
	nothing := func(config string) resource.TestStep {
		return resource.TestStep{Config: config, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}}
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		CheckDestroy:             is(false, 7.0, nil),
		Steps: []resource.TestStep{
			{Config: both, Check: is(true, 9.0, nil), ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(address, tfjsonpath.New("installed"), knownvalue.Bool(false)),
				statecheck.ExpectKnownValue(address, tfjsonpath.New("previous_config"), knownvalue.StringExact(`{"binpackPluginWeight":7,"enableReservation":false}`)),
				statecheck.ExpectKnownValue(address, tfjsonpath.New("state"), knownvalue.StringExact("active")),
			}},
			nothing(both),
			{Config: one, Check: is(true, 7.0, nil)}, // gives the weight back
			nothing(one),
			{Config: one, PreConfig: func() { s.set("kube-scheduler", `{"podMaxBackoffSeconds":60,"binpackPluginWeight":8}`) }, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}},
			{Config: one, PreConfig: func() {
				s.set("kube-scheduler", `{"enableReservation":false,"podMaxBackoffSeconds":"","binpackPluginWeight":7}`)
			}, Check: is(true, 7.0, nil)}, // drift
			{Config: one, ResourceName: address, ImportState: true, ImportStateId: "kube-scheduler", ImportStateKind: resource.ImportBlockWithID},
		},
	})
}

// An add-on that the resource installs goes with it.
func TestAddonThatIsInstalled(t *testing.T) {
	s := start(t)
	driver := func(want any) resource.TestCheckFunc {
		return func(*terraform.State) error {
			agent, _ := s.config("ack-erdma-controller")["agent"].(map[string]any)
			assert.Equal(t, want, agent["preferDriver"])
			return nil
		}
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		CheckDestroy: func(*terraform.State) error {
			assert.Nil(t, s.config("ack-erdma-controller"))
			return nil
		},
		Steps: []resource.TestStep{
			{Config: addon("ack-erdma-controller", `config = jsonencode({ agent = { preferDriver = "ofed" } })`), Check: driver("ofed")},
			{Config: addon("ack-erdma-controller", `config = jsonencode({ agent = { preferDriver = "compat" } })`), Check: driver("compat")},
			{Config: addon("ack-erdma-controller", ``), Check: driver("default")},
			{Config: addon("ack-erdma-controller", `version = "v0.5.0"`), ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(address, tfjsonpath.New("version"), knownvalue.StringExact("v0.5.0")),
			}},
			{Config: addon("ack-erdma-controller", `version = "v0.5.0"`), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}},
			{Config: addon("ack-erdma-controller", `version = "v0.4.0"`), ExpectError: acctest.SayingAt("version", "Version v0.4.0 is older than v0.5.0, which runs")},
			{Config: addon("ack-arena", ``), Check: func(*terraform.State) error {
				assert.Nil(t, s.config("ack-erdma-controller"))
				assert.NotNil(t, s.config("ack-arena"))
				return nil
			}},
			{Config: addon("ack-erdma-controller", `keep_on_destroy = true`)},
			{Config: `# nothing left`, Check: func(*terraform.State) error {
				require.NotNil(t, s.config("ack-erdma-controller"))
				task, err := s.UninstallAddon(t.Context(), acctest.ClusterID, "ack-erdma-controller")
				require.NoError(t, err)
				_, err = s.WaitTask(t.Context(), task, nil)
				return err
			}},
		},
	})
}

// The old component for shared GPUs, which someone else has installed, becomes the new one in place, and stays.
func TestOlderAddonOfSomeoneElse(t *testing.T) {
	const name, old, newer = "ack-ai-installer", "1.1.9", "1.12.0"
	s := start(t, func(o *acsfake.Options) {
		o.State = &acsfake.State{Version: acsfake.StateVersion, Addons: []*acsfake.AddonRecord{{Name: name, Version: old, State: acs.AddonActive, Config: map[string]any{}}}}
	})
	runs := func(version string) resource.TestCheckFunc {
		return func(*terraform.State) error {
			live, err := s.GetAddon(t.Context(), acctest.ClusterID, name)
			require.NoError(t, err)
			assert.Equal(t, version, live.Version)
			return nil
		}
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		CheckDestroy:             runs(newer),
		Steps: []resource.TestStep{
			{Config: addon(name, ""), Check: runs(old), ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(address, tfjsonpath.New("installed"), knownvalue.Bool(false)),
			}},
			{Config: addon(name, fmt.Sprintf("version = %q", newer)), Check: runs(newer)},
		},
	})
}

// What the add-on does not take fails at plan.
func TestSettingsAreChecked(t *testing.T) {
	start(t)
	for name, test := range map[string]struct{ config, at, says string }{
		"no add-on":     {addon("no-such-addon", ""), "name", `The service has no add-on "no-such-addon" for cluster ` + acctest.ClusterID},
		"no name":       {addon("Kube Scheduler", ""), "name", "must be the name of an add-on"},
		"empty setting": {addon("kube-scheduler", `config = jsonencode({ binpackResourceWeight = [] })`), "config", "config.binpackResourceWeight is empty, which the service takes for no value"},
		"no object":     {addon("kube-scheduler", `config = "true"`), "config", "config is no JSON object: write it as config = jsonencode({ enableReservation = true })."},
		"a wrong type":  {addon("kube-scheduler", `config = jsonencode({ enableReservation = "yes" })`), "config", "Add-on kube-scheduler does not take this: config.enableReservation: got string, want boolean."},
		"out of bounds": {addon("kube-scheduler", `config = jsonencode({ podMaxBackoffSeconds = 0 })`), "config", "config.podMaxBackoffSeconds: minimum: got 0, want 1."},
		"not in a list": {addon("ack-erdma-controller", `config = jsonencode({ agent = { preferDriver = "roce" } })`), "config", "config.agent.preferDriver: value must be one of 'default', 'compat', 'ofed'."},
	} {
		t.Run(name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps:                    []resource.TestStep{{Config: test.config, PlanOnly: true, ExpectError: acctest.SayingAt(test.at, test.says)}},
			})
		})
	}
	cli := acctest.StartCLI(t)
	cli.Write(t, addon("kube-scheduler", `config = jsonencode({ enableReservations = true })`))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "The schema of add-on kube-scheduler does not have config.enableReservations.")
}

// A setting that the cluster or the scheduler is too old for is refused with the number that it needs.
func TestVersionsThatSettingsNeed(t *testing.T) {
	for name, test := range map[string]struct{ kubernetes, version, says string }{
		"an old cluster":   {"1.26.3-aliyun.1", "", "config.enableReservation of add-on kube-scheduler needs kubernetes 1.28 or newer, and it is 1.26.3-aliyun.1"},
		"an old scheduler": {"1.30.3-aliyun.1", `version = "v1.40.1-aliyun-6.7.2.abc"`, "config.enableReservation of add-on kube-scheduler needs kube-scheduler 6.8.0 or newer, and it is v1.40.1-aliyun-6.7.2.abc"},
	} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t, func(o *acsfake.Options) { o.KubernetesVersion = test.kubernetes })
			config := func(reservation bool) string {
				return addon("kube-scheduler", fmt.Sprintf("config = jsonencode({ enableReservation = %t })\n%s", reservation, test.version))
			}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{
					{Config: config(true), PlanOnly: true, ExpectError: acctest.SayingAt("config", test.says)},
					{Config: config(false)},
				},
			})
		})
	}
}

// A task that fails says why. Nothing is lost: the next apply does what is left to do.
func TestTasksThatFail(t *testing.T) {
	for name, test := range map[string]struct{ first, then string }{
		"installation": {"# nothing yet", addon("ack-arena", "")},
		"upgrade":      {addon("ack-arena", ""), addon("ack-arena", `version = "0.16.0"`)},
		"removal":      {addon("ack-arena", ""), "# nothing left"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, test.first)
			cli.Must(t, "apply", "-auto-approve")
			cli.Write(t, test.then)
			cloud.ACS.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{acsfake.NoQuota()}})
			said, err := cli.Run("apply", "-auto-approve")
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), acsfake.NoQuota().Code)
			cloud.ACS.SetKnobs(acsfake.Knobs{})
			cli.Must(t, "apply", "-auto-approve")
			assert.Contains(t, cli.Must(t, "plan"), "No changes.")
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
}
