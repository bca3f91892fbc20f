package live_test

import (
	"fmt"
	"maps"
	"slices"
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
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// gangs are jobs of an MPI launcher and workers with one GPU each, by name, with
// more attributes.
type gangs map[string]struct {
	workers int
	more    string
}

// setting is a configuration: a pool of machines with eight GPUs, a tree with the leaves
// a and b, and jobs.
type setting struct {
	size int
	// max is the maximum of leaf a, 0 for no tree.
	max   int
	gangs gangs
	more  string
}

func (s setting) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, `
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = %d
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }
resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }
`, s.size)
	if s.max > 0 {
		fmt.Fprintf(&b, `
resource "gpuplan_quota_tree" "main" {
  total = { "aliyun.com/gpu" = "24" }
  quotas = {
    a = { max = { "aliyun.com/gpu" = "%d" } }
    b = { min = { "aliyun.com/gpu" = "8" }, max = { "aliyun.com/gpu" = "24" } }
  }
  depends_on = [gpuplan_scheduler.this]
}
`, s.max)
	}
	for _, name := range slices.Sorted(maps.Keys(s.gangs)) {
		more := s.gangs[name].more
		if !strings.Contains(more, "pools") {
			more += "\n  pools = [gpuplan_node_pool.v100.capacity]"
		}
		if !strings.Contains(more, "timeouts") {
			more += "\n  timeouts = { create = \"10m\", update = \"10m\" }"
		}
		fmt.Fprintf(&b, `
resource "gpuplan_training_job" %q {
  name       = %q
  framework  = "mpi"
  image      = "train:1"
  roles      = { worker = { replicas = %d, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
  %s
}
`, name, name, s.gangs[name].workers, more)
	}
	return b.String() + s.more
}

// applied is a step that applies the setting; the named jobs run then, as planned where
// the plan said where.
func (s setting) applied(running ...string) resource.TestStep {
	step := resource.TestStep{Config: s.config()}
	for _, name := range running {
		step.ConfigStateChecks = append(step.ConfigStateChecks,
			statecheck.ExpectKnownValue(address(name), tfjsonpath.New("status"), knownvalue.StringExact("Running")),
			statecheck.ExpectKnownValue(address(name), tfjsonpath.New("placement_as_planned"), neverFalse{}))
	}
	return step
}

// refused is a step whose plan fails.
func (s setting) refused(words string) resource.TestStep {
	return resource.TestStep{Config: s.config(), PlanOnly: true, ExpectError: acctest.Saying(words)}
}

// warned is a step whose plan passes, with changes.
func (s setting) warned() resource.TestStep {
	return resource.TestStep{Config: s.config(), PlanOnly: true, ExpectNonEmptyPlan: true}
}

func address(job string) string { return "gpuplan_training_job." + job }

// neverFalse accepts that nothing was promised, and no promise that was broken.
type neverFalse struct{}

func (neverFalse) String() string { return "no broken promise" }
func (neverFalse) CheckValue(v any) error {
	if v == false {
		return fmt.Errorf("the job does not run where the plan said")
	}
	return nil
}

func unknownPlacement(step resource.TestStep, job string) resource.TestStep {
	step.ConfigPlanChecks.PreApply = append(step.ConfigPlanChecks.PreApply,
		plancheck.ExpectUnknownValue(address(job), tfjsonpath.New("planned_placement")))
	return step
}

func knownPlacement(step resource.TestStep, job string) resource.TestStep {
	step.ConfigPlanChecks.PreApply = append(step.ConfigPlanChecks.PreApply,
		plancheck.ExpectKnownValue(address(job), tfjsonpath.New("planned_placement"), knownvalue.NotNull()))
	step.ConfigStateChecks = append(step.ConfigStateChecks,
		statecheck.ExpectKnownValue(address(job), tfjsonpath.New("placement_as_planned"), knownvalue.Bool(true)))
	return step
}

// runningPods counts the pods of a job that run.
func runningPods(t *testing.T, client *kube.Client, job string) int {
	t.Helper()
	list, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + job})
	require.NoError(t, err)
	running := 0
	for _, pod := range list.Items {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && pod.Labels[contract.JobReplicaTypeLabel] == "worker" {
			running++
		}
	}
	return running
}

