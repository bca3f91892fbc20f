package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// unknownURL stands for a URL that is unknown until apply: where the code comes from says nothing about where the job runs.
const unknownURL = "known-after-apply/code"

type codeSyncModel struct {
	Source   types.String `tfsdk:"source"`
	URL      types.String `tfsdk:"url"`
	Branch   types.String `tfsdk:"branch"`
	Revision types.String `tfsdk:"revision"`
	Image    types.String `tfsdk:"image"`
	Secret   types.String `tfsdk:"secret"`
}

var codeSyncType = typeOf(schemas(codeSyncAttributes))

var codeSyncAttributes = []attribute[codeSyncModel, job.CodeSync]{
	{
		name: "source",
		schema: schema.StringAttribute{
			MarkdownDescription: "How the code is fetched: `git`, with git-sync, or `rsync`.", Required: true,
		},
		property: says(textOr(job.CodeSyncGit), func(m *codeSyncModel) *types.String { return &m.Source }, func(c *job.CodeSync) *string { return &c.Source }),
	},
	{
		name: "url",
		schema: schema.StringAttribute{
			MarkdownDescription: "The repository, as `https://github.com/kubeflow/arena.git`, whose files are then in `code/arena` below the working directory; or what rsync copies to `code`, as `10.88.29.56::backup/train`. A URL with a password, or with a token of GitHub or GitLab, is refused: use `secret`.",
			Required:            true,
		},
		property: says(textOr(unknownURL), func(m *codeSyncModel) *types.String { return &m.URL }, func(c *job.CodeSync) *string { return &c.URL }),
	},
	{
		name:     "branch",
		schema:   optionalText("Branch of the repository; without it git-sync takes its own default, `master` in version 3."),
		property: text(func(m *codeSyncModel) *types.String { return &m.Branch }, func(c *job.CodeSync) *string { return &c.Branch }),
	},
	{
		name:     "revision",
		schema:   optionalText("Tag or commit of the repository; without it the head of the branch when the replica starts, so that replicas that start later may have other code."),
		property: text(func(m *codeSyncModel) *types.String { return &m.Revision }, func(c *job.CodeSync) *string { return &c.Revision }),
	},
	{
		name:     "image",
		schema:   optionalText("Image that fetches the code: git-sync 3, or one with the program `rsync`. Default: arena's."),
		property: text(func(m *codeSyncModel) *types.String { return &m.Image }, func(c *job.CodeSync) *string { return &c.Image }),
	},
	{
		name: "secret",
		schema: optionalText("Name of a Secret in the job's namespace, whose keys are variables of the container that fetches the code alone, such as `GIT_SYNC_USERNAME` and `GIT_SYNC_PASSWORD`, or `RSYNC_PASSWORD`. " +
			"Terraform never reads what is in it."),
		property: text(func(m *codeSyncModel) *types.String { return &m.Secret }, func(c *job.CodeSync) *string { return &c.Secret }),
	},
}

// codeSyncAttribute is the attribute of a job.
var codeSyncAttribute = jobAttribute{
	name: "code_sync",
	schema: schema.SingleNestedAttribute{
		MarkdownDescription: "Code that each replica fetches before it starts, as with `arena submit --sync-mode`: an init container has it in an empty volume, which the replica finds in `code` below `working_dir`, or in `/code`. " +
			"The container gets the replica's `env`, and asks for no more CPU and memory than that.",
		Optional: true, CustomType: codeSyncType, Attributes: schemas(codeSyncAttributes),
	},
	property: single(codeSyncType, codeSyncAttributes, func(m *model) *types.Object { return &m.CodeSync }, func(s *job.Spec) **job.CodeSync { return &s.CodeSync }),
}
