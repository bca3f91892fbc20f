package trainingjob

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/int32validator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
)

// unknownImage stands for an image that is unknown until apply: which one it is
// says nothing about where the job runs.
const unknownImage = "(known after apply)"

// container are the attributes of the job that each role can override.
type container struct {
	Image      types.String `tfsdk:"image"`
	Command    types.List   `tfsdk:"command"`
	Args       types.List   `tfsdk:"args"`
	Env        types.Map    `tfsdk:"env"`
	WorkingDir types.String `tfsdk:"working_dir"`
}

// roleModel is one entry of "roles".
type roleModel struct {
	container
	Replicas    types.Int32  `tfsdk:"replicas"`
	Minimum     types.Int32  `tfsdk:"minimum"`
	GPUs        types.Int64  `tfsdk:"gpus"`
	MemoryGiB   types.Int64  `tfsdk:"memory_gib"`
	CorePercent types.Int64  `tfsdk:"core_percent"`
	CPU         types.String `tfsdk:"cpu"`
	Memory      types.String `tfsdk:"memory"`
	RDMA        types.Bool   `tfsdk:"rdma"`
}

var (
	roleType    = typeOf(roleSchemas)
	roleSchemas = func() map[string]schema.Attribute {
		all := schemas(roleAttributes)
		for _, a := range containerAttributes {
			all[a.name] = a.ofRole
		}
		return all
	}()
)

// roleAttributes are what only a role has.
var roleAttributes = []attribute[roleModel, job.Role]{
	{
		name: "replicas",
		schema: schema.Int32Attribute{
			MarkdownDescription: fmt.Sprintf("Number of replicas, default 1; all roles together have at most %d. ", job.MaxReplicas) +
				"There is one master, and one launcher. Where the plan sees the cluster, it also refuses a launcher that has no room beside the workers (\"Launcher does not fit\").",
			Optional: true,
		},
		property: says(replicaCounts, func(m *roleModel) *types.Int32 { return &m.Replicas }, func(r *job.Role) *int32 { return &r.Replicas }),
		places:   true,
	},
	{
		name: "minimum",
		schema: schema.Int32Attribute{
			MarkdownDescription: "How many replicas of the role must run, beside those that the other roles need. Without `gang.minimum` the gang needs " +
				"as many members as its roles together: of a role without a minimum all. A role that asks for no GPU has none.",
			Optional: true, Validators: []validator.Int32{int32validator.AtLeast(1)},
		},
		property: smallCount(func(m *roleModel) *types.Int32 { return &m.Minimum }, func(r *job.Role) *int32 { return &r.Minimum }),
		places:   true,
	},
	{
		name: "gpus",
		schema: schema.Int64Attribute{
			MarkdownDescription: fmt.Sprintf("Whole GPUs of each replica, at most %d. ", job.MaxGPUs) + "In mode `shared`: the number of GPUs that `memory_gib` is spread over evenly.",
			Optional:            true,
		},
		property: count(func(m *roleModel) *types.Int64 { return &m.GPUs }, func(r *job.Role) *int64 { return &r.GPUs }),
		places:   true,
	},
	{
		name: "memory_gib",
		schema: schema.Int64Attribute{
			MarkdownDescription: "GPU memory of each replica in GiB (mode `shared`).",
			Optional:            true,
		},
		property: count(func(m *roleModel) *types.Int64 { return &m.MemoryGiB }, func(r *job.Role) *int64 { return &r.MemoryGiB }),
		places:   true,
	},
	{
		name: "core_percent",
		schema: schema.Int64Attribute{
			MarkdownDescription: "Compute share of one GPU for each replica in percent, a multiple of 5 (mode `shared`). Without it only memory is limited.",
			Optional:            true, Validators: []validator.Int64{amount.Cores{}},
		},
		property: count(func(m *roleModel) *types.Int64 { return &m.CorePercent }, func(r *job.Role) *int64 { return &r.CorePercent }),
		places:   true,
	},
	{
		name:     "cpu",
		schema:   optionalText("CPU of each replica, such as `\"8\"` or `\"500m\"`: requested and limited alike."),
		property: quantity(func(m *roleModel) *types.String { return &m.CPU }, func(r *job.Role) *resource.Quantity { return &r.CPU }),
		places:   true,
	},
	{
		name:     "memory",
		schema:   optionalText("Main memory of each replica, such as `\"64Gi\"`: requested and limited alike."),
		property: quantity(func(m *roleModel) *types.String { return &m.Memory }, func(r *job.Role) *resource.Quantity { return &r.Memory }),
		places:   true,
	},
	{
		name: "rdma",
		schema: schema.BoolAttribute{
			MarkdownDescription: "Gives each replica the node's eRDMA device (`aliyun/erdma`), for which `rdma_defaults` sets NCCL up. On ACK a `gpuplan_erdma_controller` sets the devices up, of nodes that join after it: " +
				"name it in `depends_on` of the node pool. A plan warns of nodes to come that will have none.",
			Optional: true,
		},
		property: yes(func(m *roleModel) *types.Bool { return &m.RDMA }, func(r *job.Role) *bool { return &r.RDMA }),
		places:   true,
	},
}

