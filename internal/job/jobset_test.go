package job

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestJobSetStatus(t *testing.T) {
	const begun = "2026-01-01T00:00:00Z"
	condition := func(kind, status string) []any {
		return []any{map[string]any{"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": begun}}
	}
	roles := func(driver, worker map[string]any) []any {
		driver["name"], worker["name"] = "driver", "worker"
		return []any{driver, worker}
	}
	count := func(of string) map[string]any { return map[string]any{of: int64(1)} }
	for name, test := range map[string]struct {
		status         map[string]any
		phase          Phase
		active         int32
		runs, started  bool
		finished, held bool
	}{
		"not looked at":    {phase: Pending},
		"no Jobs run":      {status: map[string]any{"replicatedJobsStatus": roles(map[string]any{}, map[string]any{})}, phase: Pending},
		"waits for GPUs":   {status: map[string]any{"replicatedJobsStatus": roles(count("active"), count("active"))}, phase: Created, started: true},
		"the driver alone": {status: map[string]any{"replicatedJobsStatus": roles(count("ready"), count("active"))}, phase: Created, active: 1, started: true},
		"runs without it":  {status: map[string]any{"replicatedJobsStatus": roles(count("active"), count("ready"))}, phase: Running, active: 4, started: true},
		"runs":             {status: map[string]any{"replicatedJobsStatus": roles(count("ready"), count("ready"))}, phase: Running, active: 5, runs: true, started: true},
		"one role is done": {status: map[string]any{"replicatedJobsStatus": roles(count("ready"), count("succeeded"))}, phase: Running, active: 1, runs: true, started: true},
		"starts again":     {status: map[string]any{"restarts": int64(1)}, phase: Restarting, started: true},
		"suspended":        {status: map[string]any{"conditions": condition("Suspended", "True")}, phase: Suspended, held: true},
		"resumed":          {status: map[string]any{"conditions": condition("Suspended", "False"), "replicatedJobsStatus": roles(count("active"), count("active"))}, phase: Created, started: true},
		"failed":           {status: map[string]any{"conditions": condition("Failed", "True")}, phase: Failed, started: true, finished: true},
		"done":             {status: map[string]any{"conditions": condition("Completed", "True"), "replicatedJobsStatus": roles(count("succeeded"), count("succeeded"))}, phase: Succeeded, started: true, finished: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := jobSetGang()
			s.Suspend = test.held
			obj, err := s.Render()
			require.NoError(t, err)
			obj.Object["status"] = test.status
			status, err := StatusOf(obj)
			require.NoError(t, err)
			assert.Equal(t, test.phase, status.Phase)
			assert.Equal(t, test.active, status.Active)
			assert.Equal(t, test.runs, status.Runs(4))
			assert.Equal(t, test.started, status.Start != nil)
			assert.Equal(t, test.finished, status.Completion != nil)
			assert.EqualValues(t, 5, status.Wanted)
		})
	}
}

// A role that waits for another one, until that is done maybe, is not missing while the other one runs.
func TestJobSetOfWhichARoleWaits(t *testing.T) {
	obj, err := jobSetGang().Render()
	require.NoError(t, err)
	for _, role := range obj.Object["spec"].(map[string]any)["replicatedJobs"].([]any) { //nolint:forcetypeassert // as rendered
		if role := role.(map[string]any); role["name"] == "worker" { //nolint:forcetypeassert // as rendered
			role["dependsOn"] = []any{map[string]any{"name": "driver", "status": "Complete"}}
		}
	}
	status, err := StatusOf(obj)
	require.NoError(t, err)
	assert.EqualValues(t, 1, status.Wanted)
}

// Nobody can change the roles of a JobSet, nor how it fails, but for labels and annotations while it is suspended.
func TestRolesOfAJobSetAreKept(t *testing.T) {
	label := func(obj *unstructured.Unstructured, key string) string {
		roles := jobSetRoles(obj)
		if len(roles) == 0 {
			return ""
		}
		value, _, err := unstructured.NestedString(roles[0], "template", "spec", "template", "metadata", "labels", key)
		require.NoError(t, err)
		return value
	}
	for name, test := range map[string]struct {
		suspended, others bool
		team, manager     string
		roles             int
	}{
		"runs":                 {team: "a", manager: contract.ManagedByValue, roles: 2},
		"suspended":            {suspended: true, team: "b", manager: contract.ManagedByValue, roles: 2},
		"of others":            {others: true},
		"of others, suspended": {others: true, suspended: true, team: "b", manager: contract.ManagedByValue, roles: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := jobSetPlain()
			s.Labels, s.Suspend, s.BackoffLimit = map[string]string{"team": "a"}, test.suspended, ptr.To[int32](1)
			live, err := s.Render()
			require.NoError(t, err)
			require.NoError(t, unstructured.SetNestedField(live.Object, "rl", "spec", "network", "subdomain"))
			if test.others {
				roles := jobSetRoles(live)
				for _, role := range roles {
					unstructured.RemoveNestedField(role, "template", "spec", "template", "metadata", "labels", contract.ManagedByLabel)
				}
				require.NoError(t, unstructured.SetNestedSlice(live.Object, []any{roles[0], roles[1]}, "spec", "replicatedJobs"))
				unstructured.RemoveNestedField(live.Object, "spec", "failurePolicy")
			}
			s.Labels, s.Suspend, s.BackoffLimit = map[string]string{"team": "b"}, false, nil
			after, err := s.Render()
			require.NoError(t, err)
			require.NoError(t, Keep(after, live))
			assert.Equal(t, "b", after.GetLabels()["team"])
			assert.Len(t, jobSetRoles(after), test.roles)
			assert.Equal(t, test.team, label(after, "team"))
			assert.Equal(t, test.manager, label(after, contract.ManagedByLabel))
			for _, field := range []string{"network", "failurePolicy"} {
				want, _, _ := unstructured.NestedMap(live.Object, "spec", field)
				kept, _, _ := unstructured.NestedMap(after.Object, "spec", field)
				assert.Equal(t, want, kept, field)
			}
		})
	}
}

