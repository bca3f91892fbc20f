// Package scheduler is the resource gpuplan_scheduler: our scheduler in the cluster.
package scheduler

import (
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// New returns the resource.
func New() resource.Resource {
	return program.New[model](program.Manager{
		Title: "Scheduler", Resource: "gpuplan_scheduler", Name: contract.SchedulerName, Kind: "Deployment",
		Optional: []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
		Without: "Pods that name no scheduler are not sent to this one. Set schedulerName to " + contract.SchedulerName +
			" in every pod that asks for GPUs or belongs to a gang, and route_pods to false.",
		OldestMinor: contract.OldestMinor,
		Removed:     removed,
	}, describe, nil)
}

type model struct {
	Image          types.String   `tfsdk:"image"`
	Replicas       types.Int64    `tfsdk:"replicas"`
	LogLevel       types.Int64    `tfsdk:"log_level"`
	Port           types.Int64    `tfsdk:"port"`
	Grace          duration.Value `tfsdk:"unreachable_grace"`
	ReserveAfter   duration.Value `tfsdk:"reserve_after"`
	StaleAfter     duration.Value `tfsdk:"stale_after"`
	RoutePods      types.Bool     `tfsdk:"route_pods"`
	ID             types.String   `tfsdk:"id"`
	SchedulerName  types.String   `tfsdk:"scheduler_name"`
	DriftedObjects types.List     `tfsdk:"drifted_objects"`
	Timeouts       timeouts.Value `tfsdk:"timeouts"`

	kept lifecycle.Kept
}

// Complete fills in what is always the same after an apply.
func (m *model) Complete() {
	m.ID = types.StringValue(contract.SystemNamespace + "/" + contract.SchedulerName)
	m.SchedulerName = types.StringValue(contract.SchedulerName)
	m.DriftedObjects = types.ListValueMust(types.StringType, nil)
}

// Refresh takes over the options that the Deployment runs with.
func (m *model) Refresh(workload *unstructured.Unstructured) {
	m.Image = types.StringValue(program.Image(workload))
	replicas, _, _ := unstructured.NestedInt64(workload.Object, "spec", "replicas")
	m.Replicas = types.Int64Value(replicas)
	m.LogLevel = types.Int64Value(number(program.Flag(workload, "v")))
	m.Port = types.Int64Value(number(program.Flag(workload, "secure-port")))
	m.RoutePods = types.BoolValue(workload.GetAnnotations()[contract.RoutePodsAnnotation] == "true")
	m.Grace = duration.Live(program.Flag(workload, "unreachable-grace"), m.Grace, -1)
	annotations := workload.GetAnnotations()
	m.ReserveAfter = duration.Live(annotations[contract.ReserveAfterAnnotation], m.ReserveAfter, contract.DefaultReserveAfter)
	m.StaleAfter = duration.Live(annotations[contract.StaleAfterAnnotation], m.StaleAfter, 0)
}

// number reads a decimal number, 0 for anything else.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Drifted are the objects that differ from what was applied.
func (m *model) Drifted() *types.List { return &m.DriftedObjects }

// Kept is what Terraform keeps beside the attributes.
func (m *model) Kept() *lifecycle.Kept { return &m.kept }

// Limits are the time limits that the user set.
func (m *model) Limits() timeouts.Value { return m.Timeouts }

// Objects are the manifests with the options.
func (m *model) Objects() ([]*unstructured.Unstructured, error) {
	grace, err := m.Grace.Length()
	if err != nil {
		return nil, err
	}
	reserveAfter, err := m.ReserveAfter.Length()
	if err != nil {
		return nil, err
	}
	staleAfter, err := m.StaleAfter.Length()
	if err != nil {
		return nil, err
	}
	return deploy.Objects(deploy.Options{
		Image:    m.Image.ValueString(),
		Replicas: int(m.Replicas.ValueInt64()),
		LogLevel: int(m.LogLevel.ValueInt64()),
		Port:     int(m.Port.ValueInt64()),

		UnreachableGrace: grace,
		ReserveAfter:     reserveAfter,
		StaleAfter:       staleAfter,
		RoutePods:        m.RoutePods.ValueBool(),
	})
}
