package setting

import (
	"context"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// script is a setting that is a script, which the service has in base64. It may hold secrets.
func script(name, description string, place func(*Values) *types.String, at func(*acs.NodePoolSpec) **string) setting {
	return of(name, schema.StringAttribute{
		MarkdownDescription: description, Optional: true, Computed: true, Sensitive: true,
		PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		Validators:    []validator.String{notEncoded{}},
	}, place,
		func(_ context.Context, spec acs.NodePoolSpec, _ types.String) (types.String, diag.Diagnostics) {
			return types.StringValue(decoded(*at(&spec))), nil
		},
		func(_ context.Context, value types.String, spec *acs.NodePoolSpec) diag.Diagnostics {
			text := base64.StdEncoding.EncodeToString([]byte(value.ValueString()))
			*at(spec) = &text
			return nil
		})
}

// decoded is the script that the service has, "" for none; what is no text is shown as the service has it.
func decoded(answer *string) string {
	if answer == nil {
		return ""
	}
	text, err := base64.StdEncoding.DecodeString(*answer)
	if err != nil || !utf8.Valid(text) {
		return *answer
	}
	return string(text)
}

// notEncoded finds a script that is in base64 already: nodes would join, and never run it.
type notEncoded struct{}

func (notEncoded) Description(context.Context) string {
	return "must be the script itself, not its base64 text"
}
func (v notEncoded) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (notEncoded) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if !known.Set(req.ConfigValue) {
		return
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(req.ConfigValue.ValueString()))
	if err == nil && strings.HasPrefix(string(text), "#") {
		resp.Diagnostics.AddAttributeError(req.Path, "Script is encoded already",
			"This is the base64 text of a script. Write the script itself, without base64encode: the provider encodes it, and nodes would not run what is encoded twice.")
	}
}
