// Package faults lets the cloud, and the Kubernetes API, fail in every way that the emulator and
// the network before it know, at every operation of every resource that is theirs: the apply ends with an error
// that says what failed, or does without; the next one converges, without an import, and
// nothing is left behind or there twice.
package faults

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

var (
	seed = flag.Uint64("faults.seed", 1, "seed that chooses among the faults")
	most = flag.Int("faults.most", 8, "how many pairs of a resource and a fault are tried; 0 for all")
)

// fault is a way in which the cloud fails.
type fault struct {
	name  string
	knobs acsfake.Knobs
	rule  rule
	// limits sets timeouts that the fault lasts longer than.
	limits bool
	// says is what an apply that fails says, "" for a fault that no apply may fail by.
	says string
}

// slow is longer than the timeouts of a fault with limits.
const slow = 8 * time.Second

const limits = `timeouts = { create = "6s", update = "6s", delete = "6s" }`

func faults() []fault {
	task := func(name string, f acsfake.Fault) fault {
		return fault{name: name, knobs: acsfake.Knobs{TaskFaults: []acsfake.Fault{f}}, says: f.Code}
	}
	after := func(f acsfake.Fault, change func(*acsfake.Fault)) acsfake.Fault { change(&f); return f }
	all := []fault{
		{name: "throttled for a moment", knobs: acsfake.Knobs{Throttle: 2}},
		{name: "throttled", knobs: acsfake.Knobs{Throttle: 1000}, says: "Throttling.User"},
		{name: "unavailable for a moment", knobs: acsfake.Knobs{Unavailable: 1}, says: "ServiceUnavailable"},
		{name: "unavailable", knobs: acsfake.Knobs{Unavailable: 1000}, says: "ServiceUnavailable"},
		{name: "the answer to a creation is lost", knobs: acsfake.Knobs{LoseCreateAnswers: 1}, says: "EOF"},
		task("no stock", acsfake.NoStock()),
		task("no quota", acsfake.NoQuota()),
		task("no addresses", acsfake.NoIPs()),
		task("half of the nodes", after(acsfake.NoStock(), func(f *acsfake.Fault) { f.NodesBefore = 1 })),
		task("a state of another spelling", after(acsfake.NoStock(), func(f *acsfake.Fault) { f.State = "fail" })),
		task("a failure within a success", after(acsfake.NoQuota(), func(f *acsfake.Fault) { f.Hidden = true })),
		{name: "out of stock", knobs: acsfake.Knobs{OutOfStock: []string{small, large}}, says: "InstanceTypeNoStock"},
		{name: "no service role", knobs: acsfake.Knobs{NoOOSRole: true}, says: "AliyunOOSLifecycleHook4CSRole"},
		{name: "drain is blocked", knobs: acsfake.Knobs{DrainBlocked: true}, limits: true, says: "disruption budget"},
		{name: "slow tasks", knobs: acsfake.Knobs{ExtraTaskDuration: slow}, limits: true, says: "Stopped waiting"},
	}
	for n := 1; n <= 2; n++ {
		all = append(all,
			fault{name: fmt.Sprintf("connection broken before change %d", n), rule: rule{write: n}, says: "EOF"},
			fault{name: fmt.Sprintf("connection broken after change %d", n), rule: rule{write: n, carriedOut: true}, says: "EOF"},
			fault{name: fmt.Sprintf("gateway answers instead of change %d", n), rule: rule{write: n, status: http.StatusBadGateway, body: badGateway}, says: "502"},
			fault{name: fmt.Sprintf("gateway answers after change %d", n), rule: rule{write: n, carriedOut: true, status: http.StatusBadGateway, body: badGateway}, says: "502"},
			fault{name: fmt.Sprintf("role without the right to change %d", n), rule: rule{write: n, status: http.StatusForbidden, body: `{"code":"StatusForbidden","message":"STSToken policy Forbidden for action cs:Change","requestId":"r"}`}, says: "StatusForbidden"},
			fault{name: fmt.Sprintf("nobody answers reads after change %d", n), rule: rule{write: n, carriedOut: true, status: http.StatusInternalServerError, body: `{"code":"InternalError","message":"try later","requestId":"r"}`, reads: true}, says: "InternalError"},
			fault{name: fmt.Sprintf("answer cut short after change %d", n), rule: rule{write: n, carriedOut: true, status: http.StatusOK, body: `{"request_id":"r","ta`}, says: "JSON"},
		)
	}
	return all
}

