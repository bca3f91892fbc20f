package nodegpu_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const (
	address = "gpuplan_node_gpu.x"
	v100    = "ecs.gn6v-c10g1.20xlarge"
)

var kind = corev1.SchemeGroupVersion.WithKind("Node")

// put puts a node of eight GPUs into the cluster, which offers them in the mode of its labels.
func put(t *testing.T, cloud *acctest.Cloud, name string, labels map[string]string) {
	t.Helper()
	mode, all := "default", map[string]string{contract.InstanceTypeLabel: v100}
	for key, value := range labels {
		all[key] = value
	}
	if labels[contract.NodeModeLabel] != "" {
		mode = labels[contract.NodeModeLabel]
	}
	object, err := acctest.Node(acsfake.Node{Name: name, InstanceType: v100, Mode: mode, Labels: all, Created: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	cloud.API.Put(object)
}

// start starts a cluster with nodes gpu-1 and gpu-2, whose device plugins follow their labels.
func start(t *testing.T) *acctest.Cloud {
	t.Helper()
	cloud := acctest.StartCloud(t)
	put(t, cloud, "gpu-1", nil)
	put(t, cloud, "gpu-2", nil)
	follow(t, cloud)
	return cloud
}

// follow plays the nodes' device plugins.
func follow(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	nodes := cloud.Kube.Dynamic.Resource(kind.GroupVersion().WithResource("nodes"))
	changes, err := nodes.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range changes.ResultChan() {
			n, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Deleted || n.GetLabels()[contract.NodeModeLabel] == "" {
				continue
			}
			it, _ := catalog.Lookup(v100)
			offers, err := catalog.Allocatable(it, n.GetLabels()[contract.NodeModeLabel], catalog.Setup{})
			if !assert.NoError(t, err) {
				return
			}
			allocatable := map[string]any{}
			for resource, count := range offers.Extended {
				allocatable[resource] = strconv.FormatInt(count, 10)
			}
			status := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"allocatable": allocatable}}}
			status.SetGroupVersionKind(kind)
			status.SetName(n.GetName())
			_, err = nodes.ApplyStatus(ctx, n.GetName(), status, metav1.ApplyOptions{FieldManager: "device-plugin", Force: true})
			assert.True(t, err == nil || kube.IsNotFound(err) || ctx.Err() != nil, "%v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func labelsOf(t *testing.T, cloud *acctest.Cloud, name string) map[string]string {
	t.Helper()
	n, err := cloud.Kube.Typed.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return n.Labels
}

// label labels a node as with kubectl; "" takes the label off.
func label(t *testing.T, cloud *acctest.Cloud, name, key, value string) {
	t.Helper()
	text := strconv.Quote(value)
	if value == "" {
		text = "null"
	}
	_, err := cloud.Kube.Typed.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, text), metav1.PatchOptions{FieldManager: "kubectl-label"})
	require.NoError(t, err)
}

// with is the resource with more attributes, which replace those of the same name.
func with(more ...string) string { return called("x", more...) }

func called(resource string, more ...string) string {
	lines := append([]string(nil), more...)
	for _, a := range []string{`name = "v100"`, `nodes = ["gpu-1", "gpu-2"]`, `mode = "topology"`} {
		replaced := false
		for _, m := range more {
			replaced = replaced || strings.HasPrefix(m, a[:strings.Index(a, "=")+1])
		}
		if !replaced {
			lines = append(lines, a)
		}
	}
	return fmt.Sprintf("resource \"gpuplan_node_gpu\" %q {\n  %s\n}\n", resource, strings.Join(lines, "\n  "))
}

func at(steps ...string) tfjsonpath.Path {
	p := tfjsonpath.New(steps[0])
	for _, s := range steps[1:] {
		p = p.AtMapKey(s)
	}
	return p
}

func is(checks ...plancheck.PlanCheck) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: checks}
}

