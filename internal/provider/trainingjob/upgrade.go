package trainingjob

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// schemaVersion counts the forms that states of this resource have had.
const schemaVersion = 1

// UpgradeState takes over states of earlier versions.
func (r *trainingJob) UpgradeState(ctx context.Context) map[int64]resource.StateUpgrader {
	var current resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &current)
	target := current.Schema.Type().TerraformType(ctx)
	return map[int64]resource.StateUpgrader{0: {
		StateUpgrader: func(_ context.Context, req resource.UpgradeStateRequest, resp *resource.UpgradeStateResponse) {
			value, err := fromVersion0(req.RawState.JSON, target)
			if err != nil {
				resp.Diagnostics.AddError("State cannot be upgraded", session.Sentence(err))
				return
			}
			resp.DynamicValue = &value
		},
	}}
}

// version0 is what the first form had otherwise: the capacity of the pools was stored in
// each job, and a placement was a list of objects.
type version0 struct {
	ID    string `json:"id"`
	Pools []struct {
		Pool string `json:"pool"`
	} `json:"pools"`
	Planned []assigned0 `json:"planned_placement"`
	Actual  []assigned0 `json:"actual_placement"`
}

type assigned0 struct {
	Member      string  `json:"member"`
	Node        string  `json:"node"`
	Cards       []int64 `json:"cards"`
	RingGBps    float64 `json:"ring_gbps"`
	NVLinkRings int64   `json:"nvlink_rings"`
}

func fromVersion0(state []byte, target tftypes.Type) (tfprotov6.DynamicValue, error) {
	var old version0
	var attributes map[string]any
	if err := json.Unmarshal(state, &old); err != nil {
		return tfprotov6.DynamicValue{}, fmt.Errorf("read the state of a training job: %w", err)
	}
	if err := json.Unmarshal(state, &attributes); err != nil {
		return tfprotov6.DynamicValue{}, fmt.Errorf("read the state of a training job: %w", err)
	}
	delete(attributes, "pools")
	delete(attributes, "after")
	attributes["placed"] = placed(types.StringValue(old.ID), existsMark).ValueString()
	var names []string
	for _, p := range old.Pools {
		names = append(names, p.Pool)
	}
	if slices.Sort(names); len(names) > 0 {
		attributes["pool_names"] = slices.Compact(names)
	}
	attributes["planned_placement"], attributes["actual_placement"] = lines(old.Planned), lines(old.Actual)
	upgraded, err := json.Marshal(attributes)
	if err != nil {
		return tfprotov6.DynamicValue{}, fmt.Errorf("write the state of job %s: %w", old.ID, err)
	}
	value, err := tftypes.ValueFromJSONWithOpts(upgraded, target, tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true})
	if err != nil {
		return tfprotov6.DynamicValue{}, fmt.Errorf("write the state of job %s: %w", old.ID, err)
	}
	return tfprotov6.NewDynamicValue(target, value)
}

// lines is a placement as it is stored now, nil for none.
func lines(members []assigned0) map[string]string {
	if members == nil {
		return nil
	}
	texts := map[string]string{}
	for _, m := range members {
		texts[m.Member] = assignment.Model(m).String()
	}
	return texts
}
