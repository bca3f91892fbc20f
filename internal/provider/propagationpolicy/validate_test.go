package propagationpolicy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const trainJobs = `  resource_selectors = [{ api_version = "kubeflow.org/v1", kind = "PyTorchJob" }, { api_version = "trainer.kubeflow.org/v1alpha1", kind = "TrainJob" }]
`

// Each broken rule is found at plan, and named by its attribute.
func TestBadInput(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	cli := acctest.StartCLI(t)
	gang := func(mode string) string {
		return selector + "  propagate_deps = true\n  failover = { application = { decision_conditions = {}" + mode + " } }\n  placement = { replica_scheduling = { custom_scheduling_type = \"Gang\" } }"
	}
	failover := func(more string) string {
		return selector + "  propagate_deps = true\n  failover = { application = { " + more + " } }"
	}
	placement := func(more string) string { return selector + "  placement = { " + more + " }" }
	for name, test := range map[string]struct{ attributes, says string }{
		"no selector":               {"  resource_selectors = []", "resource_selectors list must contain at least 1 elements"},
		"no version":                {`  resource_selectors = [{ api_version = "a/b/c", kind = "X" }]`, `resource_selectors[0].api_version: "a/b/c" is no version of an API`},
		"empty version":             {`  resource_selectors = [{ api_version = "", kind = "X" }]`, `resource_selectors[0].api_version: "" is no version of an API`},
		"no kind":                   {`  resource_selectors = [{ api_version = "v1", kind = "" }]`, "resource_selectors[0].kind: a kind is needed"},
		"another namespace":         {`  resource_selectors = [{ api_version = "v1", kind = "X", namespace = "other" }]`, `resource_selectors[0].namespace: the policy is in the namespace "default"`},
		"labels that are none":      {`  resource_selectors = [{ api_version = "v1", kind = "X", label_selector = { match_labels = { "a b" = "c" } } }]`, "resource_selectors[0].label_selector: this is no selector of labels"},
		"an operator without value": {`  resource_selectors = [{ api_version = "v1", kind = "X", label_selector = { match_expressions = [{ key = "a", operator = "In" }] } }]`, "resource_selectors[0].label_selector: this is no selector of labels"},
		"a selector twice":          {`  resource_selectors = [{ api_version = "v1", kind = "X" }, { api_version = "v1", kind = "X" }]`, "resource_selectors[1]: this is the same as resource_selectors[0]"},
		"preemption of anything":    {selector + `  preemption = "Always"`, `resource_selectors[0]: with preemption = "Always" every selector needs a name`},
		"unknown preemption":        {selector + `  preemption = "Maybe"`, `preemption value must be one of: ["Always" "Never"]`},
		"priority of no policy":     {selector + `  priority = 2147483648`, "priority value must be between -2147483648 and 2147483647"},
		"failover without deps":     {selector + `  failover = { application = { decision_conditions = {}, purge_mode = "Never" } }`, "failover.application: a job can move to another cluster only with what it refers to: set propagate_deps = true"},
		"negative patience":         {failover("decision_conditions = { toleration_seconds = -1 }"), "failover.application.decision_conditions.toleration_seconds value must be between 0 and 2147483647"},
		"grace of another mode":     {failover(`decision_conditions = {}, purge_mode = "Directly", grace_period_seconds = 5`), `failover.application.grace_period_seconds: only purge_mode = "Gracefully" waits`},
		"no grace":                  {failover(`decision_conditions = {}, grace_period_seconds = 0`), "grace_period_seconds value must be between 1 and"},
		"a gang that is doubled":    {gang(`, purge_mode = "Gracefully"`), `failover.application.purge_mode: Gracefully lets a gang`},
		"by its older name":         {gang(`, purge_mode = "Graciously"`), `Graciously lets a gang (placement.replica_scheduling.custom_scheduling_type = "Gang") that moves to another cluster run in both: write "Directly"`},
		"by default":                {gang(""), "failover.application.purge_mode: Gracefully, the default, lets a gang"},
		"by its scheduler":          {failover(`decision_conditions = {}`) + "\n  scheduler_name = \"gpuplan-fleet-scheduler\"", `Gracefully, the default, lets a gang (scheduler_name = "gpuplan-fleet-scheduler") that moves`},
		"left behind":               {gang(`, purge_mode = "Directly"`) + "\n  preserve_resources_on_deletion = true", "preserve_resources_on_deletion: what it leaves of a gang (placement.replica_scheduling.custom_scheduling_type = \"Gang\")"},
		"never deleted":             {gang(`, purge_mode = "Never"`), "failover.application.purge_mode: Never lets a gang"},
		"a gang in every cluster":   {placement(`replica_scheduling = { replica_scheduling_type = "Duplicated", custom_scheduling_type = "Gang" }`), `placement.replica_scheduling.replica_scheduling_type: "Duplicated" sends the whole job to every cluster`},
		"TrainJobs as gangs":        {trainJobs + `  scheduler_name = "gpuplan-fleet-scheduler"`, "resource_selectors[1]: a TrainJob has its pods in a TrainingRuntime, which the hub does not have, and gpuplan-fleet-scheduler sends none to a cluster: select JobSets, and make the jobs those"},
		"no type of gang":           {placement(`replica_scheduling = { custom_scheduling_type = "Mob" }`), `custom_scheduling_type value must be one of: ["Gang"]`},
		"two kinds of affinity":     {placement(`cluster_affinity = {}, cluster_affinities = [{ affinity_name = "a" }]`), "placement.cluster_affinities: not together with cluster_affinity"},
		"a group twice":             {placement(`cluster_affinities = [{ affinity_name = "a" }, { affinity_name = "a" }]`), `placement.cluster_affinities[1].affinity_name: the name "a" is that of cluster_affinities[0] already`},
		"a group without name":      {placement(`cluster_affinities = [{ affinity_name = "" }]`), `placement.cluster_affinities[0].affinity_name: "" cannot be the name of a group`},
		"a cluster twice":           {placement(`cluster_affinity = { cluster_names = ["a", "a"] }`), `placement.cluster_affinity.cluster_names[1]: the cluster "a" is there twice`},
		"no cluster":                {placement(`cluster_affinity = { exclude = ["A_1"] }`), `placement.cluster_affinity.exclude[0]: "A_1" cannot be the name of a cluster`},
		"no field":                  {placement(`cluster_affinity = { field_selector = { match_expressions = [{ key = "city", operator = "In", values = ["x"] }] } }`), `placement.cluster_affinity.field_selector.match_expressions[0].key: "city" is no field of clusters that can be selected by: write provider, region or zone`},
		"no value of a field":       {placement(`cluster_affinity = { field_selector = { match_expressions = [{ key = "zone", operator = "In" }] } }`), "field_selector.match_expressions[0].values: at least one value is needed"},
		"value of what exists":      {placement(`cluster_tolerations = [{ key = "a", operator = "Exists", value = "b" }]`), "placement.cluster_tolerations[0].value: with operator Exists no value counts"},
		"no key":                    {placement(`cluster_tolerations = [{ value = "b" }]`), "placement.cluster_tolerations[0]: without a key it is for every taint"},
		"for a time":                {placement(`cluster_tolerations = [{ key = "a", toleration_seconds = 1 }]`), "placement.cluster_tolerations[0].toleration_seconds: only taints with effect NoExecute"},
		"more at least than most":   {placement(`spread_constraints = [{ min_groups = 3, max_groups = 2 }]`), "placement.spread_constraints[0].max_groups: 2 is less than min_groups, 3"},
		"by field and label":        {placement(`spread_constraints = [{ spread_by_field = "cluster", spread_by_label = "a" }]`), "placement.spread_constraints[0].spread_by_label: not together with spread_by_field"},
		"by a field twice":          {placement(`spread_constraints = [{}, { spread_by_field = "cluster" }]`), "placement.spread_constraints[1].spread_by_field: there is a constraint by cluster already"},
		"by zone alone":             {placement(`spread_constraints = [{ spread_by_field = "zone" }]`), "placement.spread_constraints: a constraint by a field of clusters needs one by cluster beside it"},
		"no weight":                 {placement(`replica_scheduling = { weight_preference = { static_weight_list = [{ target_cluster = {}, weight = 0 }] } }`), "weight value must be between 1 and"},
		"weights of both kinds":     {placement(`replica_scheduling = { weight_preference = { dynamic_weight = "AvailableReplicas", static_weight_list = [{ target_cluster = {}, weight = 1 }] } }`), "placement.replica_scheduling.weight_preference.dynamic_weight: not together with static_weight_list"},
		"a weight of no cluster":    {placement(`replica_scheduling = { weight_preference = { static_weight_list = [{ target_cluster = { cluster_names = [""] }, weight = 1 }] } }`), `static_weight_list[0].target_cluster.cluster_names[0]: "" cannot be the name of a cluster`},
		"all wait, and some":        {selector + `  suspension = { dispatching = true, dispatching_on_clusters = { cluster_names = ["a"] } }`, "suspension.dispatching_on_clusters: not together with dispatching = true"},
	} {
		t.Run(name, func(t *testing.T) {
			cli.Refuses(t, policyOf(test.attributes), acctest.Saying(test.says))
		})
	}
	t.Run("no name", func(t *testing.T) {
		cli.Refuses(t, "resource \"gpuplan_propagation_policy\" \"main\" {\n  name = \"A b\"\n"+selector+"}\n", acctest.Saying(`name: "A b" cannot be the name of a policy`))
		cli.Refuses(t, policyOf(selector+"  namespace = \"a.b\""), acctest.Saying(`namespace: "a.b" cannot be a namespace`))
	})
}

