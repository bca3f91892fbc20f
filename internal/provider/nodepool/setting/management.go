package setting

import (
	"context"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// managed is managed operation in Terraform.
type managed struct {
	Enabled        types.Bool   `tfsdk:"enabled"`
	AutoRepair     types.Bool   `tfsdk:"auto_repair"`
	RepairRestarts types.Bool   `tfsdk:"auto_repair_restarts"`
	RepairApproval types.Bool   `tfsdk:"auto_repair_approval"`
	AutoUpgrade    types.Bool   `tfsdk:"auto_upgrade"`
	UpgradeKubelet types.Bool   `tfsdk:"auto_upgrade_kubelet"`
	UpgradeOS      types.Bool   `tfsdk:"auto_upgrade_os"`
	UpgradeRuntime types.Bool   `tfsdk:"auto_upgrade_runtime"`
	AutoVulFix     types.Bool   `tfsdk:"auto_vul_fix"`
	VulFixRestarts types.Bool   `tfsdk:"auto_vul_fix_restarts"`
	VulLevel       types.String `tfsdk:"vul_level"`
}

var vulLevel = regexp.MustCompile(`^(asap|later|nntf)(,(asap|later|nntf))*$`)

func management() setting {
	return object("management", "Managed operation of the nodes, which needs the add-on `ack-node-problem-detector`. Repairs, upgrades and fixes drain and restart nodes when the cloud decides so, "+
		"and take their GPUs from running jobs: no plan knows of them, and `allow_disruption` does not forbid them."+serviceDefault, map[string]schema.Attribute{
		"enabled":               schema.BoolAttribute{MarkdownDescription: "Whether the service operates the nodes. All else takes effect only then.", Required: true},
		"auto_repair":           partFlag("Whether broken nodes are repaired." + serviceDefault),
		"auto_repair_restarts":  partFlag("Whether a repair may restart a node." + serviceDefault),
		"auto_repair_approval":  partFlag("Whether someone has to approve each repair." + serviceDefault),
		"auto_upgrade":          partFlag("Whether nodes are upgraded." + serviceDefault),
		"auto_upgrade_kubelet":  partFlag("Whether upgrades upgrade the kubelet." + serviceDefault),
		"auto_upgrade_os":       partFlag("Whether upgrades upgrade the operating system." + serviceDefault),
		"auto_upgrade_runtime":  partFlag("Whether upgrades upgrade the container runtime." + serviceDefault),
		"auto_vul_fix":          partFlag("Whether vulnerabilities are fixed." + serviceDefault),
		"auto_vul_fix_restarts": partFlag("Whether a fix may restart a node." + serviceDefault),
		"vul_level":             partText("Which vulnerabilities are fixed: `asap` (high), `later` (medium) and `nntf` (low), with commas between them."+serviceDefault, stringvalidator.RegexMatches(vulLevel, "must be asap, later or nntf, with commas between them")),
	}, func(v *Values) *types.Object { return &v.Management }, readManaged, writeManaged)
}

func readManaged(_ context.Context, spec acs.NodePoolSpec, before *managed) (*managed, diag.Diagnostics) {
	m := spec.Management
	var was managed
	if before != nil {
		was = *before
	}
	repair, upgrade, fix := orEmpty(m.AutoRepairPolicy), orEmpty(m.AutoUpgradePolicy), orEmpty(m.AutoVulFixPolicy)
	return &managed{
		Enabled:    types.BoolValue(m.Enable),
		AutoRepair: onOff(m.AutoRepair, was.AutoRepair), RepairRestarts: onOff(repair.RestartNode, was.RepairRestarts), RepairApproval: onOff(repair.ApprovalRequired, was.RepairApproval),
		AutoUpgrade: onOff(m.AutoUpgrade, was.AutoUpgrade), UpgradeKubelet: onOff(upgrade.Kubelet, was.UpgradeKubelet), UpgradeOS: onOff(upgrade.OS, was.UpgradeOS), UpgradeRuntime: onOff(upgrade.Runtime, was.UpgradeRuntime),
		AutoVulFix: onOff(m.AutoVulFix, was.AutoVulFix), VulFixRestarts: onOff(fix.RestartNode, was.VulFixRestarts), VulLevel: word(fix.Level),
	}, nil
}

func writeManaged(_ context.Context, m managed, spec *acs.NodePoolSpec) diag.Diagnostics {
	to := &spec.Management
	to.Enable = m.Enabled.ValueBool()
	put(&to.AutoRepair, m.AutoRepair)
	put(&to.AutoUpgrade, m.AutoUpgrade)
	put(&to.AutoVulFix, m.AutoVulFix)
	if known.Set(m.RepairRestarts) || known.Set(m.RepairApproval) {
		repair := orEmpty(to.AutoRepairPolicy)
		put(&repair.RestartNode, m.RepairRestarts)
		put(&repair.ApprovalRequired, m.RepairApproval)
		to.AutoRepairPolicy = &repair
	}
	if known.Set(m.UpgradeKubelet) || known.Set(m.UpgradeOS) || known.Set(m.UpgradeRuntime) {
		upgrade := orEmpty(to.AutoUpgradePolicy)
		put(&upgrade.Kubelet, m.UpgradeKubelet)
		put(&upgrade.OS, m.UpgradeOS)
		put(&upgrade.Runtime, m.UpgradeRuntime)
		to.AutoUpgradePolicy = &upgrade
	}
	if known.Set(m.VulFixRestarts) || known.Set(m.VulLevel) {
		fix := orEmpty(to.AutoVulFixPolicy)
		put(&fix.RestartNode, m.VulFixRestarts)
		if known.Set(m.VulLevel) {
			fix.Level = m.VulLevel.ValueString()
		}
		to.AutoVulFixPolicy = &fix
	}
	return nil
}

// Managed reports whether the service operates the nodes, as far as that is known.
func (v Values) Managed() bool {
	enabled, ok := v.Management.Attributes()["enabled"].(types.Bool)
	return ok && on(enabled)
}

// put writes what is said.
func put(to **bool, value types.Bool) {
	if known.Set(value) {
		*to = value.ValueBoolPointer()
	}
}

// orEmpty is what a pointer points at, or an empty value.
func orEmpty[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
