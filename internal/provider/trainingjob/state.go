package trainingjob

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// drift takes over what someone changed in the job's object. Labels and
// annotations that others added are theirs.
func (m *model) drift(ctx context.Context, obj *unstructured.Unstructured) (diags diag.Diagnostics) {
	live, err := job.Parse(obj)
	if err != nil {
		diags.AddError("Job cannot be read", session.Sentence(err))
		return diags
	}
	known, _, diags := m.spec(ctx)
	live.Labels, live.Annotations = shared(live.Labels, known.Labels), shared(live.Annotations, known.Annotations)
	before := m.Roles
	m.take(live, differing(known, live))
	taken, _, _ := m.spec(ctx) // a gang without a minimum needs all members, and they may be more or fewer now
	m.take(live, differing(taken, live))
	if !m.Roles.Equal(before) {
		m.keepRoles(ctx, before, known, live)
	}
	return diags
}

// keepRoles leaves the roles that nobody changed as they were written, also where they were not, if all of them still say what
// the job says: a plan shows as changed only what is.
func (m *model) keepRoles(ctx context.Context, before types.Map, known, live job.Spec) {
	elements := m.Roles.Elements()
	for name, role := range known.Roles {
		if !apiequality.Semantic.DeepEqual(role, live.Roles[name]) {
			continue
		}
		if written, ok := before.Elements()[name]; ok {
			elements[name] = written
		} else {
			delete(elements, name)
		}
	}
	kept := *m
	kept.Roles = types.MapValueMust(roleType, elements)
	if spec, _, _ := kept.spec(ctx); apiequality.Semantic.DeepEqual(spec.Roles, live.Complete().Roles) {
		m.Roles = kept.Roles
	}
}

// takeOver fills in an imported job from its object.
func (m *model) takeOver(obj *unstructured.Unstructured) (diags diag.Diagnostics) {
	live, err := job.Parse(obj)
	if err != nil {
		diags.AddError("Job cannot be imported", session.Sentence(err))
		return diags
	}
	m.ID = types.StringValue(live.ID())
	m.Triggers = types.MapNull(types.StringType)
	m.take(live, jobAttributes)
	return m.takePlanned(obj)
}

// takePlanned takes over the planned placement that is written on a job.
func (m *model) takePlanned(obj *unstructured.Unstructured) (diags diag.Diagnostics) {
	m.setPlanned(nil)
	switch record, ok, err := contract.PlannedPlacementFrom(obj.GetAnnotations()); {
	case err != nil:
		diags.AddWarning("Planned placement is lost", session.Sentence(err))
	case ok:
		m.setPlanned(assignment.FromRecord(record))
		if record.Cluster != "" {
			m.PlannedCluster = types.StringValue(record.Cluster)
		}
	}
	return diags
}

// take sets attributes as the job has them.
func (m *model) take(s job.Spec, attributes []jobAttribute) {
	s = s.Brief()
	if s.SchedulerName == contract.SchedulerName {
		s.SchedulerName = ""
	}
	for _, a := range attributes {
		if a.property.take != nil {
			a.property.take(m, s)
		}
	}
}

// shared returns the entries of all whose keys are in known.
func shared(all, known map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { _, ok := known[key]; return !ok })
	return out
}

func mapValue(in map[string]string) types.Map {
	if len(in) == 0 {
		return types.MapNull(types.StringType)
	}
	elements := map[string]attr.Value{}
	for key, value := range in {
		elements[key] = types.StringValue(value)
	}
	return types.MapValueMust(types.StringType, elements)
}

func listValue(in []string) types.List {
	if len(in) == 0 {
		return types.ListNull(types.StringType)
	}
	elements := make([]attr.Value, len(in))
	for i, text := range in {
		elements[i] = types.StringValue(text)
	}
	return types.ListValueMust(types.StringType, elements)
}
