package setting

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// findings are errors at the attributes that they are about.
type findings struct{ diag.Diagnostics }

func (f *findings) at(p path.Path, summary, format string, args ...any) {
	f.AddAttributeError(p, summary, fmt.Sprintf(format, args...))
}

// is reports whether a text is known and one of several.
func is(text types.String, values ...string) bool {
	return known.Set(text) && slices.Contains(values, text.ValueString())
}

// isNot reports whether a text is known and none of several.
func isNot(text types.String, values ...string) bool { return known.Set(text) && !is(text, values...) }

func on(flag types.Bool) bool  { return known.Set(flag) && flag.ValueBool() }
func off(flag types.Bool) bool { return known.Set(flag) && !flag.ValueBool() }

// given reports whether a value says something.
func given(text types.String) bool { return known.Set(text) && text.ValueString() != "" }

// costOptimized is the multi_az_policy that takes the cheapest instances.
const costOptimized = "COST_OPTIMIZED"

// CheckConfig finds what makes no sense as it is written: what is for something else that is missing, or
// says something twice.
func (v Values) CheckConfig(ctx context.Context) diag.Diagnostics {
	var f findings
	for i, d := range v.disks(ctx) {
		if (known.Set(d.FileSystem) || known.Set(d.MountTarget)) && (off(d.AutoFormat) || d.AutoFormat.IsNull()) {
			f.at(path.Root("data_disks"), "Disk that is not formatted", "data_disks[%d]: file_system and mount_target are for disks that the service formats. Remove them, or set auto_format = true.", i)
		}
	}
	if k, diags := v.kubelet(ctx); k != nil && !diags.HasError() && given(v.CPUPolicy) && isNot(k.CPUManagerPolicy, v.CPUPolicy.ValueString()) {
		f.at(path.Root("kubelet_config"), "Two CPU policies", "kubelet_config.cpu_manager_policy is %q, and cpu_policy is %q: write the same twice, or one of them.", k.CPUManagerPolicy.ValueString(), v.CPUPolicy.ValueString())
	}
	if isNot(v.InstanceChargeType, "PrePaid") || v.InstanceChargeType.IsNull() {
		for name, written := range map[string]bool{
			"period": !v.Period.IsNull(), "period_unit": given(v.PeriodUnit), "auto_renew": !v.AutoRenew.IsNull(), "auto_renew_period": !v.AutoRenewPeriod.IsNull(),
		} {
			if written {
				f.at(path.Root(name), "Subscription without PrePaid", "%s is for instances that are subscribed to. Remove it, or set instance_charge_type = \"PrePaid\".", name)
			}
		}
	}
	if is(v.InstanceChargeType, "PrePaid") && v.Period.IsNull() {
		f.at(path.Root("instance_charge_type"), "Subscription without period", "For how long are instances subscribed to? Set period, in months or in the period_unit.")
	}
	if !v.AutoRenewPeriod.IsNull() && (off(v.AutoRenew) || v.AutoRenew.IsNull()) {
		f.at(path.Root("auto_renew_period"), "Renewal period without renewal", "auto_renew is not true, so that nothing is renewed. Remove auto_renew_period, or set auto_renew = true.")
	}
	if on(v.CompensateWithOnDemand) && (isNot(v.MultiAZPolicy, costOptimized) || v.MultiAZPolicy.IsNull()) {
		f.at(path.Root("compensate_with_on_demand"), "Nothing to fill in for", "compensate_with_on_demand is for multi_az_policy = %q. Remove it, or set that.", costOptimized)
	}
	if known.Set(v.SpotPriceLimit) && len(v.SpotPriceLimit.Elements()) > 0 && (isNot(v.SpotStrategy, "SpotWithPriceLimit") || v.SpotStrategy.IsNull()) {
		f.at(path.Root("spot_price_limit"), "Price limit without spot instances", "spot_price_limit is for spot_strategy = \"SpotWithPriceLimit\". Remove it, or set that.")
	}
	return f.Diagnostics
}

// Check finds what the service refuses, in what is known.
func (v Values) Check(ctx context.Context, instanceTypes []string) diag.Diagnostics {
	var f findings
	v.checkPeriods(&f)
	v.checkSpot(&f, instanceTypes)
	v.checkSystemDisk(&f)
	v.checkDataDisks(ctx, &f)
	v.checkReserved(ctx, &f)
	return f.Diagnostics
}

func (v Values) checkPeriods(f *findings) {
	if !is(v.PeriodUnit, "Week") {
		return
	}
	if known.Set(v.Period) && v.Period.ValueInt64() > 4 {
		f.at(path.Root("period"), "Invalid period", "Instances are subscribed to for 1 to 4 weeks, and period is %d. Set period_unit = \"Month\" for longer.", v.Period.ValueInt64())
	}
	if known.Set(v.AutoRenewPeriod) && v.AutoRenewPeriod.ValueInt64() > 3 {
		f.at(path.Root("auto_renew_period"), "Invalid period", "Subscriptions are renewed for 1 to 3 weeks, and auto_renew_period is %d. Set period_unit = \"Month\" for longer.", v.AutoRenewPeriod.ValueInt64())
	}
}

