package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// model is the resource in Terraform's terms, one field per attribute of the schema.
// Pools and After are write-only: a configuration has them, a plan and a state do not.
type model struct {
	container
	ID                      types.String   `tfsdk:"id"`
	Namespace               types.String   `tfsdk:"namespace"`
	Name                    types.String   `tfsdk:"name"`
	Framework               types.String   `tfsdk:"framework"`
	Roles                   types.Map      `tfsdk:"roles"`
	Mode                    types.String   `tfsdk:"mode"`
	Gang                    types.Object   `tfsdk:"gang"`
	Pools                   types.List     `tfsdk:"pools"`
	Fleet                   types.Object   `tfsdk:"fleet"`
	After                   types.List     `tfsdk:"after"`
	RequireImmediate        types.Bool     `tfsdk:"require_immediate"`
	AllowPreemption         types.Bool     `tfsdk:"allow_preemption"`
	PlacementCheck          types.String   `tfsdk:"placement_check"`
	Quota                   types.String   `tfsdk:"quota"`
	Preemptible             types.Bool     `tfsdk:"preemptible"`
	SchedulerName           types.String   `tfsdk:"scheduler_name"`
	PriorityClass           types.String   `tfsdk:"priority_class"`
	NodeSelector            types.Map      `tfsdk:"node_selector"`
	Tolerations             types.List     `tfsdk:"tolerations"`
	HostNetwork             types.Bool     `tfsdk:"host_network"`
	HostIPC                 types.Bool     `tfsdk:"host_ipc"`
	HostPID                 types.Bool     `tfsdk:"host_pid"`
	DNSPolicy               types.String   `tfsdk:"dns_policy"`
	ServiceAccount          types.String   `tfsdk:"service_account"`
	ImagePullSecrets        types.List     `tfsdk:"image_pull_secrets"`
	ImagePullPolicy         types.String   `tfsdk:"image_pull_policy"`
	SharedMemory            types.String   `tfsdk:"shared_memory"`
	Volumes                 types.Map      `tfsdk:"volumes"`
	CodeSync                types.Object   `tfsdk:"code_sync"`
	TensorBoard             types.Object   `tfsdk:"tensorboard"`
	Port                    types.Int32    `tfsdk:"port"`
	RDMADefaults            types.Bool     `tfsdk:"rdma_defaults"`
	ProcessesPerNode        types.String   `tfsdk:"nproc_per_node"`
	MPIImplementation       types.String   `tfsdk:"mpi_implementation"`
	SSHAuthMountPath        types.String   `tfsdk:"ssh_auth_mount_path"`
	Suspend                 types.Bool     `tfsdk:"suspend"`
	Queue                   types.Bool     `tfsdk:"queue"`
	CleanPodPolicy          types.String   `tfsdk:"clean_pod_policy"`
	RestartPolicy           types.String   `tfsdk:"restart_policy"`
	BackoffLimit            types.Int32    `tfsdk:"backoff_limit"`
	ActiveDeadlineSeconds   types.Int64    `tfsdk:"active_deadline_seconds"`
	TTLSecondsAfterFinished types.Int32    `tfsdk:"ttl_seconds_after_finished"`
	ArenaCompatible         types.Bool     `tfsdk:"arena_compatible"`
	Labels                  types.Map      `tfsdk:"labels"`
	Annotations             types.Map      `tfsdk:"annotations"`
	WaitFor                 types.String   `tfsdk:"wait_for"`
	Triggers                types.Map      `tfsdk:"triggers"`
	Timeouts                timeouts.Value `tfsdk:"timeouts"`

	PoolNames          types.List   `tfsdk:"pool_names"`
	Placed             types.String `tfsdk:"placed"`
	PlannedCluster     types.String `tfsdk:"planned_cluster"`
	Cluster            types.String `tfsdk:"cluster"`
	PlannedPlacement   types.Map    `tfsdk:"planned_placement"`
	PlannedNodeCount   types.Int64  `tfsdk:"planned_node_count"`
	PlacementAsPlanned types.Bool   `tfsdk:"placement_as_planned"`
	Status             types.String `tfsdk:"status"`

	kept lifecycle.Kept
}

// Values of wait_for.
const (
	waitRunning   = "running"
	waitSucceeded = "succeeded"
	waitNone      = "none"
)

// waitSuspended is what is waited for when the job is suspended.
const waitSuspended = "suspended"

// phaseCleanedUp is the status of a job that its time to live removed before
// Terraform saw how it ended.
const phaseCleanedUp = "CleanedUp"

// phaseDeleting is the status of a job whose deletion has begun, which nothing stops.
const phaseDeleting = "Deleting"

type conditionModel struct {
	Type    string `tfsdk:"type"`
	Status  string `tfsdk:"status"`
	Reason  string `tfsdk:"reason"`
	Message string `tfsdk:"message"`
	Since   string `tfsdk:"since"`
}

var conditionType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"type":    types.StringType,
	"status":  types.StringType,
	"reason":  types.StringType,
	"message": types.StringType,
	"since":   types.StringType,
}}