// runs waits until so many members of a job run: a job starts when the pods in its own place have left,
// while others of their gang are still being deleted.
func runs(t *testing.T, client *kube.Client, job string, members int) func(*terraform.State) error {
	return func(*terraform.State) error {
		assert.Eventually(t, func() bool { return runningPods(t, client, job) == members }, time.Minute, 50*time.Millisecond, job)
		return nil
	}
}

// What the same plan frees is counted in, and what it does not free is not.
func TestWhatThePlanFrees(t *testing.T) {
	client := acctest.OnPlatform(t)
	suspended := "suspend = true"

	renamed := unknownPlacement(setting{size: 2, gangs: gangs{"b": {16, ""}}}.applied("b"), "b")
	both := setting{size: 2, gangs: gangs{"b": {16, ""}, "c": {8, ""}}}
	changed := unknownPlacement(setting{size: 2, gangs: gangs{"b": {16, suspended}, "c": {9, `after = [gpuplan_training_job.b.placed]`}}}.applied("c"), "c")
	changed.Check = runs(t, client, "b", 0)
	resumed := setting{size: 2, gangs: gangs{"b": {16, ""}, "c": {9, `after = [gpuplan_training_job.b.placed]`}}}
	handedBack := unknownPlacement(setting{size: 2, gangs: gangs{"b": {16, ""}}}.applied("b"), "b")
	handedBack.Check = runs(t, client, "b", 16)
	shrunk := knownPlacement(setting{size: 1, gangs: gangs{"b": {8, ""}}}.applied("b"), "b")

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			knownPlacement(setting{size: 2, gangs: gangs{"a": {16, ""}}}.applied("a"), "a"),
			renamed,
			both.refused("Job default/c does not fit: 0 of 8 members fit"),
			changed,
			resumed.refused("Job default/b does not fit: 7 of 16 members fit"),
			handedBack,
			setting{size: 1, gangs: gangs{"b": {16, ""}}}.refused("The plan shrinks node pool v100 from 2 to 1 node (the cloud chooses which ones go), on which job default/b runs, and the job stays."),
			setting{size: 1, gangs: gangs{"b": {9, ""}}}.refused("Job default/b does not fit"),
			shrunk,
			setting{size: 0, gangs: gangs{"b": {8, ""}}}.refused("on which job default/b runs, and the job stays"),
			{Config: setting{size: 0}.config()},
		},
	})
}

// Nobody is evicted for a job unless the plan has said so, and has been agreed to.
func TestPreemptionIsPlanned(t *testing.T) {
	client := acctest.OnPlatform(t)
	localtest.CreatePriorityClass(t, client.Typed, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})
	const urgent, agreed = "priority_class = \"urgent\"\n", "allow_preemption = true\n"
	low := setting{size: 3, gangs: gangs{"low": {24, ""}}}
	with := func(more string) setting {
		return setting{size: 3, gangs: gangs{"low": {24, ""}, "high": {8, more}}}
	}
	anywhere := urgent + "pools = null\n"
	evicted := unknownPlacement(with(urgent+agreed).applied("high"), "high")
	evicted.ConfigStateChecks = append(evicted.ConfigStateChecks, statecheck.ExpectKnownValue(address("high"), tfjsonpath.New("placement_as_planned"), knownvalue.Bool(true)))
	evicted.Check = runs(t, client, "low", 0)
	const names = "Job default/high has no free place, and the scheduler would evict for it: default/low (25 pods, priority 0)."

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			low.applied("low"),
			with("").refused("Job default/high does not fit: 0 of 8 members fit"),
			with(urgent).refused(names),
			with(anywhere).refused(names),
			with(urgent + "placement_check = \"warn\"\n").warned(),
			with(urgent + "placement_check = \"off\"\n").warned(),
			evicted,
		},
	})
}

// A gang within the minimum of its leaf takes back what others have borrowed: the plan says from whom, and asks for consent.
func TestReclaimIsPlanned(t *testing.T) {
	client := acctest.OnPlatform(t)
	const owner, agreed = "quota = \"b\"\n", "allow_preemption = true\n"
	borrows := gangs{"guest": {16, "quota = gpuplan_quota_tree.main.leaves[\"a\"]"}}
	with := func(more string) setting {
		all := maps.Clone(borrows)
		all["owner"] = gangs{"owner": {8, more}}["owner"]
		return setting{size: 2, max: 16, gangs: all}
	}
	reclaims := unknownPlacement(with(owner+agreed).applied("owner"), "owner")
	reclaims.Check = runs(t, client, "guest", 0)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			setting{size: 2, max: 16, gangs: borrows}.applied("guest"),
			with(owner).refused("Job default/owner has no free place, and the scheduler would evict for it: default/guest (17 pods, priority 0, quota a)."),
			with("").refused("Job default/owner does not fit: 0 of 8 members fit"),
			reclaims,
		},
	})
}