// The nodes are the identity: an import by it leaves nothing to do, and it follows what a change takes out.
func TestIdentityFollowsTheNodes(t *testing.T) {
	if !acctest.Since(t, 12) {
		t.Skip("resource identity is HashiCorp's, and came with Terraform 1.12")
	}
	start(t)
	nodesAre := func(names ...string) []statecheck.StateCheck {
		var list []knownvalue.Check
		for _, name := range names {
			list = append(list, knownvalue.StringExact(name))
		}
		return []statecheck.StateCheck{statecheck.ExpectIdentity(address, map[string]knownvalue.Check{"nodes": knownvalue.ListExact(list)})}
	}
	imported := resource.TestStep{ResourceName: address, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{Config: with(), ConfigStateChecks: nodesAre("gpu-1", "gpu-2")},
		imported,
		{Config: with(`nodes = ["gpu-2"]`), ConfigStateChecks: nodesAre("gpu-2")},
		imported,
	}})
}

// Created, left alone, changed in place, repaired, left by a node, imported, and destroyed.
func TestNodeGPU(t *testing.T) {
	cloud := start(t)
	labelled := func(want map[string]string, nodes ...string) func(*terraform.State) error {
		return func(*terraform.State) error {
			for _, name := range nodes {
				have := labelsOf(t, cloud, name)
				for _, key := range []string{contract.NodeModeLabel, contract.NodeGPUPolicyLabel, contract.NodePoolNameLabel} {
					assert.Equal(t, want[key], have[key], "%s of %s", key, name)
				}
				assert.Equal(t, v100, have[contract.InstanceTypeLabel], "labels of others stay")
			}
			return nil
		}
	}
	topology := map[string]string{contract.NodeModeLabel: "topology", contract.NodePoolNameLabel: "v100"}
	shared := map[string]string{contract.NodeModeLabel: "share", contract.NodeGPUPolicyLabel: "spread", contract.NodePoolNameLabel: "v100"}

	share := with(`mode = "share"`, `gpu_policy = "spread"`)
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{
			Config: with(), Check: labelled(topology, "gpu-1", "gpu-2"),
			ConfigPlanChecks: is(
				plancheck.ExpectKnownValue(address, at("capacity", "pool"), knownvalue.StringExact("v100")),
				plancheck.ExpectUnknownValue(address, at("capacity", "nodes"))),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(address, at("id"), knownvalue.StringExact("gpu-1,gpu-2")),
				statecheck.ExpectKnownValue(address, at("capacity", "free_gpus"), knownvalue.Int64Exact(16)),
				statecheck.ExpectKnownValue(address, at("drifted_nodes"), knownvalue.MapExact(nil)),
			},
		},
		{Config: with(), ConfigPlanChecks: is(plancheck.ExpectEmptyPlan())},
		{
			Config: share, Check: labelled(shared, "gpu-1", "gpu-2"),
			ConfigPlanChecks: is(plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate)),
		},
		{
			Config: share, Check: labelled(shared, "gpu-1", "gpu-2"),
			PreConfig: func() {
				label(t, cloud, "gpu-1", contract.NodeModeLabel, "topology")
				label(t, cloud, "gpu-2", contract.NodeGPUPolicyLabel, "")
			},
			ConfigPlanChecks: is(plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate)),
		},
		{Config: with(), Check: labelled(topology, "gpu-1", "gpu-2"), ConfigPlanChecks: is(plancheck.ExpectResourceAction(address, plancheck.ResourceActionUpdate))},
		{ResourceName: address, ImportState: true, ImportStateVerify: true},
		{ResourceName: address, ImportState: true, ImportStateId: "gpu-1,gone", ExpectError: acctest.Saying("The cluster has no node gone; its nodes are gpu-1, gpu-2.")},
		{ResourceName: address, ImportState: true, ImportStateId: "gpu-1,", ExpectError: acctest.Saying("does not name nodes: write their names with commas between them")},
		{ResourceName: address, ImportState: true, ImportStateId: "gpu-1,gpu-1", ExpectError: acctest.Saying("write their names with commas between them, NODE,NODE, each once.")},
		{
			Config: with(`nodes = ["gpu-1"]`), Check: labelled(topology, "gpu-1"),
			PreConfig:        func() { cloud.API.Remove(kind, "", "gpu-2") },
			ConfigPlanChecks: is(plancheck.ExpectEmptyPlan()),
		},
		{
			PreConfig: func() { put(t, cloud, "gpu-3", nil) },
			Config:    with(`nodes = ["gpu-3"]`), Check: resource.ComposeTestCheckFunc(labelled(topology, "gpu-3"), labelled(nil, "gpu-1")),
		},
		{Config: with(`nodes = ["gpu-3"]`, `name = "other"`), Check: labelled(map[string]string{contract.NodeModeLabel: "topology", contract.NodePoolNameLabel: "other"}, "gpu-3")},
	}, CheckDestroy: labelled(nil, "gpu-1", "gpu-3")})
}

