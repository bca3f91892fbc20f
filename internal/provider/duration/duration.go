// Package duration reads and checks durations that users write, such as "30s".
package duration

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// longest is the longest time that anything may be told to take: 90 days.
const longest = 90 * 24 * time.Hour

// Between checks that a string is a duration in these bounds.
type Between struct{ Least, Most time.Duration }

// Description says what is allowed.
func (v Between) Description(context.Context) string {
	return fmt.Sprintf("must be a positive duration such as 30s or 5m, from %s to %s", short(v.Least), short(v.Most))
}

// short writes a duration as people do: "2160h", where Go says "2160h0m0s".
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarkdownDescription says what is allowed.
func (v Between) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString refuses everything else.
func (v Between) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if d, err := time.ParseDuration(req.ConfigValue.ValueString()); err != nil || d < v.Least || d > v.Most {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid duration", fmt.Sprintf("%s: %.80q %s.", req.Path, req.ConfigValue.ValueString(), v.Description(ctx)))
	}
}

// Timeouts bounds the attributes of a block of time limits: the module that makes it takes
// negative ones as well.
func Timeouts(block schema.Attribute) schema.Attribute {
	nested, ok := block.(schema.SingleNestedAttribute)
	if !ok {
		return block
	}
	for name, attribute := range nested.Attributes {
		if text, ok := attribute.(schema.StringAttribute); ok {
			text.Validators = []validator.String{Between{Least: time.Second, Most: longest}}
			nested.Attributes[name] = text
		}
	}
	return nested
}