func (v Values) checkSpot(f *findings, instanceTypes []string) {
	if is(v.InstanceChargeType, "PrePaid") && isNot(v.SpotStrategy, "", "NoSpot") {
		f.at(path.Root("spot_strategy"), "Spot instances with a subscription", "Spot instances are paid by use, and instance_charge_type is \"PrePaid\". Set \"PostPaid\", or spot_strategy = \"NoSpot\".")
	}
	if !is(v.SpotStrategy, "SpotWithPriceLimit") || v.SpotPriceLimit.IsUnknown() {
		return
	}
	limits := v.SpotPriceLimit.Elements()
	if len(limits) == 0 {
		f.at(path.Root("spot_strategy"), "No price limit", "What may a spot instance cost at most? Set spot_price_limit, by instance type, or spot_strategy = \"SpotAsPriceGo\".")
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if len(instanceTypes) > 0 && !slices.Contains(instanceTypes, name) {
			f.at(path.Root("spot_price_limit").AtMapKey(name), "Price limit of another instance type", "%s is none of the pool's instance types: %s.", name, strings.Join(instanceTypes, ", "))
		}
	}
}

func (v Values) checkSystemDisk(f *findings) {
	if given(v.SystemDiskPerformanceLevel) && isNot(v.SystemDiskCategory, "", essd) {
		f.at(path.Root("system_disk_performance_level"), "Performance level of another disk",
			"Disks of category %s have no performance level; it is %s. Set system_disk_performance_level = \"\", or system_disk_category = %q.", v.SystemDiskCategory.ValueString(), v.SystemDiskPerformanceLevel.ValueString(), essd)
	}
	if on(v.SystemDiskBurstingEnabled) && isNot(v.SystemDiskCategory, autoPL) {
		f.at(path.Root("system_disk_bursting_enabled"), "Bursting of another disk", "Only disks of category %s can be faster for a time. Set system_disk_bursting_enabled = false, or that category.", autoPL)
	}
	if v.SystemDiskProvisionedIOPS.ValueInt64() > 0 && isNot(v.SystemDiskCategory, autoPL) {
		f.at(path.Root("system_disk_provisioned_iops"), "IOPS of another disk", "Only disks of category %s have IOPS beyond those of their size. Set system_disk_provisioned_iops = 0, or that category.", autoPL)
	}
	for name, text := range map[string]types.String{"system_disk_kms_key_id": v.SystemDiskKMSKeyID, "system_disk_encrypt_algorithm": v.SystemDiskEncryptAlgorithm} {
		if given(text) && off(v.SystemDiskEncrypted) {
			f.at(path.Root(name), "Key without encryption", "The system disk is not encrypted. Set %s = \"\", or system_disk_encrypted = true.", name)
		}
	}
}

// disks are the data disks, none while one of them is unknown as a whole.
func (v Values) disks(ctx context.Context) []dataDisk {
	var disks []dataDisk
	if !known.Set(v.DataDisks) || v.DataDisks.ElementsAs(ctx, &disks, false).HasError() {
		return nil
	}
	return disks
}

func (v Values) checkDataDisks(ctx context.Context, f *findings) {
	for i, d := range v.disks(ctx) {
		at, disk := path.Root("data_disks"), fmt.Sprintf("data_disks[%d]", i) // Terraform shows the line of an attribute, and of none within it
		if known.Set(d.PerformanceLevel) && isNot(d.Category, essd) {
			f.at(at, "Performance level of another disk", "%s: Disks of category %s have no performance level. Remove it, or choose category %s.", disk, d.Category.ValueString(), essd)
		}
		if (on(d.BurstingEnabled) || d.ProvisionedIOPS.ValueInt64() > 0) && isNot(d.Category, autoPL) {
			f.at(at, "Another disk", "%s: bursting_enabled and provisioned_iops are for disks of category %s, and this one is %s.", disk, autoPL, d.Category.ValueString())
		}
		if known.Set(d.KMSKeyID) && off(d.Encrypted) {
			f.at(at, "Key without encryption", "%s: The disk is not encrypted. Remove the key, or set encrypted = true.", disk)
		}
	}
}

func (v Values) checkReserved(ctx context.Context, f *findings) {
	var p private
	if known.Set(v.PrivatePool) && !v.PrivatePool.As(ctx, &p, basetypes.ObjectAsOptions{}).HasError() {
		at := path.Root("private_pool")
		switch {
		case is(p.MatchCriteria, "Target") && p.ID.IsNull():
			f.at(at, "No reservation", "match_criteria is \"Target\": set id to the ID of the elasticity assurance or capacity reservation.")
		case isNot(p.MatchCriteria, "Target") && known.Set(p.ID):
			f.at(at, "Reservation that is not used", "id is for match_criteria = \"Target\", and it is %q.", p.MatchCriteria.ValueString())
		}
	}
	var r resources
	if known.Set(v.ResourcePool) && !v.ResourcePool.As(ctx, &r, basetypes.ObjectAsOptions{}).HasError() {
		if is(r.Strategy, "PrivatePoolOnly") && r.PrivatePoolIDs.IsNull() {
			f.at(path.Root("resource_pool"), "No reservation", "strategy is \"PrivatePoolOnly\": set private_pool_ids to the IDs of the capacity reservations.")
		}
		if is(r.Strategy, "PrivatePoolFirst", "PrivatePoolOnly") && is(v.InstanceChargeType, "PrePaid") {
			f.at(path.Root("resource_pool"), "Reserved capacity with a subscription", "resource_pool is for instances that are paid by use, and instance_charge_type is \"PrePaid\". Use private_pool.")
		}
	}
}
