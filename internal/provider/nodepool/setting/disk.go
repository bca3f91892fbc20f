package setting

import (
	"context"
	"regexp"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// Categories of disks on which others depend.
const (
	essd   = "cloud_essd"
	autoPL = "cloud_auto"
)

var performanceLevels = []string{"PL0", "PL1", "PL2", "PL3"}

func disks() []setting {
	return []setting{
		shown(text("system_disk_category", "Category of the system disk, such as `cloud_essd`. Default: the service's.",
			func(v *Values) *types.String { return &v.SystemDiskCategory }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.SystemDiskCategory })),
		systemDiskCategories(),
		shown(systemDiskSize()),
		clearable(choice("system_disk_performance_level", "`PL0`, `PL1`, `PL2` or `PL3`. Only for `cloud_essd`."+serviceDefault,
			func(v *Values) *types.String { return &v.SystemDiskPerformanceLevel }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.SystemDiskPerformanceLevel }, performanceLevels...)),
		flag("system_disk_encrypted", "Whether the system disk is encrypted."+serviceDefault,
			func(v *Values) *types.Bool { return &v.SystemDiskEncrypted }, func(s *acs.NodePoolSpec) **bool { return &s.ScalingGroup.SystemDiskEncrypted }),
		clearable(choice("system_disk_encrypt_algorithm", "`aes-256`. Only for a system disk that is encrypted."+serviceDefault,
			func(v *Values) *types.String { return &v.SystemDiskEncryptAlgorithm }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.SystemDiskEncryptAlgorithm }, "aes-256")),
		clearable(text("system_disk_kms_key_id", "KMS key of the system disk. Only for one that is encrypted. Default: the service's key.",
			func(v *Values) *types.String { return &v.SystemDiskKMSKeyID }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.SystemDiskKMSKeyID })),
		flag("system_disk_bursting_enabled", "Whether the system disk may be faster for a time. Only for `cloud_auto`."+serviceDefault,
			func(v *Values) *types.Bool { return &v.SystemDiskBurstingEnabled }, func(s *acs.NodePoolSpec) **bool { return &s.ScalingGroup.SystemDiskBurstingEnabled }),
		zeroIsNone(number("system_disk_provisioned_iops", "IOPS of the system disk beyond those that its size gives, at most 50,000; 0 for none. Only for `cloud_auto`."+serviceDefault,
			func(v *Values) *types.Int64 { return &v.SystemDiskProvisionedIOPS }, iopsOf, int64validator.Between(0, maxIOPS)), iopsOf),
		clearable(text("system_disk_snapshot_policy_id", "Policy by which snapshots of the system disk are made. Default: none.",
			func(v *Values) *types.String { return &v.SystemDiskSnapshotPolicyID }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.SystemDiskSnapshotPolicyID })),
		dataDisks(),
	}
}

func iopsOf(s *acs.NodePoolSpec) **int64 { return &s.ScalingGroup.SystemDiskProvisionedIOPS }

// zeroIsNone is a number that the service takes only where there is one.
func zeroIsNone(s setting, at func(*acs.NodePoolSpec) **int64) setting {
	write := s.write
	s.write = func(ctx context.Context, value attr.Value, spec *acs.NodePoolSpec) diag.Diagnostics {
		diags := write(ctx, value, spec)
		if n := at(spec); *n != nil && **n == 0 {
			*n = nil
		}
		return diags
	}
	return s
}

// systemDiskCategories are tried in their order.
func systemDiskCategories() setting {
	return of("system_disk_categories", schema.ListAttribute{
		MarkdownDescription: "Categories of the system disk in the order in which they are tried, instead of `system_disk_category`. Empty: none." + serviceDefault,
		Optional:            true, Computed: true, ElementType: types.StringType,
		PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()},
		Validators:    []validator.List{listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
	}, func(v *Values) *types.List { return &v.SystemDiskCategories },
		func(ctx context.Context, spec acs.NodePoolSpec, _ types.List) (types.List, diag.Diagnostics) {
			return types.ListValueFrom(ctx, types.StringType, append([]string{}, spec.ScalingGroup.SystemDiskCategories...))
		},
		func(ctx context.Context, value types.List, spec *acs.NodePoolSpec) diag.Diagnostics {
			spec.ScalingGroup.SystemDiskCategories = []string{}
			return value.ElementsAs(ctx, &spec.ScalingGroup.SystemDiskCategories, false)
		})
}

// dataDisk is a data disk in Terraform.
type dataDisk struct {
	Category         types.String `tfsdk:"category"`
	Size             types.Int64  `tfsdk:"size"`
	PerformanceLevel types.String `tfsdk:"performance_level"`
	Encrypted        types.Bool   `tfsdk:"encrypted"`
	KMSKeyID         types.String `tfsdk:"kms_key_id"`
	SnapshotID       types.String `tfsdk:"snapshot_id"`
	AutoFormat       types.Bool   `tfsdk:"auto_format"`
	FileSystem       types.String `tfsdk:"file_system"`
	MountTarget      types.String `tfsdk:"mount_target"`
	BurstingEnabled  types.Bool   `tfsdk:"bursting_enabled"`
	ProvisionedIOPS  types.Int64  `tfsdk:"provisioned_iops"`
	SnapshotPolicyID types.String `tfsdk:"snapshot_policy_id"`
}

