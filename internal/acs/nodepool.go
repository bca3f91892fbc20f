package acs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// NodePoolSpec is the desired state of a node pool. Create and modify send every
// block whole, so that no setting falls back to a default in passing.
type NodePoolSpec struct {
	Info             NodePoolInfo     `json:"nodepool_info"`
	ScalingGroup     ScalingGroup     `json:"scaling_group"`
	KubernetesConfig KubernetesConfig `json:"kubernetes_config"`
	AutoScaling      AutoScaling      `json:"auto_scaling"`
	Management       Management       `json:"management"`
	// NodeConfig is sent when a pool is created. Nodes that exist get changes of it from
	// [Client.ModifyNodeConfig] alone.
	NodeConfig NodeConfig `json:"node_config,omitzero"`
}

// NodePool is a node pool as the service describes it.
type NodePool struct {
	NodePoolSpec
	Status NodePoolStatus `json:"status"`
}

// NodePoolInfo identifies a pool. Only Name, Type and ResourceGroupID may be set.
type NodePoolInfo struct {
	Name string `json:"name"`
	// Type is "ess" for a pool of ECS instances.
	Type            string `json:"type,omitempty"`
	ResourceGroupID string `json:"resource_group_id,omitempty"`

	ID        string `json:"nodepool_id,omitempty"`
	RegionID  string `json:"region_id,omitempty"`
	IsDefault bool   `json:"is_default,omitempty"`
	Created   string `json:"created,omitempty"`
	Updated   string `json:"updated,omitempty"`
}

