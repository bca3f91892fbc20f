package session

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
)

// DataSource is what all data sources have in common: a name, and the session of the provider. They embed it.
type DataSource struct {
	// Type is the name in configurations, "gpuplan_queues".
	Type    string
	Session *Session
}

// Metadata gives the name.
func (d *DataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = d.Type
}

// Configure takes the session.
func (d *DataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.Session = Of(req.ProviderData, &resp.Diagnostics)
}