// containerAttribute is an attribute of the job, which a role has where it says nothing itself.
type containerAttribute struct {
	attribute[container, job.Role]
	// ofRole is the attribute of a role, schema that of the job.
	ofRole schema.Attribute
	// leads means that in an MPI job it is the launcher's alone, which starts the processes of
	// the workers: they wait for it.
	leads bool
}

var containerAttributes = []containerAttribute{
	{
		attribute: attribute[container, job.Role]{
			name:     "image",
			schema:   optionalText("Container image of all roles."),
			property: says(textOr(unknownImage), func(c *container) *types.String { return &c.Image }, func(r *job.Role) *string { return &r.Image }),
		},
		ofRole: optionalText("Container image of the role; without it the job's."),
	},
	{
		attribute: attribute[container, job.Role]{
			name: "command",
			schema: schema.ListAttribute{
				MarkdownDescription: "Command of all roles; without it the image's own. In an MPI job it is the launcher's: the workers wait for it.",
				Optional:            true, ElementType: types.StringType,
			},
			property: started(list(func(c *container) *types.List { return &c.Command }, func(r *job.Role) *[]string { return &r.Command })),
		},
		ofRole: schema.ListAttribute{
			MarkdownDescription: "Command of the role; without it the job's.", Optional: true, ElementType: types.StringType,
		},
		leads: true,
	},
	{
		attribute: attribute[container, job.Role]{
			name: "args",
			schema: schema.ListAttribute{
				MarkdownDescription: "Arguments of the command, for the same roles.",
				Optional:            true, ElementType: types.StringType,
			},
			property: started(list(func(c *container) *types.List { return &c.Args }, func(r *job.Role) *[]string { return &r.Args })),
		},
		ofRole: schema.ListAttribute{
			MarkdownDescription: "Arguments of the role; without them the job's.", Optional: true, ElementType: types.StringType,
		},
		leads: true,
	},
	{
		attribute: attribute[container, job.Role]{
			name: "env",
			schema: schema.MapAttribute{
				MarkdownDescription: "Environment variables of all roles. Values are stored in the state and in the job: put secrets elsewhere.",
				Optional:            true, ElementType: types.StringType,
			},
			property: added(dictionary(func(c *container) *types.Map { return &c.Env }, func(r *job.Role) *map[string]string { return &r.Env })),
		},
		ofRole: schema.MapAttribute{
			MarkdownDescription: "Environment variables of the role, beside the job's.", Optional: true, ElementType: types.StringType,
		},
	},
	{
		attribute: attribute[container, job.Role]{
			name:     "working_dir",
			schema:   optionalText("Working directory of all roles; without it the image's own."),
			property: text(func(c *container) *types.String { return &c.WorkingDir }, func(r *job.Role) *string { return &r.WorkingDir }),
		},
		ofRole: optionalText("Working directory of the role; without it the job's."),
	},
}