// Instance types of the pool and of what replaces it.
const (
	small = "ecs.gn6v-c8g1.2xlarge"
	large = "ecs.gn6v-c10g1.20xlarge"
)

// operation is one apply: a configuration of the resource, "" for none, and what the cloud then has.
type operation struct {
	name, body string
	has        func(*testing.T, *acctest.Cloud)
}

// kinds are the resources that the cloud has, with what is done to each in turn.
func kinds() map[string][]operation {
	pool := func(instance string, size int, team string) string {
		return fmt.Sprintf("name = \"faults\"\n instance_type = %q\n size = %d\n vswitch_ids = [\"vsw-1\"]\n labels = { team = %q }", instance, size, team)
	}
	return map[string][]operation{
		"gpuplan_node_pool": {
			{"create", pool(small, 2, "a"), hasPool(small, 2, "a")},
			{"grow and label", pool(small, 3, "b"), hasPool(small, 3, "b")},
			{"shrink", pool(small, 1, "b"), hasPool(small, 1, "b")},
			{"replace", pool(large, 1, "b"), hasPool(large, 1, "b")},
			{"destroy", "", hasNoPool},
		},
		"gpuplan_addon": {
			{"create", `name = "ack-erdma-controller"` + "\n version = \"v0.4.0\"\n config = jsonencode({ agent = { preferDriver = \"ofed\" } })", hasAddon("ack-erdma-controller", "v0.4.0", "ofed")},
			{"configure", `name = "ack-erdma-controller"` + "\n version = \"v0.4.0\"\n config = jsonencode({ agent = { preferDriver = \"compat\" } })", hasAddon("ack-erdma-controller", "v0.4.0", "compat")},
			{"upgrade and configure", `name = "ack-erdma-controller"` + "\n version = \"v0.5.0\"\n config = jsonencode({ agent = { preferDriver = \"ofed\" } })", hasAddon("ack-erdma-controller", "v0.5.0", "ofed")},
			{"replace", `name = "ack-arena"`, func(t *testing.T, c *acctest.Cloud) {
				assert.Nil(t, addonOf(c, "ack-erdma-controller"))
				assert.NotNil(t, addonOf(c, "ack-arena"))
			}},
			{"destroy", "", func(t *testing.T, c *acctest.Cloud) { assert.Nil(t, addonOf(c, "ack-arena")) }},
		},
		"gpuplan_erdma_controller": {
			{"create", `driver = "ofed"`, hasAddon("ack-erdma-controller", "", "ofed")},
			{"configure", `driver = "compat"`, hasAddon("ack-erdma-controller", "", "compat")},
			{"destroy", "", func(t *testing.T, c *acctest.Cloud) { assert.Nil(t, addonOf(c, "ack-erdma-controller")) }},
		},
		"gpuplan_scheduler_config": {
			{"create", "enable_reservation = true\n binpack_plugin_weight = 9", hasScheduler(true, 9)},
			{"configure", "enable_reservation = true\n binpack_plugin_weight = 5", hasScheduler(true, 5)},
			{"destroy", "", hasScheduler(false, nil)},
		},
	}
}

func hasPool(instance string, size int, team string) func(*testing.T, *acctest.Cloud) {
	return func(t *testing.T, c *acctest.Cloud) {
		t.Helper()
		pools := c.ACS.State().Pools
		require.Len(t, pools, 1)
		assert.Equal(t, []any{instance}, pools[0].ScalingGroup["instance_types"])
		assert.Equal(t, size, pools[0].Size)
		assert.Len(t, pools[0].Nodes, size)
		assert.Equal(t, "active", pools[0].State)
		for _, n := range pools[0].Nodes {
			assert.Equal(t, team, n.Labels["team"])
			assert.Equal(t, instance, n.InstanceType)
		}
		assert.Len(t, c.NodeNames(t), size)
	}
}

func hasNoPool(t *testing.T, c *acctest.Cloud) {
	t.Helper()
	assert.Empty(t, c.ACS.State().Pools)
	assert.Empty(t, c.NodeNames(t))
}

func addonOf(c *acctest.Cloud, name string) *acsfake.AddonRecord {
	for _, a := range c.ACS.State().Addons {
		if a.Name == name {
			return a
		}
	}
	return nil
}