// Nodes that have gone stand in the way of no destroy.
func TestDestroyOfNodesThatHaveGone(t *testing.T) {
	cloud := start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, with())
	cli.Must(t, "apply", "-auto-approve")
	cloud.API.Remove(kind, "", "gpu-1")
	cli.Must(t, "destroy", "-auto-approve", "-refresh=false")
	assert.NotContains(t, labelsOf(t, cloud, "gpu-2"), contract.NodeModeLabel)
	assert.Equal(t, []string{"gpu-2"}, cloud.NodeNames(t), "no node is made of a name")
}

// Each mistake is found at plan, and shown at its attribute.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		config, attribute, says string
	}{
		"no such node":        {with(`nodes = ["gpu-1", "gpu-3"]`), "nodes", "The cluster has no node gpu-3; its nodes are core-1, gpu-1, gpu-2, pooled, taken, theirs."},
		"node of a pool":      {with(`nodes = ["gpu-1", "pooled"]`), "nodes", "Node pooled is of ACK's node pool np-1, which gives its nodes their labels"},
		"other configuration": {with(`nodes = ["theirs"]`), "nodes", `Node theirs has its GPU mode from a gpuplan_node_gpu already: another Terraform configuration manages it, with the owner "them"`},
		"to core_mem":         {with(`mode = "core_mem"`), "mode", "No label switches a node that exists to or from core_mem or mig (Alibaba Cloud: \"Allocate computing power by scheduling shared GPU\"), and these are of another mode than core_mem: gpu-1 (default), gpu-2 (default)."},
		"from core_mem":       {with(`nodes = ["core-1"]`), "mode", "and these are of another mode than topology: core-1 (core_mem)."},
		"label of another": {with(`nodes = ["taken", "gpu-1"]`, `name = "mine"`), "mode",
			`The plan wants the label ack.node.gpu.schedule to be "topology", and it belongs to someone else: on node taken it is "share", set by "kubectl-label".`},
		"pool of another":   {with(`nodes = ["taken"]`, `name = "mine"`, `mode = "share"`), "name", `The plan wants the label gpuplan.dev/pool to be "mine", and it belongs to someone else: on node taken it is "other", set by "kubectl-label".`},
		"name of others":    {with(`name = "other"`), "name", "The label gpuplan.dev/pool of node taken is other already"},
		"policy":            {with(`gpu_policy = "spread"`), "gpu_policy", `nodes of mode "topology" offer whole GPUs`},
		"unknown mode":      {with(`mode = "topologie"`), "mode", `There is no mode "topologie" for GPU nodes.`},
		"none":              {with(`nodes = []`), "nodes", "must contain at least 1 elements"},
		"no name of a node": {with(`nodes = ["GPU 1"]`), "nodes", "must be the name of a node"},
		"no label":          {with(`name = "-"`), "name", "must have the form of a Kubernetes label value"},
		"a node twice":      {with() + called("y", `name = "y"`, `nodes = ["gpu-2"]`), "nodes", "and a node has one mode: take it out of one of them."},
		"a name twice":      {with() + called("y", `nodes = ["gpu-1"]`), "name", `of this configuration is called "v100" too.`},
		"name of a pool": {with() + "resource \"gpuplan_node_pool\" \"p\" {\n  name = \"v100\"\n  instance_type = \"" + v100 + "\"\n  size = 1\n  vswitch_ids = [\"vsw-1\"]\n}\n", "name",
			`Another gpuplan_node_pool or gpuplan_node_gpu of this configuration is called "v100" too.`},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := start(t)
			put(t, cloud, "pooled", map[string]string{contract.NodePoolIDLabel: "np-1"})
			put(t, cloud, "core-1", map[string]string{contract.NodeModeLabel: "core_mem"})
			put(t, cloud, "theirs", nil)
			_, err := cloud.Kube.Typed.CoreV1().Nodes().Patch(t.Context(), "theirs", types.MergePatchType, []byte(`{"metadata":{"annotations":{"gpuplan.dev/owner":"them"}}}`), metav1.PatchOptions{})
			require.NoError(t, err)
			put(t, cloud, "taken", nil)
			label(t, cloud, "taken", contract.NodeModeLabel, "share")
			label(t, cloud, "taken", contract.NodePoolNameLabel, "other")
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
				{Config: test.config, PlanOnly: true, ExpectError: acctest.SayingAt(test.attribute, test.says)},
			}})
			assert.NotContains(t, labelsOf(t, cloud, "gpu-1"), contract.NodeModeLabel, "a plan writes nothing")
		})
	}
}

