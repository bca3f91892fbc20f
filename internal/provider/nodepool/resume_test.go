package nodepool_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// client is the provider's own access to the emulated service.
func client(t *testing.T, cloud *acctest.Cloud) *acs.Client {
	t.Helper()
	c, err := acs.New(acs.Config{Credentials: cloud.Credentials(), Region: acctest.Region, Endpoint: cloud.Endpoint, PollInterval: time.Millisecond})
	require.NoError(t, err)
	return c
}

// What an apply left that was killed is continued, whatever the service is at, and
// whatever the configuration has become since.
func TestPoolOfAnApplyThatWasKilled(t *testing.T) {
	killed := func(p acs.NodePoolSpec) acs.NodePoolSpec { return p }
	for name, test := range map[string]struct {
		// left makes of the pool as the apply asks for it the one that is found, and what goes on with it.
		left    func(acs.NodePoolSpec) acs.NodePoolSpec
		then    func(*testing.T, *acctest.Cloud, string)
		replace bool
	}{
		"complete":      {left: killed},
		"being created": {left: killed, then: func(*testing.T, *acctest.Cloud, string) {}},
		"of another size": {left: func(p acs.NodePoolSpec) acs.NodePoolSpec {
			size := int64(3)
			p.ScalingGroup.DesiredSize = &size
			return p
		}},
		"of another mode": {left: func(p acs.NodePoolSpec) acs.NodePoolSpec { p.KubernetesConfig.Labels[0].Value = "default"; return p }},
		"of another instance": {left: func(p acs.NodePoolSpec) acs.NodePoolSpec {
			p.ScalingGroup.InstanceTypes = []string{"ecs.gn6v-c8g1.16xlarge"}
			return p
		}, replace: true},
		"being deleted": {left: killed, replace: true, then: func(t *testing.T, cloud *acctest.Cloud, id string) {
			_, err := client(t, cloud).DeleteNodePool(t.Context(), acctest.ClusterID, id, true)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			service := client(t, cloud)
			size := int64(1)
			spec := acs.NodePoolSpec{
				Info: acs.NodePoolInfo{Name: "v100", Type: "ess"},
				ScalingGroup: acs.ScalingGroup{
					InstanceTypes: []string{"ecs.gn6v-c10g1.20xlarge"}, VSwitchIDs: []string{"vsw-1"}, DesiredSize: &size,
					Tags: []acs.Tag{{Key: contract.OwnerTag, Value: "a"}},
				},
				KubernetesConfig: acs.KubernetesConfig{Labels: []acs.Label{{Key: contract.NodeModeLabel, Value: "topology"}}},
			}
			if test.then != nil {
				cloud.ACS.SetKnobs(acsfake.Knobs{ExtraTaskDuration: 300 * time.Millisecond})
			}
			started, err := service.CreateNodePool(t.Context(), acctest.ClusterID, test.left(spec))
			require.NoError(t, err)
			if test.then == nil {
				_, err = service.WaitTask(t.Context(), started.TaskID, nil)
				require.NoError(t, err)
			} else {
				test.then(t, cloud, started.PoolID)
			}
			config := acctest.Owner("a") + poolWith("")
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{
					{Config: config, Check: func(state *terraform.State) error {
						pools, err := service.ListNodePools(t.Context(), acctest.ClusterID)
						require.NoError(t, err)
						require.Len(t, pools, 1)
						assert.Equal(t, pools[0].Info.ID, state.RootModule().Resources["gpuplan_node_pool.v100"].Primary.Attributes["nodepool_id"])
						assert.Equal(t, test.replace, pools[0].Info.ID != started.PoolID, "another pool")
						assert.Len(t, cloud.NodeNames(t), 1)
						return nil
					}},
					{Config: config, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}},
				},
				CheckDestroy: func(*terraform.State) error {
					assert.Empty(t, cloud.NodeNames(t))
					return nil
				},
			})
		})
	}
}

// Of two configurations that create a pool of one name at the same time the later one gives way: the service
// lets both be.
func TestPoolThatAppearsMeanwhile(t *testing.T) {
	cloud := acctest.StartCloud(t)
	service := client(t, cloud)
	var theirs string
	cloud.Meanwhile(t, "nodepools", func() {
		size := int64(1)
		started, err := service.CreateNodePool(t.Context(), acctest.ClusterID, acs.NodePoolSpec{
			Info: acs.NodePoolInfo{Name: "v100", Type: "ess"},
			ScalingGroup: acs.ScalingGroup{
				InstanceTypes: []string{"ecs.gn6v-c10g1.20xlarge"}, VSwitchIDs: []string{"vsw-1"}, DesiredSize: &size,
				Tags: []acs.Tag{{Key: contract.OwnerTag, Value: "b"}},
			},
		})
		require.NoError(t, err)
		theirs = started.PoolID
	})
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("a")+poolWith(""))
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), `another Terraform configuration manages it, with the owner "b" (this one is "a")`)
	pools, err := service.ListNodePools(t.Context(), acctest.ClusterID)
	require.NoError(t, err)
	require.Len(t, pools, 1)
	assert.Equal(t, theirs, pools[0].Info.ID)
	assert.Empty(t, cli.Must(t, "state", "list"))
}

