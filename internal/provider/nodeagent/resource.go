// Package nodeagent is the resource gpuplan_node_agent: our agent on every GPU node.
package nodeagent

import (
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

// New returns the resource.
func New() resource.Resource {
	return program.New[model](program.Manager{
		Title: "Node agent", Resource: "gpuplan_node_agent", Name: contract.NodeAgentName, Kind: "DaemonSet",
	}, describe, deploy.RemovePublished)
}

type model struct {
	Image          types.String   `tfsdk:"image"`
	Interval       duration.Value `tfsdk:"interval"`
	MetricsPort    types.Int64    `tfsdk:"metrics_port"`
	DevicePlugins  types.Bool     `tfsdk:"device_plugins"`
	MPS            types.Bool     `tfsdk:"mps"`
	FeatureLabels  types.Bool     `tfsdk:"feature_labels"`
	ID             types.String   `tfsdk:"id"`
	DriftedObjects types.List     `tfsdk:"drifted_objects"`
	Timeouts       timeouts.Value `tfsdk:"timeouts"`

	kept lifecycle.Kept
}

// Complete fills in what is always the same after an apply.
func (m *model) Complete() {
	m.ID = types.StringValue(contract.SystemNamespace + "/" + contract.NodeAgentName)
	m.DriftedObjects = types.ListValueMust(types.StringType, nil)
}

// Refresh takes over the options that the DaemonSet runs with.
func (m *model) Refresh(workload *unstructured.Unstructured) {
	m.Image = types.StringValue(program.Image(workload))
	address := program.Flag(workload, "metrics-addr")
	port, err := strconv.ParseInt(address[strings.LastIndexByte(address, ':')+1:], 10, 64)
	if err != nil {
		port = 0
	}
	m.MetricsPort = types.Int64Value(port)
	m.DevicePlugins = types.BoolValue(program.Switch(workload, "device-plugins"))
	m.MPS = types.BoolValue(program.Switch(workload, "mps"))
	m.FeatureLabels = types.BoolValue(program.Flag(workload, "feature-labels") != "false")
	m.Interval = duration.Live(program.Flag(workload, "interval"), m.Interval, -1)
}

// OffersDevices reports whether the agent is the device plugin of its node.
func (m *model) OffersDevices() bool { return m.DevicePlugins.ValueBool() }

// Drifted are the objects that differ from what was applied.
func (m *model) Drifted() *types.List { return &m.DriftedObjects }

// Kept is what Terraform keeps beside the attributes.
func (m *model) Kept() *lifecycle.Kept { return &m.kept }

// Limits are the time limits that the user set.
func (m *model) Limits() timeouts.Value { return m.Timeouts }

// Objects are the manifests with the options.
func (m *model) Objects() ([]*unstructured.Unstructured, error) {
	interval, err := m.Interval.Length()
	if err != nil {
		return nil, err
	}
	return deploy.Objects(deploy.Options{
		Image: m.Image.ValueString(), Interval: interval, MetricsPort: int(m.MetricsPort.ValueInt64()),
		DevicePlugins: m.DevicePlugins.ValueBool(), MPS: m.MPS.ValueBool(),
		NoFeatureLabels: m.FeatureLabels.Equal(types.BoolValue(false)), // a state of before has neither
	})
}