func hasAddon(name, version, driver string) func(*testing.T, *acctest.Cloud) {
	return func(t *testing.T, c *acctest.Cloud) {
		t.Helper()
		a := addonOf(c, name)
		require.NotNil(t, a)
		if version != "" {
			assert.Equal(t, version, a.Version)
		}
		assert.Eventually(t, func() bool { return addonOf(c, name).State == "active" }, time.Minute, 100*time.Millisecond)
		agent, _ := a.Config["agent"].(map[string]any)
		assert.Equal(t, driver, agent["preferDriver"])
	}
}

func hasScheduler(reservation bool, weight any) func(*testing.T, *acctest.Cloud) {
	return func(t *testing.T, c *acctest.Cloud) {
		t.Helper()
		config := addonOf(c, "kube-scheduler").Config
		assert.Equal(t, reservation, config["enableReservation"])
		want, err := json.Marshal(weight)
		require.NoError(t, err)
		has, err := json.Marshal(config["binpackPluginWeight"])
		require.NoError(t, err)
		assert.Equal(t, string(want), string(has))
	}
}

// pair is a resource and how the cloud fails at each of its operations.
type pair struct {
	kind  string
	fault fault
}

func TestFaults(t *testing.T) {
	var pairs []pair
	for _, kind := range []string{"gpuplan_node_pool", "gpuplan_addon", "gpuplan_erdma_controller", "gpuplan_scheduler_config"} {
		for _, f := range faults() {
			pairs = append(pairs, pair{kind, f})
		}
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	random.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	if *most > 0 && *most < len(pairs) {
		t.Logf("%d of %d pairs, seed %d", *most, len(pairs), *seed)
		pairs = pairs[:*most]
	}
	for _, p := range pairs {
		t.Run(p.kind+"/"+p.fault.name, p.try)
	}
}

// try does everything to a resource while the cloud fails, and again while it does not.
func (p pair) try(t *testing.T) {
	cloud := acctest.StartCloud(t)
	before := cloud.ACS.State()
	f, url := serve(t, cloud.ACS)
	t.Setenv("GPUPLAN_CS_ENDPOINT", url)
	cli := acctest.StartCLI(t)
	more := ""
	if p.fault.limits {
		more = limits
	}
	for _, op := range kinds()[p.kind] {
		config := acctest.Owner("faults")
		if op.body != "" {
			config += fmt.Sprintf("resource %q \"x\" {\n %s\n %s\n}\n", p.kind, op.body, more)
		}
		cli.Write(t, config)
		fail := func(knobs acsfake.Knobs, r rule) func() {
			return func() { cloud.ACS.SetKnobs(knobs); f.set(r) }
		}
		settle(t, cli, op.name, fail(p.fault.knobs, p.fault.rule), fail(acsfake.Knobs{}, rule{}), func(output string) {
			require.NotEmpty(t, p.fault.says, "%s:\n%s", op.name, output)
			assert.Contains(t, acctest.Unwrapped(output), p.fault.says, op.name)
		})
		op.has(t, cloud)
	}
	assert.Equal(t, addonsOf(before), addonsOf(cloud.ACS.State()), "what was there before is as it was")
}

// settle applies while something fails, and once more where the apply fails with it, of which said is told the output. After
// that nothing is left to do.
func settle(t *testing.T, cli *acctest.CLI, operation string, fail, mend func(), said func(output string)) {
	t.Helper()
	fail()
	output, err := cli.Run("apply", "-auto-approve")
	mend()
	for _, never := range []string{"panic", "inconsistent", "unexpected new value", "report", "error in the provider"} {
		assert.NotContains(t, output, never, operation)
	}
	if err != nil {
		said(output)
		t.Logf("%s: %s", operation, acctest.Unwrapped(diagnosticsOf(output)))
		output, err = cli.Run("apply", "-auto-approve")
		require.NoError(t, err, "%s does not converge:\n%s", operation, output)
	}
	cli.Unchanged(t)
}

// addonsOf are the add-ons with their versions and configurations.
func addonsOf(s acsfake.State) map[string]string {
	out := map[string]string{}
	for _, a := range s.Addons {
		config, _ := json.Marshal(a.Config)
		out[a.Name] = a.Version + " " + string(config)
	}
	return out
}

// diagnosticsOf is what terraform prints from its first error on.
func diagnosticsOf(output string) string {
	if _, after, found := strings.Cut(output, "Error: "); found {
		return after
	}
	return output
}