// An apply that is killed before it gives way leaves its pool, which the next one gives back, unless jobs run there.
func TestPoolThatAppearsMeanwhileAndAKill(t *testing.T) {
	cloud := acctest.StartCloud(t)
	service := client(t, cloud)
	create := func(owner string, nodes int64) string {
		started, err := service.CreateNodePool(t.Context(), acctest.ClusterID, acs.NodePoolSpec{
			Info: acs.NodePoolInfo{Name: owner, Type: "ess"},
			ScalingGroup: acs.ScalingGroup{
				InstanceTypes: []string{"ecs.gn6v-c10g1.20xlarge"}, VSwitchIDs: []string{"vsw-1"}, DesiredSize: &nodes,
				Tags: []acs.Tag{{Key: contract.OwnerTag, Value: owner}},
			},
			KubernetesConfig: acs.KubernetesConfig{Labels: []acs.Label{{Key: contract.NodeModeLabel, Value: "topology"}}},
		})
		require.NoError(t, err)
		_, err = service.WaitTask(t.Context(), started.TaskID, nil)
		require.NoError(t, err)
		return started.PoolID
	}
	theirs, ours := create("b", 0), create("a", 1)
	for _, id := range []string{theirs, ours} { // the client creates no two of one name
		found, err := service.GetNodePool(t.Context(), acctest.ClusterID, id)
		require.NoError(t, err)
		found.Info.Name = "v100"
		_, err = service.ModifyNodePool(t.Context(), acctest.ClusterID, id, found.NodePoolSpec, acs.ModifyOptions{})
		require.NoError(t, err)
		_, err = service.WaitNodePool(t.Context(), acctest.ClusterID, id, -1, nil)
		require.NoError(t, err)
	}
	pod := acctest.GangPod("trainer", "trainer-0", cloud.NodeNames(t)[0], 0, 1)
	cloud.Put(t, pod)
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("a")+poolWith(""))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "An apply of this configuration that was killed has created one of that name ("+ours+") at the same time.")
	fails := func(says string) {
		said, err := cli.Run("apply", "-auto-approve")
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), says)
		assert.Empty(t, cli.Must(t, "state", "list"))
	}
	fails("and there are running jobs that would lose their nodes: default/trainer")
	assert.Len(t, cloud.NodeNames(t), 1)
	cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Pod"), "default", pod.Name)
	fails(`another Terraform configuration manages it, with the owner "b" (this one is "a")`)
	pools, err := service.ListNodePools(t.Context(), acctest.ClusterID)
	require.NoError(t, err)
	require.Len(t, pools, 1)
	assert.Equal(t, theirs, pools[0].Info.ID)
}

// A pool that changes its address in the configuration is the same pool.
func TestPoolThatChangesItsAddress(t *testing.T) {
	cloud := acctest.StartCloud(t)
	config := poolWith("")
	moved := strings.Replace(config, `"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "other"`, 1)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: config},
			{Config: moved, Check: func(*terraform.State) error {
				assert.Len(t, cloud.NodeNames(t), 1)
				return nil
			}},
			{Config: moved, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}},
		},
	})
}

// Of pools that change names, a plan with -target lets one resource have what another still has in the state. No later
// plan deletes it for that one.
func TestPoolAtTwoAddresses(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	named := func(a, b string) string {
		return strings.NewReplacer(`"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "a"`, `"v100"`, fmt.Sprintf("%q", a)).Replace(poolWith("")) +
			strings.NewReplacer(`"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "b"`, `"v100"`, fmt.Sprintf("%q", b)).Replace(poolWith(""))
	}
	cli.Write(t, named("one", "two"))
	cli.Must(t, "apply", "-auto-approve")
	for _, both := range []string{"one", "two"} {
		cli.Write(t, named(both, both))
		said, err := cli.Run("plan")
		require.Error(t, err)
		assert.Contains(t, acctest.Unwrapped(said), "Two resources of this configuration are one object, gpuplan_node_pool "+both)
	}
	cli.Write(t, named("two", "one"))
	cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_node_pool.a")
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "Terraform's state has one object at two addresses, gpuplan_node_pool two")
	assert.Len(t, cloud.NodeNames(t), 1)
	cli.Must(t, "state", "rm", "gpuplan_node_pool.b")
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), "1 added, 0 changed, 0 destroyed")
	assert.Len(t, cloud.NodeNames(t), 2)
	cli.Must(t, "destroy", "-auto-approve")
}

// A replacement with create_before_destroy that was cut off may leave one pool twice at one address. What the refusal
// advises gives up none of it.
func TestPoolThatIsDeposedAsWell(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Apply(t, 1, 0, 0)
	id := record(t, cloud).Info.ID

	file := filepath.Join(cli.Dir, "terraform.tfstate")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	state := map[string]any{}
	require.NoError(t, json.Unmarshal(content, &state))
	pool := state["resources"].([]any)[0].(map[string]any)
	current := pool["instances"].([]any)[0].(map[string]any)
	deposed := maps.Clone(current)
	deposed["deposed"] = "0badcafe"
	pool["instances"] = []any{current, deposed}
	content, err = json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))

	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "of which one object is deposed, as after a replacement with create_before_destroy that was cut off, remove that address")
	cli.Must(t, "state", "rm", "gpuplan_node_pool.v100")
	cli.Apply(t, 1, 0, 0)
	cli.Unchanged(t)
	assert.Equal(t, id, record(t, cloud).Info.ID)
	assert.Len(t, cloud.NodeNames(t), 1)
}
