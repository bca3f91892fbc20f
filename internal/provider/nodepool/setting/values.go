package setting

import (
	"context"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// Values are the settings of a pool in Terraform.
type Values struct {
	SecurityGroupIDs types.Set    `tfsdk:"security_group_ids"`
	ImageID          types.String `tfsdk:"image_id"`
	ImageType        types.String `tfsdk:"image_type"`
	KeyPair          types.String `tfsdk:"key_pair"`
	RAMRoleName      types.String `tfsdk:"ram_role_name"`
	ResourceGroupID  types.String `tfsdk:"resource_group_id"`
	Tags             types.Map    `tfsdk:"tags"`

	SystemDiskCategory         types.String `tfsdk:"system_disk_category"`
	SystemDiskCategories       types.List   `tfsdk:"system_disk_categories"`
	SystemDiskSize             types.Int64  `tfsdk:"system_disk_size"`
	SystemDiskPerformanceLevel types.String `tfsdk:"system_disk_performance_level"`
	SystemDiskEncrypted        types.Bool   `tfsdk:"system_disk_encrypted"`
	SystemDiskEncryptAlgorithm types.String `tfsdk:"system_disk_encrypt_algorithm"`
	SystemDiskKMSKeyID         types.String `tfsdk:"system_disk_kms_key_id"`
	SystemDiskBurstingEnabled  types.Bool   `tfsdk:"system_disk_bursting_enabled"`
	SystemDiskProvisionedIOPS  types.Int64  `tfsdk:"system_disk_provisioned_iops"`
	SystemDiskSnapshotPolicyID types.String `tfsdk:"system_disk_snapshot_policy_id"`
	DataDisks                  types.List   `tfsdk:"data_disks"`

	InstanceChargeType types.String `tfsdk:"instance_charge_type"`
	Period             types.Int64  `tfsdk:"period"`
	PeriodUnit         types.String `tfsdk:"period_unit"`
	AutoRenew          types.Bool   `tfsdk:"auto_renew"`
	AutoRenewPeriod    types.Int64  `tfsdk:"auto_renew_period"`

	SpotStrategy           types.String `tfsdk:"spot_strategy"`
	SpotPriceLimit         types.Map    `tfsdk:"spot_price_limit"`
	SpotInstancePools      types.Int64  `tfsdk:"spot_instance_pools"`
	SpotInstanceRemedy     types.Bool   `tfsdk:"spot_instance_remedy"`
	CompensateWithOnDemand types.Bool   `tfsdk:"compensate_with_on_demand"`
	OnDemandBaseCapacity   types.Int64  `tfsdk:"on_demand_base_capacity"`
	OnDemandPercentage     types.Int64  `tfsdk:"on_demand_percentage_above_base_capacity"`

	PrivatePool     types.Object `tfsdk:"private_pool"`
	ResourcePool    types.Object `tfsdk:"resource_pool"`
	DeploymentSetID types.String `tfsdk:"deployment_set_id"`
	MultiAZPolicy   types.String `tfsdk:"multi_az_policy"`
	ScalingPolicy   types.String `tfsdk:"scaling_policy"`

	CPUPolicy      types.String `tfsdk:"cpu_policy"`
	Runtime        types.String `tfsdk:"runtime"`
	RuntimeVersion types.String `tfsdk:"runtime_version"`
	UserData       types.String `tfsdk:"user_data"`
	PreUserData    types.String `tfsdk:"pre_user_data"`
	Management     types.Object `tfsdk:"management"`
	KubeletConfig  types.Object `tfsdk:"kubelet_config"`
}

// Limits of the service.
const (
	minSystemDisk = 20   // GiB
	maxSystemDisk = 2048 // GiB
	maxDataDisk   = 65536
	maxDataDisks  = 10
	maxIOPS       = 50000
	maxOnDemand   = 1000
	maxSpotPools  = 10
)

const (
	serviceDefault = " Default: the service's."
	newNodes       = " A change is for nodes that are created after it."
)

// table lists all settings.
var table = sync.OnceValue(func() []setting {
	all := slices.Concat(instances(), disks(), charges(), software())
	for i, s := range all {
		if !s.shown {
			all[i].attribute = quietly(s.attribute)
		}
	}
	return all
})

func instances() []setting {
	return []setting{
		shown(names("security_group_ids", "Security groups of the nodes. Default: the cluster's.",
			func(v *Values) *types.Set { return &v.SecurityGroupIDs }, func(s *acs.NodePoolSpec) *[]string { return &s.ScalingGroup.SecurityGroupIDs })),
		shown(text("image_id", "Image of the nodes. Default: the cluster's.",
			func(v *Values) *types.String { return &v.ImageID }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.ImageID })),
		shown(text("image_type", "Type of the image, such as `AliyunLinux3`. Default: the cluster's.",
			func(v *Values) *types.String { return &v.ImageType }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.ImageType })),
		shown(text("key_pair", "Key pair for logging in to the nodes. Default: none.",
			func(v *Values) *types.String { return &v.KeyPair }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.KeyPair })),
		shown(fixed(text("ram_role_name", "RAM role of the nodes. Default: the cluster's for its workers. A change replaces the pool.",
			func(v *Values) *types.String { return &v.RAMRoleName }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.RAMRoleName }))),
		text("resource_group_id", "Resource group of the pool, and of the instances that it creates."+serviceDefault,
			func(v *Values) *types.String { return &v.ResourceGroupID }, func(s *acs.NodePoolSpec) *string { return &s.Info.ResourceGroupID }),
		tags(),
		privatePool(),
		resourcePool(),
		clearable(text("deployment_set_id", "Deployment set that spreads the instances over physical servers. It limits how many there can be, by default 20 in each zone."+newNodes+" Default: none.",
			func(v *Values) *types.String { return &v.DeploymentSetID }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.DeploymentSetID })),
		choice("multi_az_policy", "How vSwitches of several zones are used: `PRIORITY` (in their order), `COST_OPTIMIZED` or `BALANCE`."+serviceDefault,
			func(v *Values) *types.String { return &v.MultiAZPolicy }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.MultiAZPolicy }, "PRIORITY", costOptimized, "BALANCE"),
		choice("scaling_policy", "What becomes of the instances of nodes that go: `release`, or `recycle`, which stops them and starts them again when the pool grows."+serviceDefault,
			func(v *Values) *types.String { return &v.ScalingPolicy }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.ScalingPolicy }, acs.ScalingPolicyRelease, acs.ScalingPolicyRecycle),
	}
}