func dataDisks() setting {
	return list("data_disks", "Data disks of each node, at most 10. Empty: none."+newNodes+" Default: what the service has.", maxDataDisks, map[string]schema.Attribute{
		"category":           partText("Category of the disk, such as `cloud_essd`."+serviceDefault, stringvalidator.LengthAtLeast(1)),
		"size":               partNumber("Size in GiB, 1 to 65,536."+serviceDefault, int64validator.Between(1, maxDataDisk)),
		"performance_level":  partText("`PL0`, `PL1`, `PL2` or `PL3`. Only for `cloud_essd`."+serviceDefault, stringvalidator.OneOf(performanceLevels...)),
		"encrypted":          partFlag("Whether the disk is encrypted." + serviceDefault),
		"kms_key_id":         partText("KMS key of the disk. Only for one that is encrypted. Default: the service's key.", stringvalidator.LengthAtLeast(1)),
		"snapshot_id":        partText("Snapshot of which the disk is made. Default: none.", stringvalidator.LengthAtLeast(1)),
		"auto_format":        partFlag("Whether the service makes a file system on the disk and mounts it." + serviceDefault),
		"file_system":        partText("`ext4` or `xfs`. Only with `auto_format`."+serviceDefault, stringvalidator.OneOf("ext4", "xfs")),
		"mount_target":       partText("Path at which the disk is mounted, such as `/mnt/data`. Only with `auto_format`."+serviceDefault, stringvalidator.RegexMatches(regexp.MustCompile("^/"), "must be an absolute path")),
		"bursting_enabled":   partFlag("Whether the disk may be faster for a time. Only for `cloud_auto`." + serviceDefault),
		"provisioned_iops":   partNumber("IOPS beyond those that the size gives, at most 50,000. Only for `cloud_auto`."+serviceDefault, int64validator.Between(0, maxIOPS)),
		"snapshot_policy_id": partText("Policy by which snapshots of the disk are made. Default: none.", stringvalidator.LengthAtLeast(1)),
	}, func(v *Values) *types.List { return &v.DataDisks }, readDisks, func(disks []dataDisk, same func(int) bool, spec *acs.NodePoolSpec) {
		list := make([]acs.DataDisk, len(disks))
		for i, d := range disks {
			if same(i) {
				list[i] = spec.ScalingGroup.DataDisks[i]
				continue
			}
			list[i] = d.disk()
		}
		spec.ScalingGroup.DataDisks = list
	})
}

func readDisks(spec acs.NodePoolSpec, before []dataDisk) []dataDisk {
	var disks []dataDisk
	for i, d := range spec.ScalingGroup.DataDisks {
		var was dataDisk
		if i < len(before) {
			was = before[i]
		}
		var encrypted *bool
		if yes, err := strconv.ParseBool(d.Encrypted); err == nil {
			encrypted = &yes
		}
		disk := dataDisk{
			Category: word(d.Category), PerformanceLevel: word(d.PerformanceLevel),
			Encrypted: onOff(encrypted, was.Encrypted), KMSKeyID: word(d.KMSKeyID), SnapshotID: word(d.SnapshotID),
			AutoFormat: onOff(d.AutoFormat, was.AutoFormat), FileSystem: word(d.FileSystem), MountTarget: word(d.MountTarget),
			BurstingEnabled: onOff(d.BurstingEnabled, was.BurstingEnabled), ProvisionedIOPS: count(d.ProvisionedIOPS, was.ProvisionedIOPS),
			SnapshotPolicyID: word(d.SnapshotPolicyID),
		}
		if d.Size != 0 {
			disk.Size = types.Int64Value(d.Size)
		}
		disks = append(disks, disk)
	}
	return disks
}

// disk is what the service is asked for.
func (d dataDisk) disk() acs.DataDisk {
	disk := acs.DataDisk{
		Category: d.Category.ValueString(), Size: d.Size.ValueInt64(), PerformanceLevel: d.PerformanceLevel.ValueString(),
		KMSKeyID: d.KMSKeyID.ValueString(), SnapshotID: d.SnapshotID.ValueString(),
		FileSystem: d.FileSystem.ValueString(), MountTarget: d.MountTarget.ValueString(),
		SnapshotPolicyID: d.SnapshotPolicyID.ValueString(),
	}
	if known.Set(d.Encrypted) {
		disk.Encrypted = strconv.FormatBool(d.Encrypted.ValueBool())
	}
	put(&disk.AutoFormat, d.AutoFormat)
	put(&disk.BurstingEnabled, d.BurstingEnabled)
	if d.ProvisionedIOPS.ValueInt64() > 0 {
		disk.ProvisionedIOPS = d.ProvisionedIOPS.ValueInt64Pointer()
	}
	return disk
}
