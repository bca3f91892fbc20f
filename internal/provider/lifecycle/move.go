package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// Successor is a type of resource whose objects a moved block takes over from the alicloud provider.
type Successor struct {
	// Of is the type there, whose IDs are CLUSTER_ID:NAME.
	Of string
	// Attributes are what [Resource.Look] needs of an object, as an import puts it into the state; nil where it can be
	// none of this type.
	Attributes func(clusterID, name string) map[string]string
}

// predecessor is how the address of the alicloud provider ends, in whichever registry.
const predecessor = "/aliyun/alicloud"

// MoveState takes over the states of the type that a type succeeds. Of these, only the ID counts, which all their
// versions have: the refresh that follows reads the rest, as after an import. Terraform has not configured the provider here.
func (r *Resource[M]) MoveState(context.Context) []resource.StateMover {
	if r.Succeeds.Of == "" {
		return nil
	}
	return []resource.StateMover{{StateMover: r.succeed}}
}

func (r *Resource[M]) succeed(ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse) {
	if req.SourceTypeName != r.Succeeds.Of || !strings.HasSuffix(req.SourceProviderAddress, predecessor) {
		return // Terraform says which types there are
	}
	var source struct{ ID string }
	var attributes map[string]string
	clusterID, name := "", ""
	if json.Unmarshal(req.SourceRawState.JSON, &source) == nil {
		clusterID, name, _ = strings.Cut(source.ID, ":")
		if clusterID != "" && name != "" && !strings.ContainsAny(source.ID, "/ ") && !strings.Contains(name, ":") {
			attributes = r.Succeeds.Attributes(clusterID, name)
		}
	}
	if attributes == nil {
		resp.Diagnostics.AddError(r.Title+" cannot be taken over", fmt.Sprintf(
			"The ID of the %s in the state is %.200q, and not that of a %s, CLUSTER_ID:NAME. Take it out of the state with `terraform state rm`, and import it here instead of the moved block.",
			req.SourceTypeName, source.ID, r.Type))
		return
	}
	for attribute, value := range attributes {
		resp.Diagnostics.Append(resp.TargetState.SetAttribute(ctx, path.Root(attribute), value)...)
	}
	if resp.TargetIdentity != nil {
		resp.Diagnostics.Append(r.Identity.write(ctx, resp.TargetIdentity, clusterID+between+name)...)
	}
}