func charges() []setting {
	return []setting{
		choice("instance_charge_type", "How instances are paid: `PostPaid` (by use) or `PrePaid` (subscription, with `period`)."+newNodes+serviceDefault,
			func(v *Values) *types.String { return &v.InstanceChargeType }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.InstanceChargeType }, "PostPaid", "PrePaid"),
		number("period", "How long instances are subscribed to: 1 to 9, 12, 24, 36, 48 or 60 months, or 1 to 4 weeks. Only for `PrePaid`, and required there.",
			func(v *Values) *types.Int64 { return &v.Period }, func(s *acs.NodePoolSpec) **int64 { return &s.ScalingGroup.Period }, among(1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 24, 36, 48, 60)),
		choice("period_unit", "`Month` or `Week`, the unit of `period` and `auto_renew_period`. Only for `PrePaid`."+serviceDefault,
			func(v *Values) *types.String { return &v.PeriodUnit }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.PeriodUnit }, "Month", "Week"),
		flag("auto_renew", "Whether subscriptions are renewed. Only for `PrePaid`."+serviceDefault,
			func(v *Values) *types.Bool { return &v.AutoRenew }, func(s *acs.NodePoolSpec) **bool { return &s.ScalingGroup.AutoRenew }),
		number("auto_renew_period", "For how long subscriptions are renewed: 1, 2, 3, 6, 12, 24, 36, 48 or 60 months, or 1 to 3 weeks. Only with `auto_renew`."+serviceDefault,
			func(v *Values) *types.Int64 { return &v.AutoRenewPeriod }, func(s *acs.NodePoolSpec) **int64 { return &s.ScalingGroup.AutoRenewPeriod }, among(1, 2, 3, 6, 12, 24, 36, 48, 60)),

		choice("spot_strategy", "`NoSpot`, `SpotWithPriceLimit` (spot instances, for at most `spot_price_limit`) or `SpotAsPriceGo` (for what they cost). "+
			"The cloud takes a spot instance back when it wants to, whatever runs there; a plan promises places on it as on any other node."+newNodes+serviceDefault,
			func(v *Values) *types.String { return &v.SpotStrategy }, func(s *acs.NodePoolSpec) *string { return &s.ScalingGroup.SpotStrategy }, "NoSpot", "SpotWithPriceLimit", "SpotAsPriceGo"),
		spotPriceLimit(),
		number("spot_instance_pools", "Among how many of the cheapest instance types spot instances are chosen, 1 to 10."+serviceDefault,
			func(v *Values) *types.Int64 { return &v.SpotInstancePools }, func(s *acs.NodePoolSpec) **int64 { return &s.ScalingGroup.SpotInstancePools }, int64validator.Between(1, maxSpotPools)),
		flag("spot_instance_remedy", "Whether another spot instance is created when one is about to be taken back."+serviceDefault,
			func(v *Values) *types.Bool { return &v.SpotInstanceRemedy }, func(s *acs.NodePoolSpec) **bool { return &s.ScalingGroup.SpotInstanceRemedy }),
		flag("compensate_with_on_demand", "Whether instances that are paid by use fill in for spot instances that are not to be had. Only with `multi_az_policy = \"COST_OPTIMIZED\"`."+serviceDefault,
			func(v *Values) *types.Bool { return &v.CompensateWithOnDemand }, func(s *acs.NodePoolSpec) **bool { return &s.ScalingGroup.CompensateWithOnDemand }),
		number("on_demand_base_capacity", "How many instances at least are paid by use, 0 to 1,000."+serviceDefault,
			func(v *Values) *types.Int64 { return &v.OnDemandBaseCapacity }, func(s *acs.NodePoolSpec) **int64 { return &s.ScalingGroup.OnDemandBaseCapacity }, int64validator.Between(0, maxOnDemand)),
		number("on_demand_percentage_above_base_capacity", "Which percentage of the instances beyond `on_demand_base_capacity` is paid by use, 0 to 100."+serviceDefault,
			func(v *Values) *types.Int64 { return &v.OnDemandPercentage }, func(s *acs.NodePoolSpec) **int64 { return &s.ScalingGroup.OnDemandPercentage }, int64validator.Between(0, 100)),
	}
}

