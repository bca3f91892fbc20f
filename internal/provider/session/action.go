package session

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/action"
)

// Action is what all actions have in common: a name, and the session of the provider. They embed it.
type Action struct {
	// Type is the name in configurations, "gpuplan_drain_nodes".
	Type    string
	Session *Session
}

// Metadata gives the name.
func (a *Action) Metadata(_ context.Context, _ action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = a.Type
}

// Configure takes the session.
func (a *Action) Configure(_ context.Context, req action.ConfigureRequest, resp *action.ConfigureResponse) {
	a.Session = Of(req.ProviderData, &resp.Diagnostics)
}