// ScalingGroup is how the pool's instances are bought.
type ScalingGroup struct {
	// InstanceTypes are 1–10 full type names in the order in which they are tried, VSwitchIDs 1–8 IDs.
	InstanceTypes []string `json:"instance_types"`
	VSwitchIDs    []string `json:"vswitch_ids"`
	// DesiredSize is the number of nodes; nil with auto scaling, where the service refuses it.
	DesiredSize *int64 `json:"desired_size,omitempty"`

	// InstanceChargeType is "PostPaid" or "PrePaid"; the four after it are for the latter.
	InstanceChargeType string `json:"instance_charge_type,omitempty"`
	Period             *int64 `json:"period,omitempty"`
	// PeriodUnit is "Month" or "Week".
	PeriodUnit      string `json:"period_unit,omitempty"`
	AutoRenew       *bool  `json:"auto_renew,omitempty"`
	AutoRenewPeriod *int64 `json:"auto_renew_period,omitempty"`

	// SpotStrategy is "NoSpot", "SpotWithPriceLimit" or "SpotAsPriceGo".
	SpotStrategy           string           `json:"spot_strategy,omitempty"`
	SpotPriceLimits        []SpotPriceLimit `json:"spot_price_limit,omitzero"`
	SpotInstancePools      *int64           `json:"spot_instance_pools,omitempty"`
	SpotInstanceRemedy     *bool            `json:"spot_instance_remedy,omitempty"`
	CompensateWithOnDemand *bool            `json:"compensate_with_on_demand,omitempty"`
	OnDemandBaseCapacity   *int64           `json:"on_demand_base_capacity,omitempty"`
	OnDemandPercentage     *int64           `json:"on_demand_percentage_above_base_capacity,omitempty"`

	SystemDiskCategory string `json:"system_disk_category,omitempty"`
	// SystemDiskCategories are tried in this order.
	SystemDiskCategories []string `json:"system_disk_categories,omitzero"`
	// SystemDiskSize is in GiB, 0 for the service's default.
	SystemDiskSize             int64      `json:"system_disk_size,omitempty"`
	SystemDiskPerformanceLevel string     `json:"system_disk_performance_level,omitempty"`
	SystemDiskEncrypted        *bool      `json:"system_disk_encrypted,omitempty"`
	SystemDiskEncryptAlgorithm string     `json:"system_disk_encrypt_algorithm,omitempty"`
	SystemDiskKMSKeyID         string     `json:"system_disk_kms_key_id,omitempty"`
	SystemDiskBurstingEnabled  *bool      `json:"system_disk_bursting_enabled,omitempty"`
	SystemDiskProvisionedIOPS  *int64     `json:"system_disk_provisioned_iops,omitempty"`
	SystemDiskSnapshotPolicyID string     `json:"system_disk_snapshot_policy_id,omitempty"`
	DataDisks                  []DataDisk `json:"data_disks,omitzero"`

	ImageID   string `json:"image_id,omitempty"`
	ImageType string `json:"image_type,omitempty"`
	KeyPair   string `json:"key_pair,omitempty"`
	// LoginPassword is write-only: it is "" in what the client reads, and stays as it is
	// when it is "" in a change.
	LoginPassword    string   `json:"login_password,omitempty"`
	SecurityGroupIDs []string `json:"security_group_ids,omitempty"`
	// MultiAZPolicy is "PRIORITY", "COST_OPTIMIZED" or "BALANCE", ScalingPolicy one of [ScalingPolicyRelease] and
	// [ScalingPolicyRecycle].
	MultiAZPolicy   string        `json:"multi_az_policy,omitempty"`
	ScalingPolicy   string        `json:"scaling_policy,omitempty"`
	DeploymentSetID string        `json:"deploymentset_id,omitempty"`
	PrivatePool     *PrivatePool  `json:"private_pool_options,omitempty"`
	ResourcePool    *ResourcePool `json:"resource_pool_options,omitempty"`
	// RAMRoleName is only for a pool that is created.
	RAMRoleName string `json:"ram_role_name,omitempty"`
	Tags        []Tag  `json:"tags"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// DataDisk is a data disk of each node.
type DataDisk struct {
	Category string `json:"category,omitempty"`
	// Size is in GiB.
	Size             int64  `json:"size,omitempty"`
	PerformanceLevel string `json:"performance_level,omitempty"`
	// Encrypted is the string "true" or "false": the service refuses a JSON boolean.
	Encrypted  string `json:"encrypted,omitempty"`
	KMSKeyID   string `json:"kms_key_id,omitempty"`
	SnapshotID string `json:"snapshot_id,omitempty"`
	// AutoFormat lets the service make a file system (FileSystem, "ext4" or "xfs") and mount
	// it (at MountTarget).
	AutoFormat       *bool  `json:"auto_format,omitempty"`
	FileSystem       string `json:"file_system,omitempty"`
	MountTarget      string `json:"mount_target,omitempty"`
	BurstingEnabled  *bool  `json:"bursting_enabled,omitempty"`
	ProvisionedIOPS  *int64 `json:"provisioned_iops,omitempty"`
	SnapshotPolicyID string `json:"auto_snapshot_policy_id,omitempty"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// SpotPriceLimit is the most that an instance of a type may cost in an hour.
type SpotPriceLimit struct {
	InstanceType string `json:"instance_type"`
	PriceLimit   string `json:"price_limit"`
}

// PrivatePool says whether instances come from capacity that is reserved for the account.
type PrivatePool struct {
	// ID is the reservation's, for "Target".
	ID string `json:"id,omitempty"`
	// MatchCriteria is "Open", "Target" or "None".
	MatchCriteria string `json:"match_criteria,omitempty"`
}

// ResourcePool says in which order reserved and public capacity is used.
type ResourcePool struct {
	// Strategy is "PrivatePoolFirst", "PrivatePoolOnly" or "None".
	Strategy string `json:"strategy,omitempty"`
	// PrivatePoolIDs are at most 20.
	PrivatePoolIDs []string `json:"private_pool_ids,omitzero"`
}

// Tag is a tag of the pool's instances.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// KubernetesConfig is what the pool's nodes are registered with.
type KubernetesConfig struct {
	// Labels are at most 20. Changes reach existing nodes only with [ModifyOptions].UpdateNodes.
	Labels []Label `json:"labels"`
	Taints []Taint `json:"taints"`
	// CPUPolicy is one of [CPUPolicyNone] and [CPUPolicyStatic].
	CPUPolicy      string `json:"cpu_policy,omitempty"`
	CMSEnabled     bool   `json:"cms_enabled"`
	Runtime        string `json:"runtime,omitempty"`
	RuntimeVersion string `json:"runtime_version,omitempty"`
	// UserData and PreUserData are the base64 texts of scripts that a node runs after and
	// before it joins the cluster; "" takes one away, nil leaves it to the service.
	UserData      *string `json:"user_data,omitempty"`
	PreUserData   *string `json:"pre_user_data,omitempty"`
	NodeNameMode  string  `json:"node_name_mode,omitempty"`
	Unschedulable bool    `json:"unschedulable"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// CPU policies of nodes. The static one pins pods with whole CPUs to them, so that a NUMA node is theirs.
const (
	CPUPolicyNone   = "none"
	CPUPolicyStatic = "static"
)

// What becomes of the instances of nodes that the service takes out of a pool.
const (
	ScalingPolicyRelease = "release"
	ScalingPolicyRecycle = "recycle" // they are stopped, and started again when the pool grows
)

// Label is a label of the pool's nodes: key ≤ 64, value ≤ 128 characters.
type Label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Taint is a taint of the pool's nodes.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// AutoScaling lets the service choose the size between two bounds.
type AutoScaling struct {
	Enable bool `json:"enable"`
	// Type is "gpu" for GPU pools.
	Type         string `json:"type,omitempty"`
	MinInstances int64  `json:"min_instances,omitempty"`
	MaxInstances int64  `json:"max_instances,omitempty"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// Management is managed operation of a pool; it needs the add-on ack-node-problem-detector.
type Management struct {
	Enable            bool           `json:"enable"`
	AutoRepair        *bool          `json:"auto_repair,omitempty"`
	AutoRepairPolicy  *RepairPolicy  `json:"auto_repair_policy,omitempty"`
	AutoUpgrade       *bool          `json:"auto_upgrade,omitempty"`
	AutoUpgradePolicy *UpgradePolicy `json:"auto_upgrade_policy,omitempty"`
	AutoVulFix        *bool          `json:"auto_vul_fix,omitempty"`
	AutoVulFixPolicy  *VulFixPolicy  `json:"auto_vul_fix_policy,omitempty"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// RepairPolicy is what automatic repair may do.
type RepairPolicy struct {
	RestartNode      *bool `json:"restart_node,omitempty"`
	ApprovalRequired *bool `json:"approval_required,omitempty"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// UpgradePolicy is what automatic upgrades may upgrade.
type UpgradePolicy struct {
	Kubelet *bool `json:"auto_upgrade_kubelet,omitempty"`
	OS      *bool `json:"auto_upgrade_os,omitempty"`
	Runtime *bool `json:"auto_upgrade_runtime,omitempty"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// VulFixPolicy is which vulnerabilities are fixed, and how.
type VulFixPolicy struct {
	RestartNode *bool `json:"restart_node,omitempty"`
	// Level lists "asap", "later" and "nntf", with commas between them.
	Level string `json:"vul_level,omitempty"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// NodeConfig is how programs of the nodes are set up.
type NodeConfig struct {
	Kubelet *KubeletConfig `json:"kubelet_configuration,omitempty"`
}

// KubeletConfig are fields of the kubelet's configuration, named as in Kubernetes.
type KubeletConfig struct {
	CPUManagerPolicy      string            `json:"cpuManagerPolicy,omitempty"`
	TopologyManagerPolicy string            `json:"topologyManagerPolicy,omitempty"`
	KubeReserved          map[string]string `json:"kubeReserved,omitempty"`
	SystemReserved        map[string]string `json:"systemReserved,omitempty"`
	MaxPods               *int64            `json:"maxPods,omitempty"`
	PodPIDsLimit          *int64            `json:"podPidsLimit,omitempty"`
	AllowedUnsafeSysctls  []string          `json:"allowedUnsafeSysctls,omitzero"`
	SerializeImagePulls   *bool             `json:"serializeImagePulls,omitempty"`
	RegistryPullQPS       *int64            `json:"registryPullQPS,omitempty"`
	RegistryBurst         *int64            `json:"registryBurst,omitempty"`
	ContainerLogMaxSize   string            `json:"containerLogMaxSize,omitempty"`
	ContainerLogMaxFiles  *int64            `json:"containerLogMaxFiles,omitempty"`
	// Rest are the service's further settings, kept as they are.
	Rest Rest `json:"-"`
}

// States of a node pool that the service documents. Others exist (initial, creating,
// removing_nodes); they mean that the pool is busy.
const (
	PoolActive       = "active"
	PoolScaling      = "scaling"
	PoolDeleting     = "deleting"
	PoolDeleteFailed = "delete_failed"
)

// NodePoolStatus counts the pool's nodes.
type NodePoolStatus struct {
	State    string `json:"state"`
	Total    int64  `json:"total_nodes"`
	Healthy  int64  `json:"healthy_nodes"`
	Serving  int64  `json:"serving_nodes"`
	Initial  int64  `json:"initial_nodes"`
	Removing int64  `json:"removing_nodes"`
	Failed   int64  `json:"failed_nodes"`
	Offline  int64  `json:"offline_nodes"`
	// Conditions say why a pool is not what it should be.
	Conditions []Condition `json:"conditions"`
}

// Condition is one condition of a pool.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Problem is why the pool is not what it should be, "" when no condition says so.
func (s NodePoolStatus) Problem() string {
	for _, c := range s.Conditions {
		if c.Status != "True" && c.Message != "" {
			return c.Message
		}
	}
	return ""
}

// Started is the answer to a change that goes on as a task.
type Started struct {
	// PoolID is the pool's ID where the operation knows it.
	PoolID string `json:"nodepool_id"`
	// TaskID is the task to wait for, "" when the service named none.
	TaskID string `json:"task_id"`
}

// PoolExistsError is the error of a create when the cluster has a pool of that name.
type PoolExistsError struct {
	ClusterID string
	// Pool is the pool that exists.
	Pool NodePool
}

func (e *PoolExistsError) Error() string {
	return fmt.Sprintf("a node pool of that name exists: %q has the ID %s in cluster %s",
		e.Pool.Info.Name, e.Pool.Info.ID, e.ClusterID)
}

// recovery limits the look-up after a create whose outcome is unknown.
const recovery = 30 * time.Second

// CreateNodePool creates a pool whose name no other pool of the cluster has.
//
// The service takes no idempotency token, so the name is looked up before, and again
// when the answer got lost: if a pool with the tags of spec is there then, it is ours, and
// the result has its ID and no task. Whenever PoolID is not "" the pool exists, also together with an
// error (such as the end of ctx).
func (c *Client) CreateNodePool(ctx context.Context, clusterID string, spec NodePoolSpec) (Started, error) {
	const operation = "CreateClusterNodePool"
	existing, err := c.FindNodePool(ctx, clusterID, spec.Info.Name)
	if err != nil {
		return Started{}, fmt.Errorf("%s: look for a pool named %q: %w", operation, spec.Info.Name, err)
	}
	if existing != nil {
		return Started{}, fmt.Errorf("%s: %w", operation, &PoolExistsError{ClusterID: clusterID, Pool: *existing})
	}
	var started Started
	err = c.do(ctx, call{operation, http.MethodPost, poolsPath(clusterID), nil, withEmptyLists(spec)}, &started)
	if err == nil {
		return started, nil
	}
	if !ambiguous(err) {
		return Started{}, err
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), recovery)
	defer cancel()
	found, lookErr := c.FindNodePool(look, clusterID, spec.Info.Name)
	switch {
	case lookErr != nil:
		return Started{}, fmt.Errorf("%w; whether pool %q was created is unknown: %w", err, spec.Info.Name, lookErr)
	case found == nil:
		return Started{}, fmt.Errorf("%w; no pool named %q was created", err, spec.Info.Name)
	case !found.hasTags(spec.ScalingGroup.Tags):
		return Started{}, fmt.Errorf("%s: %w", operation, &PoolExistsError{ClusterID: clusterID, Pool: *found})
	case ctx.Err() != nil:
		return Started{PoolID: found.Info.ID}, err
	}
	return Started{PoolID: found.Info.ID}, nil
}

func (p NodePool) hasTags(tags []Tag) bool {
	return !slices.ContainsFunc(tags, func(t Tag) bool { return !slices.Contains(p.ScalingGroup.Tags, t) })
}

// Tag is the value of one of the pool's tags, "" without it.
func (p NodePool) Tag(key string) string {
	for _, t := range p.ScalingGroup.Tags {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

// NamesakesError is the error of a look for the pool of a name that several have: the service lets them.
type NamesakesError struct {
	ClusterID string
	Pools     []NodePool
}

func (e *NamesakesError) Error() string {
	return fmt.Sprintf("cluster %s has two node pools named %q: %s and %s; rename one of them",
		e.ClusterID, e.Pools[0].Info.Name, e.Pools[0].Info.ID, e.Pools[1].Info.ID)
}

// FindNodePool returns the pool of that name, nil when there is none. Where several have it the error
// is a [NamesakesError].
func (c *Client) FindNodePool(ctx context.Context, clusterID, name string) (*NodePool, error) {
	var answer struct {
		NodePools []NodePool `json:"nodepools"`
	}
	query := url.Values{"NodepoolName": {name}}
	if err := c.do(ctx, call{"DescribeClusterNodePools", http.MethodGet, poolsPath(clusterID), query, nil}, &answer); err != nil {
		return nil, err
	}
	switch found := slices.DeleteFunc(answer.NodePools, func(p NodePool) bool { return p.Info.Name != name }); len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	default:
		return nil, &NamesakesError{ClusterID: clusterID, Pools: found}
	}
}

// ListNodePools returns all pools of a cluster.
func (c *Client) ListNodePools(ctx context.Context, clusterID string) ([]NodePool, error) {
	var answer struct {
		NodePools []NodePool `json:"nodepools"`
	}
	err := c.do(ctx, call{"DescribeClusterNodePools", http.MethodGet, poolsPath(clusterID), nil, nil}, &answer)
	return answer.NodePools, err
}

// GetNodePool returns a pool; [IsNotFound] means that it does not exist.
func (c *Client) GetNodePool(ctx context.Context, clusterID, poolID string) (NodePool, error) {
	var pool NodePool
	err := c.do(ctx, call{"DescribeClusterNodePoolDetail", http.MethodGet, poolPath(clusterID, poolID), nil, nil}, &pool)
	return pool, err
}

// ModifyOptions are options of [Client.ModifyNodePool].
type ModifyOptions struct {
	// UpdateNodes carries changed labels and taints over to the nodes that exist.
	UpdateNodes bool
}

// ModifyNodePool makes a pool what spec says, its size included.
func (c *Client) ModifyNodePool(ctx context.Context, clusterID, poolID string, spec NodePoolSpec, opts ModifyOptions) (Started, error) {
	body := struct {
		NodePoolSpec
		UpdateNodes bool `json:"update_nodes"`
	}{withEmptyLists(spec), opts.UpdateNodes}
	body.NodeConfig = NodeConfig{}
	var started Started
	err := c.do(ctx, call{"ModifyClusterNodePool", http.MethodPut, poolPath(clusterID, poolID), nil, body}, &started)
	return started, err
}

// ModifyNodeConfig sets up the programs of a pool's nodes, of those that exist as of those to come,
// and restarts them, on at most parallel nodes at a time; 0 leaves that to the service.
func (c *Client) ModifyNodeConfig(ctx context.Context, clusterID, poolID string, config NodeConfig, parallel int64) (Started, error) {
	type rolling struct {
		MaxParallelism int64 `json:"max_parallelism"`
	}
	body := struct {
		Kubelet *KubeletConfig `json:"kubelet_config,omitempty"`
		Rolling *rolling       `json:"rolling_policy,omitempty"`
	}{Kubelet: config.Kubelet}
	if parallel > 0 {
		body.Rolling = &rolling{parallel}
	}
	var started Started
	err := c.do(ctx, call{"ModifyNodePoolNodeConfig", http.MethodPut, poolPath(clusterID, poolID) + "/node_config", nil, body}, &started)
	return started, err
}

// DeleteNodePool deletes a pool. Without force the deletion fails later, as a task,
// when the pool has nodes; with force its nodes are drained and released. A pool that
// is gone or being deleted already is success without a task; see [Client.WaitNodePoolGone].
func (c *Client) DeleteNodePool(ctx context.Context, clusterID, poolID string, force bool) (Started, error) {
	query := url.Values{"force": {fmt.Sprint(force)}}
	var started Started
	err := c.do(ctx, call{"DeleteClusterNodepool", http.MethodDelete, poolPath(clusterID, poolID), query, nil}, &started)
	switch Code(err) {
	case "ErrorNodePoolNotFound":
		return Started{PoolID: poolID}, nil
	case "InvalidNodePoolStatus.Forbidden":
		if pool, lookErr := c.GetNodePool(ctx, clusterID, poolID); lookErr == nil && pool.Status.State == PoolDeleting {
			return Started{PoolID: poolID}, nil
		}
	}
	return started, err
}

// withEmptyLists writes lists that may be cleared as [], since the service takes an
// absent list for "as it was".
func withEmptyLists(spec NodePoolSpec) NodePoolSpec {
	if spec.KubernetesConfig.Labels == nil {
		spec.KubernetesConfig.Labels = []Label{}
	}
	if spec.KubernetesConfig.Taints == nil {
		spec.KubernetesConfig.Taints = []Taint{}
	}
	if spec.ScalingGroup.Tags == nil {
		spec.ScalingGroup.Tags = []Tag{}
	}
	return spec
}

func poolsPath(clusterID string) string        { return clusterPath(clusterID) + "/nodepools" }
func poolPath(clusterID, poolID string) string { return poolsPath(clusterID) + "/" + poolID }