// What is no error without consent to wait, or without a check, the plan says all the same.
func TestWarningsOfAPlan(t *testing.T) {
	client := acctest.OnPlatform(t)
	localtest.CreatePriorityClass(t, client.Typed, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})
	cli := acctest.StartCLI(t)
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })
	const urgent, evicts = "priority_class = \"urgent\"\n", "Warning: Running jobs would be evicted"
	for _, group := range []struct {
		busy    setting
		workers int
		says    string
		rows    map[string]string
	}{
		{setting{size: 2, max: 8, gangs: gangs{"x": {8, "quota = gpuplan_quota_tree.main.leaves[\"a\"]"}}}, 1, "Warning: Job waits for its quota", map[string]string{
			"quota in use": "quota = \"a\"\n", "quota in use, anywhere": "quota = \"a\"\npools = null\n",
		}},
		{setting{size: 2, gangs: gangs{"x": {16, ""}}}, 8, evicts, map[string]string{
			"eviction that is not checked": urgent + "placement_check = \"off\"\n", "eviction that is to be a warning": urgent + "placement_check = \"warn\"\n",
			"eviction that is agreed to": urgent + "allow_preemption = true\n",
		}},
	} {
		cli.Write(t, group.busy.config())
		cli.Must(t, "apply", "-auto-approve")
		for name, more := range group.rows {
			t.Run(name, func(t *testing.T) {
				with := group.busy
				with.gangs = maps.Clone(with.gangs)
				with.gangs["y"] = gangs{"y": {group.workers, more}}["y"]
				cli.Write(t, with.config())
				output := acctest.Unwrapped(cli.Must(t, "plan"))
				assert.Contains(t, output, group.says)
				assert.Contains(t, output, "default/x")
			})
		}
	}
}

// Quota that is in use counts, however the job names its leaf and its nodes, and the data
// source says the same.
func TestQuotaInUseIsPlanned(t *testing.T) {
	client := acctest.OnPlatform(t)
	busy := gangs{"x": {8, `quota = gpuplan_quota_tree.main.leaves["a"]`}}
	with := func(most int, more string) setting {
		all := maps.Clone(busy)
		all["y"] = gangs{"y": {1, more}}["y"]
		return setting{size: 2, max: most, gangs: all}
	}
	const immediately = "require_immediate = true\n"
	steps := []resource.TestStep{setting{size: 2, max: 8, gangs: busy}.applied("x")}
	for _, leaf := range []string{"quota = \"a\"\n", "quota = gpuplan_quota_tree.main.leaves[\"a\"]\n"} {
		for _, pools := range []string{"", "pools = null\n"} {
			steps = append(steps, with(8, leaf+pools+immediately).refused("but not into its quota beside what runs now"), with(8, leaf+pools).warned())
		}
		steps = append(steps, with(8, leaf+immediately).refused("It waits until enough of what uses this quota has ended: default/x."))
		asked := setting{size: 2, max: 8, gangs: busy, more: `
data "gpuplan_placement" "this" {
  pools = [gpuplan_node_pool.v100.capacity]
  roles = { worker = { replicas = 1, gpus = 1 } }
  ` + leaf + `}
output "fits" { value = data.gpuplan_placement.this.fits }
`}
		answered := resource.TestStep{Config: asked.config(), ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownOutputValue("fits", knownvalue.Bool(false))}}
		steps = append(steps, answered, answered)
	}
	waits := with(8, "quota = \"a\"\nwait_for = \"none\"\n").applied()
	waits.Check = runs(t, client, "y", 0)
	raised := with(9, "quota = \"a\"\nwait_for = \"running\"\n").applied()
	steps = append(steps, waits, raised, with(9, "quota = \"a\"\ntriggers = { again = 1 }\n"+immediately).applied("y"))
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: steps})
}