// started is the property of a part of what a container starts, which is said as a whole: of
// the job or of each role.
func started(p property[container, job.Role]) property[container, job.Role] {
	p.part = func(r job.Role) any { return [][]string{r.Command, r.Args} }
	return p
}

// added is the property of variables of a role, which has the job's beside them.
func added(p property[container, job.Role]) property[container, job.Role] {
	read := p.read
	p.read = func(r *reader, at path.Path, c *container, role *job.Role) {
		own := job.Role{}
		read(r, at, c, &own)
		if role.Env == nil {
			role.Env = own.Env
			return
		}
		maps.Copy(role.Env, own.Env)
	}
	return p
}

// ofJob reports whether a role has the attribute of the job where it has none itself.
func (a containerAttribute) ofJob(framework job.Framework, role string) bool {
	return !a.leads || framework != job.MPI || role == contract.ReplicaLauncher
}

var rolesProperty = property[model, job.Spec]{
	value: func(m *model) attr.Value { return m.Roles },
	read:  readRoles,
	take:  takeRoles,
	part:  func(s job.Spec) any { return s.Roles },
}

func readRoles(r *reader, at path.Path, m *model, s *job.Spec) {
	if m.Roles.IsUnknown() {
		r.known(at, m.Roles)
		return
	}
	framework := job.Framework(m.Framework.ValueString())
	var models map[string]types.Object
	r.diags.Append(m.Roles.ElementsAs(r.ctx, &models, false)...)
	s.Roles = map[string]job.Role{}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if models[name].IsUnknown() {
			r.known(at, models[name])
			continue
		}
		var rm roleModel
		r.diags.Append(models[name].As(r.ctx, &rm, basetypes.ObjectAsOptions{})...)
		s.Roles[name] = r.role(at.AtMapKey(name), name, rm, m, framework)
	}
	if _, ok := s.Roles[contract.ReplicaLauncher]; framework == job.MPI && !ok {
		s.Roles[contract.ReplicaLauncher] = r.role(at.AtMapKey(contract.ReplicaLauncher), contract.ReplicaLauncher, roleModel{}, m, framework)
	}
}

// role lays what the role says over what the job says for all roles.
func (r *reader) role(at path.Path, name string, rm roleModel, m *model, framework job.Framework) job.Role {
	role := job.Role{Replicas: 1}
	readAll(r, roleAttributes, at, &rm, &role)
	for _, a := range containerAttributes {
		if a.ofJob(framework, name) {
			a.property.read(r, path.Root(a.name), &m.container, &role)
		}
		a.property.read(r, at.AtName(a.name), &rm.container, &role)
	}
	return role
}

// takeRoles says for the whole job what all roles have in common.
func takeRoles(m *model, s job.Spec) {
	models := map[string]*roleModel{}
	for name, role := range s.Roles {
		models[name] = &roleModel{}
		for _, a := range roleAttributes {
			a.property.take(models[name], role)
		}
	}
	for _, a := range containerAttributes {
		common, same := a.common(s)
		if !same {
			common = job.Role{}
		}
		a.property.take(&m.container, common)
		for name, role := range s.Roles {
			if same && a.ofJob(s.Framework, name) {
				role = job.Role{}
			}
			a.property.take(&models[name].container, role)
		}
	}
	elements := map[string]attr.Value{}
	for name, rm := range models {
		all := values(roleAttributes, rm)
		for _, a := range containerAttributes {
			all[a.name] = a.property.value(&rm.container)
		}
		elements[name] = types.ObjectValueMust(roleType.AttrTypes, all)
	}
	m.Roles = types.MapValueMust(roleType, elements)
}

// common returns one of the roles that have the attribute of the job; same reports whether it
// is the same for all of them.
func (a containerAttribute) common(s job.Spec) (common job.Role, same bool) {
	for _, name := range s.RoleNames() {
		if !a.ofJob(s.Framework, name) {
			continue
		}
		if same && !apiequality.Semantic.DeepEqual(a.property.part(common), a.property.part(s.Roles[name])) {
			return common, false
		}
		common, same = s.Roles[name], true
	}
	return common, same
}