// What has no effect warns; what is unknown is not held against the rules.
func TestWhatOnlyWarns(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	cli := acctest.StartCLI(t)
	for name, test := range map[string]struct{ attributes, says string }{
		"labels beside a name":     {`  resource_selectors = [{ api_version = "v1", kind = "X", name = "a", label_selector = {} }]`, "resource_selectors[0].label_selector: beside a name labels do not count"},
		"TrainJobs as ACK's gangs": {trainJobs + `  placement = { replica_scheduling = { custom_scheduling_type = "Gang" } }`, "resource_selectors[1]: a TrainJob has its pods in a TrainingRuntime, which the hub does not have: neither the scheduler of gangs of gpuplan nor its queue lets one go"},
		"TrainJobs that are held":  {trainJobs + `  suspension = { scheduling = true }`, "nor its queue lets one go"},
		"weights of few clusters":  {selector + `  placement = { replica_scheduling = { replica_division_preference = "Aggregated", weight_preference = { dynamic_weight = "AvailableReplicas" } } }`, "weights do not count with"},
		"weights of whole jobs":    {selector + `  placement = { replica_scheduling = { replica_scheduling_type = "Duplicated", weight_preference = {} } }`, "nothing is divided"},
		"a mode that is not known": {selector + "  propagate_deps = true\n  failover = { application = { decision_conditions = {}, purge_mode = terraform_data.later.output } }\n  placement = { replica_scheduling = { custom_scheduling_type = \"Gang\" } }", "1 resource"},
	} {
		t.Run(name, func(t *testing.T) {
			cli.Write(t, "resource \"terraform_data\" \"later\" {\n  input = \"Gracefully\"\n}\n"+policyOf(test.attributes))
			output, err := cli.Run("plan")
			said := acctest.Unwrapped(output)
			if !assert.NoError(t, err, said) || name == "a mode that is not known" {
				return
			}
			assert.Contains(t, said, test.says)
		})
	}
	_, err := cli.Run("apply", "-auto-approve", "-target=terraform_data.later")
	assert.NoError(t, err)
}
