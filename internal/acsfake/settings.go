package acsfake

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// groupSettings is what the emulator checks of how instances are bought.
type groupSettings struct {
	ChargeType      string `json:"instance_charge_type"`
	Period          *int   `json:"period"`
	PeriodUnit      string `json:"period_unit"`
	AutoRenew       bool   `json:"auto_renew"`
	AutoRenewPeriod *int   `json:"auto_renew_period"`

	SpotStrategy    string `json:"spot_strategy"`
	SpotPriceLimits []struct {
		InstanceType string `json:"instance_type"`
		PriceLimit   string `json:"price_limit"`
	} `json:"spot_price_limit"`
	SpotInstancePools    *int `json:"spot_instance_pools"`
	SpotInstanceRemedy   bool `json:"spot_instance_remedy"`
	Compensate           bool `json:"compensate_with_on_demand"`
	OnDemandBaseCapacity *int `json:"on_demand_base_capacity"`
	OnDemandPercentage   *int `json:"on_demand_percentage_above_base_capacity"`

	diskSettings
	SystemDiskCategories []string `json:"system_disk_categories"`
	DataDisks            []struct {
		Category         string `json:"category"`
		Size             int    `json:"size"`
		PerformanceLevel string `json:"performance_level"`
		Encrypted        string `json:"encrypted"`
		KMSKeyID         string `json:"kms_key_id"`
		AutoFormat       bool   `json:"auto_format"`
		FileSystem       string `json:"file_system"`
		MountTarget      string `json:"mount_target"`
		BurstingEnabled  bool   `json:"bursting_enabled"`
		ProvisionedIOPS  *int   `json:"provisioned_iops"`
	} `json:"data_disks"`

	MultiAZPolicy   string `json:"multi_az_policy"`
	ScalingPolicy   string `json:"scaling_policy"`
	DeploymentSetID string `json:"deploymentset_id"`
	PrivatePool     struct {
		ID            string `json:"id"`
		MatchCriteria string `json:"match_criteria"`
	} `json:"private_pool_options"`
	ResourcePool struct {
		Strategy       string   `json:"strategy"`
		PrivatePoolIDs []string `json:"private_pool_ids"`
	} `json:"resource_pool_options"`
	RAMRoleName string `json:"ram_role_name"`
	Tags        []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"tags"`
}

// diskSettings is what the emulator checks of the system disk.
type diskSettings struct {
	Category         string `json:"system_disk_category"`
	Size             int    `json:"system_disk_size"`
	PerformanceLevel string `json:"system_disk_performance_level"`
	Encrypted        bool   `json:"system_disk_encrypted"`
	EncryptAlgorithm string `json:"system_disk_encrypt_algorithm"`
	KMSKeyID         string `json:"system_disk_kms_key_id"`
	BurstingEnabled  bool   `json:"system_disk_bursting_enabled"`
	ProvisionedIOPS  *int   `json:"system_disk_provisioned_iops"`
}

// managementSettings is what the emulator checks of managed operation.
type managementSettings struct {
	Enable           bool `json:"enable"`
	AutoRepair       bool `json:"auto_repair"`
	AutoUpgrade      bool `json:"auto_upgrade"`
	AutoVulFix       bool `json:"auto_vul_fix"`
	AutoVulFixPolicy struct {
		Level string `json:"vul_level"`
	} `json:"auto_vul_fix_policy"`
}

// Limits of the service.
const (
	maxDataDisks      = 10
	maxPrivatePoolIDs = 20
	maxTagKey         = 128
	autoPL            = "cloud_auto"
	essd              = "cloud_essd"
)

var diskCategories = []string{"cloud", "cloud_efficiency", "cloud_ssd", essd, autoPL, "cloud_essd_entry"}

// oneOf refuses a value that is set and is none of the known ones.
func oneOf(field, key, value string, known ...string) error {
	if value == "" || slices.Contains(known, value) {
		return nil
	}
	return invalid(field, "%s must be one of %s, not %q", key, strings.Join(known, ", "), value)
}

// first is the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// check refuses what the service refuses of the way in which instances are bought. types are the
// pool's instance types after the request.
func (g groupSettings) check(types []string) error {
	return first(g.checkCharge(), g.checkSpot(types), g.checkDisks(), g.checkPools(), g.checkTags(),
		oneOf("MultiAzPolicy", "multi_az_policy", g.MultiAZPolicy, "PRIORITY", "COST_OPTIMIZED", "BALANCE"),
		oneOf("ScalingPolicy", "scaling_policy", g.ScalingPolicy, "release", "recycle"))
}

func (g groupSettings) checkCharge() error {
	periods, renewals := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 24, 36, 48, 60}, []int{1, 2, 3, 6, 12, 24, 36, 48, 60}
	if g.PeriodUnit == "Week" {
		periods, renewals = []int{1, 2, 3, 4}, []int{1, 2, 3}
	}
	switch {
	case g.ChargeType == "PrePaid" && g.Period == nil:
		return invalid("Period", "period must be set when instance_charge_type is PrePaid")
	case g.Period != nil && !slices.Contains(periods, *g.Period):
		return invalid("Period", "period must be one of %v, not %d", periods, *g.Period)
	case g.AutoRenewPeriod != nil && !slices.Contains(renewals, *g.AutoRenewPeriod):
		return invalid("AutoRenewPeriod", "auto_renew_period must be one of %v, not %d", renewals, *g.AutoRenewPeriod)
	}
	return first(oneOf("InstanceChargeType", "instance_charge_type", g.ChargeType, "PostPaid", "PrePaid"),
		oneOf("PeriodUnit", "period_unit", g.PeriodUnit, "Month", "Week"))
}

func (g groupSettings) checkSpot(types []string) error {
	if err := oneOf("SpotStrategy", "spot_strategy", g.SpotStrategy, "NoSpot", "SpotWithPriceLimit", "SpotAsPriceGo"); err != nil {
		return err
	}
	switch {
	case g.SpotStrategy == "SpotWithPriceLimit" && len(g.SpotPriceLimits) == 0:
		return invalid("SpotPriceLimit", "spot_price_limit must be set when spot_strategy is SpotWithPriceLimit")
	case g.SpotInstancePools != nil && (*g.SpotInstancePools < 1 || *g.SpotInstancePools > 10):
		return invalid("SpotInstancePools", "spot_instance_pools must be 1 to 10")
	case g.OnDemandBaseCapacity != nil && (*g.OnDemandBaseCapacity < 0 || *g.OnDemandBaseCapacity > 1000):
		return invalid("OnDemandBaseCapacity", "on_demand_base_capacity must be 0 to 1000")
	case g.OnDemandPercentage != nil && (*g.OnDemandPercentage < 0 || *g.OnDemandPercentage > 100):
		return invalid("OnDemandPercentageAboveBaseCapacity", "on_demand_percentage_above_base_capacity must be 0 to 100")
	}
	for _, l := range g.SpotPriceLimits {
		if !slices.Contains(types, l.InstanceType) {
			return invalid("SpotPriceLimit", "%s is none of the pool's instance types", l.InstanceType)
		}
		if price, err := strconv.ParseFloat(l.PriceLimit, 64); err != nil || price <= 0 {
			return invalid("SpotPriceLimit", "%q is no price", l.PriceLimit)
		}
	}
	return nil
}

func (g groupSettings) checkDisks() error {
	errs := []error{
		oneOf("SystemDiskCategory", "system_disk_category", g.Category, diskCategories...),
		checkPerformance("SystemDisk", g.Category, g.PerformanceLevel, g.BurstingEnabled, g.ProvisionedIOPS),
		oneOf("SystemDiskEncryptAlgorithm", "system_disk_encrypt_algorithm", g.EncryptAlgorithm, "aes-256"),
	}
	for _, category := range g.SystemDiskCategories {
		errs = append(errs, oneOf("SystemDiskCategories", "system_disk_categories", category, diskCategories...))
	}
	if g.Size != 0 && (g.Size < 20 || g.Size > 2048) {
		errs = append(errs, invalid("SystemDiskSize", "system_disk_size must be 20 to 2048"))
	}
	if g.KMSKeyID != "" && !g.Encrypted {
		errs = append(errs, invalid("SystemDiskKmsKeyId", "system_disk_kms_key_id is for a system disk that is encrypted"))
	}
	if len(g.DataDisks) > maxDataDisks {
		errs = append(errs, invalid("DataDisks", "a node has at most %d data disks", maxDataDisks))
	}
	for _, d := range g.DataDisks {
		errs = append(errs,
			oneOf("DataDisks", "data_disks.category", d.Category, append(slices.Clone(diskCategories), "elastic_ephemeral_disk_standard", "elastic_ephemeral_disk_premium")...),
			oneOf("DataDisks", "data_disks.encrypted", d.Encrypted, "true", "false"),
			oneOf("DataDisks", "data_disks.file_system", d.FileSystem, "ext4", "xfs"),
			checkPerformance("DataDisks", d.Category, d.PerformanceLevel, d.BurstingEnabled, d.ProvisionedIOPS))
		if d.KMSKeyID != "" && d.Encrypted != "true" {
			errs = append(errs, invalid("DataDisks", "kms_key_id is for a data disk that is encrypted"))
		}
		if d.MountTarget != "" && !strings.HasPrefix(d.MountTarget, "/") {
			errs = append(errs, invalid("DataDisks", "mount_target %q is no absolute path", d.MountTarget))
		}
	}
	return first(errs...)
}

func checkPerformance(field, category, level string, bursting bool, iops *int) error {
	switch {
	case level != "" && category != essd && category != "":
		return invalid(field, "a performance level is for disks of category cloud_essd, not %s", category)
	case (bursting || iops != nil) && category != autoPL:
		return invalid(field, "bursting and provisioned IOPS are for disks of category cloud_auto")
	}
	return oneOf(field, "performance_level", level, "PL0", "PL1", "PL2", "PL3")
}

func (g groupSettings) checkPools() error {
	private, resource := g.PrivatePool, g.ResourcePool
	switch {
	case private.MatchCriteria == "Target" && private.ID == "":
		return invalid("PrivatePoolOptions", "private_pool_options.id must be set when match_criteria is Target")
	case (private.MatchCriteria != "" || private.ID != "") && (resource.Strategy != "" || len(resource.PrivatePoolIDs) > 0):
		return invalid("ResourcePoolOptions", "resource_pool_options and private_pool_options exclude each other")
	case resource.Strategy == "PrivatePoolOnly" && len(resource.PrivatePoolIDs) == 0:
		return invalid("ResourcePoolOptions", "private_pool_ids must be set when strategy is PrivatePoolOnly")
	case len(resource.PrivatePoolIDs) > maxPrivatePoolIDs:
		return invalid("ResourcePoolOptions", "private_pool_ids has at most %d entries", maxPrivatePoolIDs)
	}
	return first(oneOf("PrivatePoolOptions", "match_criteria", private.MatchCriteria, "Open", "Target", "None"),
		oneOf("ResourcePoolOptions", "strategy", resource.Strategy, "PrivatePoolFirst", "PrivatePoolOnly", "None"))
}

func (g groupSettings) checkTags() error {
	seen := map[string]bool{}
	for _, t := range g.Tags {
		if t.Key == "" || len(t.Key) > maxTagKey || seen[t.Key] {
			return invalid("Tags", "tag %q: the key has 1 to %d characters and comes once", t.Key, maxTagKey)
		}
		seen[t.Key] = true
		for _, text := range []string{t.Key, t.Value} {
			if strings.HasPrefix(text, "aliyun") || strings.HasPrefix(text, "acs:") || strings.Contains(text, "http://") || strings.Contains(text, "https://") {
				return invalid("Tags", "tag %q must not start with aliyun or acs: nor contain http:// or https://", t.Key)
			}
		}
	}
	return nil
}

func (m managementSettings) check() error {
	if m.AutoVulFixPolicy.Level == "" {
		return nil
	}
	for _, level := range strings.Split(m.AutoVulFixPolicy.Level, ",") {
		if err := oneOf("Management", "vul_level", level, "asap", "later", "nntf"); err != nil {
			return err
		}
	}
	return nil
}

// checkScript refuses user data that is not in base64.
func checkScript(field, text string) error {
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		return invalid(field, "the script is not in base64")
	}
	return nil
}

// withDefaults fills in what the service decides itself for a pool that is created.
func withDefaults(b poolBlocks) poolBlocks {
	fill := func(block map[string]any, defaults map[string]any) map[string]any {
		if !assumeDefaultsAnswered {
			return block
		}
		filled := maps.Clone(defaults)
		maps.Copy(filled, block)
		return filled
	}
	b.ScalingGroup = fill(b.ScalingGroup, map[string]any{
		"instance_charge_type": "PostPaid", "spot_strategy": "NoSpot", "multi_az_policy": "PRIORITY", "scaling_policy": "release",
		"ram_role_name": "KubernetesWorkerRole-local",
	})
	b.KubernetesConfig = fill(b.KubernetesConfig, map[string]any{"cpu_policy": "none", "runtime": "containerd", "runtime_version": "2.1.6"})
	b.Info = fill(b.Info, map[string]any{"type": "ess", "resource_group_id": "rg-default"})
	return b
}

// kubeletSettings is what the emulator checks of the kubelet's configuration.
type kubeletSettings struct {
	CPUManagerPolicy      string            `json:"cpuManagerPolicy"`
	TopologyManagerPolicy string            `json:"topologyManagerPolicy"`
	KubeReserved          map[string]string `json:"kubeReserved"`
	SystemReserved        map[string]string `json:"systemReserved"`
	MaxPods               *int              `json:"maxPods"`
	RegistryQPS           *int              `json:"registryPullQPS"`
	RegistryBurst         *int              `json:"registryBurst"`
}

func (k kubeletSettings) check() error {
	if k.MaxPods != nil && *k.MaxPods < 1 {
		return invalid("KubeletConfiguration", "maxPods must be positive")
	}
	for _, reserved := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		for name, text := range reserved {
			if _, err := resource.ParseQuantity(text); err != nil {
				return invalid("KubeletConfiguration", "%s: %q is no quantity", name, text)
			}
		}
	}
	return first(
		oneOf("KubeletConfiguration", "cpuManagerPolicy", k.CPUManagerPolicy, "none", "static"),
		oneOf("KubeletConfiguration", "topologyManagerPolicy", k.TopologyManagerPolicy, "none", "best-effort", "restricted", "single-numa-node"))
}
