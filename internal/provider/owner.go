package provider

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/owner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// ownerVariable is the environment variable in place of the attribute owner.
const ownerVariable = "GPUPLAN_OWNER"

// stampOf is the stamp on what the command creates: that of the configuration, but for its tests.
func (c Command) stampOf(configured types.String, diags *diag.Diagnostics) string {
	stamp := ownerOf(configured, diags)
	if c.Tests && stamp != "" {
		return owner.OfTests(stamp)
	}
	return stamp
}

// ownerOf is the stamp of this configuration: what the user says, else that of the place
// of the state. It is "" while the user's is unknown.
func ownerOf(configured types.String, diags *diag.Diagnostics) string {
	if configured.IsUnknown() {
		return ""
	}
	if !configured.IsNull() {
		return configured.ValueString()
	}
	if stamp := os.Getenv(ownerVariable); stamp != "" {
		if fault := ownerFault(stamp); fault != "" {
			diags.AddAttributeError(path.Root(session.Owner), "Invalid owner", "The environment variable "+ownerVariable+" "+fault)
		}
		return stamp
	}
	process, err := owner.This()
	var stamp string
	if err == nil {
		stamp, err = process.Stamp()
	}
	if err != nil {
		diags.AddAttributeError(path.Root(session.Owner), "Owner is not known",
			session.Sentence(err)+" Set owner in the provider block, or the environment variable "+ownerVariable+".")
	}
	return stamp
}

// ownerFault says what is wrong with a stamp, "" when it is fine: it must be a label value, but
// not the empty one, which Kubernetes allows.
func ownerFault(stamp string) string {
	if stamp != "" && len(validation.IsValidLabelValue(stamp)) == 0 {
		return ""
	}
	return fmt.Sprintf("%.80q cannot be an owner: write 1 to 63 letters, digits, '-', '_' or '.', which begin and end with a letter or digit, as in my-team.", stamp)
}

// ownerStamp checks the syntax of the attribute owner.
type ownerStamp struct{}

func (ownerStamp) Description(context.Context) string {
	return "must have the form of a Kubernetes label value"
}
func (v ownerStamp) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (ownerStamp) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if fault := ownerFault(req.ConfigValue.ValueString()); fault != "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid owner", fault)
	}
}