func TestForeignJobSet(t *testing.T) {
	of := func(change func(role map[string]any)) string {
		obj, err := jobSetPlain().Render()
		require.NoError(t, err)
		roles := jobSetRoles(obj)
		change(roles[1])
		require.NoError(t, unstructured.SetNestedSlice(obj.Object, []any{roles[0], roles[1]}, "spec", "replicatedJobs"))
		return Foreign(obj)
	}
	assert.Empty(t, of(func(map[string]any) {}))
	assert.Empty(t, of(func(role map[string]any) { delete(role, "replicas") }))
	assert.Contains(t, of(func(role map[string]any) { role["replicas"] = int64(3) }), "replicatedJob learner is 3 Jobs")
	assert.Contains(t, of(func(role map[string]any) {
		require.NoError(t, unstructured.SetNestedField(role, "NonIndexed", "template", "spec", "completionMode"))
	}), "completionMode of its replicatedJob learner is NonIndexed")
}

// A role of others may be several Jobs, each with its own numbers.
func TestPodsOfARoleOfSeveralJobs(t *testing.T) {
	obj, err := jobSetPlain().Render()
	require.NoError(t, err)
	roles := jobSetRoles(obj)
	roles[0]["replicas"] = int64(2)
	require.NoError(t, unstructured.SetNestedSlice(obj.Object, []any{roles[0]}, "spec", "replicatedJobs"))
	pods, err := Pods(obj)
	require.NoError(t, err)
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	assert.Equal(t, []string{"rl-actor-0-0", "rl-actor-0-1", "rl-actor-1-0", "rl-actor-1-1"}, names)
	status, err := StatusOf(obj)
	require.NoError(t, err)
	assert.EqualValues(t, 3, status.Wanted, "its gang needs no more")
}

func TestJobSetClashes(t *testing.T) {
	s := jobSetPlain()
	obj, err := s.Render()
	require.NoError(t, err)
	assert.True(t, Clashes(obj))
	s.Gang, s.Mode = false, Default
	obj, err = s.Render()
	require.NoError(t, err)
	assert.False(t, Clashes(obj))
}

func TestCheckJobSet(t *testing.T) {
	for name, test := range map[string]struct {
		change            func(*Spec)
		role, field, text string
	}{
		"restart":      {func(s *Spec) { s.RestartPolicy = "Always" }, "", "restart_policy", `"Always" is not possible with framework "jobset"`},
		"pods":         {func(s *Spec) { s.CleanPodPolicy = "All" }, "", "clean_pod_policy", "keeps the pods of what has finished"},
		"arena":        {func(s *Spec) { s.Arena = true }, "", "arena_compatible", "arena knows no jobs"},
		"processes":    {func(s *Spec) { s.ProcessesPerNode = "8" }, "", "nproc_per_node", "nothing starts processes"},
		"no role":      {func(s *Spec) { s.Roles = nil }, "", "roles", `needs a role, such as "worker"`},
		"minimum":      {func(s *Spec) { s.Minimum = 2 }, "", "gang", "only whether all do"},
		"of a role":    {func(s *Spec) { set(s, "actor", func(r *Role) { r.Minimum = 1 }) }, "", "gang", "only whether all do"},
		"of the marks": {func(s *Spec) { s.Labels = map[string]string{contract.JobSetRoleLabel: "x"} }, "", "labels", "is set by the controller of JobSets"},
		"role name":    {func(s *Spec) { s.Roles["Critic"] = s.Roles["actor"] }, "Critic", "", `"Critic" cannot be the name of a role`},
		"long name": {func(s *Spec) { s.Name = strings.Repeat("a", 46) }, "", "name",
			`the pod name "` + strings.Repeat("a", 46) + `-learner-0-0-abcde" would have 64 characters`},
		"a digit": {func(s *Spec) { s.Name = "2026-run" }, "", "name", "cannot be the name of a job"},
	} {
		t.Run(name, func(t *testing.T) {
			s := jobSetPlain()
			require.Empty(t, s.Check())
			test.change(&s)
			problems := s.Check()
			require.Len(t, problems, 1)
			assert.Equal(t, test.field, problems[0].Field)
			assert.Equal(t, test.role, problems[0].Role)
			assert.Contains(t, problems[0].Text, test.text)
		})
	}
}
