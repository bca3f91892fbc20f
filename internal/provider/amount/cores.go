package amount

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// Cores refuses a compute share of 0 percent; the rules of other shares are package job's.
type Cores struct{}

// Description says what is allowed.
func (Cores) Description(context.Context) string {
	return "a multiple of 5 from 5 to 100; without it only memory is limited"
}

// MarkdownDescription says what is allowed.
func (c Cores) MarkdownDescription(ctx context.Context) string { return c.Description(ctx) }

// ValidateInt64 refuses 0.
func (Cores) ValidateInt64(_ context.Context, req validator.Int64Request, resp *validator.Int64Response) {
	if known.Set(req.ConfigValue) && req.ConfigValue.ValueInt64() == 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid compute share",
			req.Path.String()+": 0 is no multiple of 5 from 5 to 100: leave it out, or write null, to limit memory only.")
	}
}