// A node that has joined with a mode that no label gives can be named, and so can one whose label has the value already.
func TestNodesThatHaveTheMode(t *testing.T) {
	cloud := start(t)
	put(t, cloud, "core-1", map[string]string{contract.NodeModeLabel: "core_mem"})
	cli := acctest.StartCLI(t)
	cli.Write(t, with(`nodes = ["core-1"]`, `mode = "core_mem"`))
	cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")

	label(t, cloud, "core-1", contract.NodeModeLabel, "share")
	said, err := cli.Run("plan")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "and these are of another mode than core_mem: core-1 (share).", "nor is it labelled back")
}

// What someone else has set is taken over by an import, after which the plan shows the change.
func TestLabelsOfOthersAreTakenOverByAnImport(t *testing.T) {
	cloud := start(t)
	label(t, cloud, "gpu-1", contract.NodeModeLabel, "share")
	label(t, cloud, "gpu-2", contract.NodeModeLabel, "topology")
	cli := acctest.StartCLI(t)
	cli.Write(t, with())
	said, err := cli.Run("plan")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "`terraform import gpuplan_node_gpu.NAME gpu-1`")

	cli.Must(t, "import", address, "gpu-2, gpu-1")
	said = cli.Must(t, "plan")
	assert.Contains(t, said, "1 to change")
	cli.Must(t, "apply", "-auto-approve")
	assert.Equal(t, "topology", labelsOf(t, cloud, "gpu-1")[contract.NodeModeLabel])
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
	said = cli.Must(t, "destroy", "-auto-approve")
	assert.Contains(t, acctest.Unwrapped(said), "ACK's device plugin then leaves a node in the mode that it has, topology: set mode = \"default\"")
	assert.NotContains(t, labelsOf(t, cloud, "gpu-1"), contract.NodeModeLabel)
}

// The settings that no label tells are written on the nodes.
func TestImportPlansNothing(t *testing.T) {
	start(t)
	cli := acctest.StartCLI(t)
	config := with(`mode = "share"`, `gpu_policy = "binpack"`, `allow_disruption = true`, `timeouts = { create = "4m" }`)
	cli.Write(t, config)
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "state", "rm", address)
	cli.Must(t, "import", address, "gpu-1,gpu-2")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}

// What an apply has left that was killed before it could save the state, the next one goes on with; to another
// configuration the nodes are someone else's.
func TestKilledApplyIsContinued(t *testing.T) {
	cloud := start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("us")+with())
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "state", "rm", address)
	assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), "1 added")

	other := acctest.StartCLI(t)
	other.Write(t, acctest.Owner("them")+with(`name = "theirs"`))
	said, err := other.Run("apply", "-auto-approve")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), `another Terraform configuration manages it, with the owner "us" (this one is "them")`)
	assert.Equal(t, "v100", labelsOf(t, cloud, "gpu-1")[contract.NodePoolNameLabel])

	other.Write(t, acctest.Owner("them")+with())
	said = acctest.Unwrapped(other.Must(t, "import", address, "gpu-1,gpu-2"))
	assert.Contains(t, said, `carries the owner "us" of another configuration (this one is "them"), which goes on to change it`)
}