func software() []setting {
	return []setting{
		choice("cpu_policy", "CPU policy of the kubelets: `none`, or `static`, which gives CPUs of their own to containers that ask for whole ones, and which `ack-erdma-controller` needs to give a pod the eRDMA device of its NUMA node (`allocateAllDevices` `false`)."+newNodes+serviceDefault,
			func(v *Values) *types.String { return &v.CPUPolicy }, func(s *acs.NodePoolSpec) *string { return &s.KubernetesConfig.CPUPolicy }, acs.CPUPolicyNone, acs.CPUPolicyStatic),
		choice("runtime", "Container runtime: `containerd`, `Sandboxed-Container.runv` or `docker`."+newNodes+" Default: the cluster's.",
			func(v *Values) *types.String { return &v.Runtime }, func(s *acs.NodePoolSpec) *string { return &s.KubernetesConfig.Runtime }, "containerd", "Sandboxed-Container.runv", "docker"),
		text("runtime_version", "Version of the container runtime."+newNodes+" Default: the cluster's.",
			func(v *Values) *types.String { return &v.RuntimeVersion }, func(s *acs.NodePoolSpec) *string { return &s.KubernetesConfig.RuntimeVersion }),
		script("user_data", "Script that a node runs after it has joined the cluster, as it is: the provider encodes it in base64. It is in the state and at the service: put secrets elsewhere. Empty: none."+newNodes+" Default: what the service has.",
			func(v *Values) *types.String { return &v.UserData }, func(s *acs.NodePoolSpec) **string { return &s.KubernetesConfig.UserData }),
		script("pre_user_data", "Script that a node runs before it joins the cluster, as it is: the provider encodes it in base64. It is in the state and at the service: put secrets elsewhere. Empty: none."+newNodes+" Default: what the service has.",
			func(v *Values) *types.String { return &v.PreUserData }, func(s *acs.NodePoolSpec) **string { return &s.KubernetesConfig.PreUserData }),
		kubeletConfig(),
		management(),
	}
}

// systemDiskSize is 0 at the service where the user leaves it out.
func systemDiskSize() setting {
	return of("system_disk_size", schema.Int64Attribute{
		MarkdownDescription: "Size of the system disk in GiB, 20 to 2,048. Default: the service's.",
		Optional:            true, Computed: true,
		PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
		Validators:    []validator.Int64{int64validator.Between(minSystemDisk, maxSystemDisk)},
	}, func(v *Values) *types.Int64 { return &v.SystemDiskSize },
		func(_ context.Context, spec acs.NodePoolSpec, _ types.Int64) (types.Int64, diag.Diagnostics) {
			if spec.ScalingGroup.SystemDiskSize == 0 {
				return types.Int64Null(), nil
			}
			return types.Int64Value(spec.ScalingGroup.SystemDiskSize), nil
		},
		func(_ context.Context, value types.Int64, spec *acs.NodePoolSpec) diag.Diagnostics {
			spec.ScalingGroup.SystemDiskSize = value.ValueInt64()
			return nil
		})
}