// A node that has left, and is another configuration's since it has joined again, keeps what it got there: a refresh
// takes it out of nodes, and without one neither a change nor a destroy touches it.
func TestNodeThatHasJoinedElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		config  string
		command []string
		says    string // "" for what passes
	}{
		"planned":                    {with(), []string{"plan"}, `another Terraform configuration manages it, with the owner "them" (this one is "us")`},
		"changed without a refresh":  {with(`mode = "default"`), []string{"apply", "-auto-approve", "-refresh=false"}, `another Terraform configuration manages it, with the owner "them" (this one is "us")`},
		"given up":                   {with(`nodes = ["gpu-2"]`), []string{"apply", "-auto-approve"}, ""},
		"given up without a refresh": {with(`nodes = ["gpu-2"]`), []string{"apply", "-auto-approve", "-refresh=false"}, ""},
		"destroyed":                  {with(`nodes = ["gpu-2"]`), []string{"destroy", "-auto-approve"}, ""},
		"destroyed without refresh":  {with(), []string{"destroy", "-auto-approve", "-refresh=false"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := start(t)
			ours, theirs := acctest.StartCLI(t), acctest.StartCLI(t)
			ours.Write(t, acctest.Owner("us")+with())
			ours.Must(t, "apply", "-auto-approve")
			cloud.API.Remove(kind, "", "gpu-1")
			put(t, cloud, "gpu-1", nil)
			theirs.Write(t, acctest.Owner("them")+with(`name = "theirs"`, `nodes = ["gpu-1"]`))
			theirs.Must(t, "apply", "-auto-approve")
			cloud.Put(t, pod("train", "gpu-1", contract.ResourceTopologyGPU))

			ours.Write(t, acctest.Owner("us")+test.config)
			said, err := ours.Run(test.command...)
			assert.Equal(t, test.says == "", err == nil, said)
			assert.Contains(t, acctest.Unwrapped(said), test.says)
			theirs.Unchanged(t)
		})
	}
}

// A configuration that has moved, and with it its stamp, still labels its nodes and takes the labels away.
func TestConfigurationThatHasMoved(t *testing.T) {
	cloud := start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("before")+with())
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, acctest.Owner("after")+with(`name = "other"`))
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, acctest.Owner("again")+with(`name = "other"`))
	cli.Must(t, "destroy", "-auto-approve")
	assert.NotContains(t, labelsOf(t, cloud, "gpu-1"), contract.NodeModeLabel)
}

// What happens between the check and the write is met: a node that goes is not made again, another configuration that
// was faster keeps its node.
func TestMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*testing.T, *acctest.Cloud)
		says    string
	}{
		"a node goes": {func(_ *testing.T, cloud *acctest.Cloud) { cloud.API.Remove(kind, "", "gpu-1") }, "not found"},
		"another one has it": {func(t *testing.T, cloud *acctest.Cloud) {
			_, err := cloud.Kube.Typed.CoreV1().Nodes().Patch(t.Context(), "gpu-1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"gpuplan.dev/owner":"them"}}}`), metav1.PatchOptions{})
			require.NoError(t, err)
		}, `another Terraform configuration manages it, with the owner "them"`},
		"someone labels it":   {func(t *testing.T, cloud *acctest.Cloud) { label(t, cloud, "gpu-1", contract.NodeModeLabel, "share") }, `.metadata.labels.ack.node.gpu.schedule is owned by "kubectl-label"`},
		"its kubelet reports": {func(t *testing.T, cloud *acctest.Cloud) { label(t, cloud, "gpu-1", "example.com/ready", "yes") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := start(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, with(`nodes = ["gpu-1"]`))
			cloud.Meanwhile(t, "nodes", func() { test.happens(t, cloud) })
			said, err := cli.Run("apply", "-auto-approve")
			if test.says == "" {
				require.NoError(t, err, said)
				return
			}
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), test.says)
			for _, node := range cloud.NodeNames(t) {
				assert.NotEqual(t, "topology", labelsOf(t, cloud, node)[contract.NodeModeLabel])
			}
			if name == "a node goes" {
				assert.Equal(t, []string{"gpu-2"}, cloud.NodeNames(t))
			}
		})
	}
}
