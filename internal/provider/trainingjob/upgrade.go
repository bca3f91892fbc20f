package trainingjob

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// schemaVersion counts the forms that states of this resource have had.
const schemaVersion = 3

// UpgradeState takes over states of earlier versions.
func (r *trainingJob) UpgradeState(ctx context.Context) map[int64]resource.StateUpgrader {
	var current resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &current)
	target := current.Schema.Type().TerraformType(ctx)
	from := func(upgrade func(state []byte) (map[string]any, error)) resource.StateUpgrader {
		return resource.StateUpgrader{
			StateUpgrader: func(_ context.Context, req resource.UpgradeStateRequest, resp *resource.UpgradeStateResponse) {
				attributes, err := upgrade(req.RawState.JSON)
				var value tfprotov6.DynamicValue
				if err == nil {
					value, err = valueOf(attributes, target)
				}
				if err != nil {
					resp.Diagnostics.AddError("State cannot be upgraded", session.Sentence(err))
					return
				}
				resp.DynamicValue = &value
			},
		}
	}
	return map[int64]resource.StateUpgrader{0: from(fromVersion0), 1: from(fromVersion1), 2: from(fromVersion2)}
}

func valueOf(attributes map[string]any, target tftypes.Type) (tfprotov6.DynamicValue, error) {
	upgraded, err := json.Marshal(withoutDefaults(withGPUs(attributes)))
	if err != nil {
		return tfprotov6.DynamicValue{}, fmt.Errorf("write the state of job %s: %w", attributes["id"], err)
	}
	value, err := tftypes.ValueFromJSONWithOpts(upgraded, target, tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true})
	if err != nil {
		return tfprotov6.DynamicValue{}, fmt.Errorf("write the state of job %s: %w", attributes["id"], err)
	}
	return tfprotov6.NewDynamicValue(target, value)
}

// withoutDefaults drops what was stored although nobody wrote it.
func withoutDefaults(attributes map[string]any) map[string]any {
	for name, value := range map[string]any{
		"wait_for": waitRunning, "require_immediate": false, "preemptible": true, "scheduler_name": contract.SchedulerName,
		"host_network": false, "host_ipc": false, "host_pid": false, "arena_compatible": false, "queue": false, "suspend": false,
		"clean_pod_policy": job.Spec{}.Complete().CleanPodPolicy,
	} {
		if attributes[name] == value {
			attributes[name] = nil
		}
	}
	return attributes
}

// withGPUs names the GPUs of each role as of version 3; they were called cards.
func withGPUs(attributes map[string]any) map[string]any {
	roles, _ := attributes["roles"].(map[string]any)
	for _, value := range roles {
		if role, ok := value.(map[string]any); ok {
			if amount, ok := role["cards"]; ok {
				role["gpus"] = amount
				delete(role, "cards")
			}
		}
	}
	return attributes
}

// fromVersion2 takes over the third form, in which GPUs were called cards.
func fromVersion2(state []byte) (map[string]any, error) {
	return attributesOf(state, &struct{}{})
}

// fromVersion1 takes over the second form, which had placements by member.
func fromVersion1(state []byte) (map[string]any, error) {
	var old struct {
		Planned map[string]string `json:"planned_placement"`
	}
	attributes, err := attributesOf(state, &old)
	if err != nil || old.Planned == nil {
		return attributes, err
	}
	var planned []assignment.Model
	for member, text := range old.Planned {
		node := strings.FieldsFunc(text+" ", func(r rune) bool { return r == ' ' || r == ':' })[0]
		models, err := assignment.From(map[string]string{node: member + strings.TrimPrefix(text, node)})
		if err != nil {
			return nil, fmt.Errorf("read the state of job %s: %w", attributes["id"], err)
		}
		planned = append(planned, models...)
	}
	attributes["planned_placement"] = assignment.Lines(planned)
	return attributes, nil
}

func attributesOf(state []byte, old any) (attributes map[string]any, err error) {
	if err = json.Unmarshal(state, old); err == nil {
		err = json.Unmarshal(state, &attributes)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of a training job: %w", err)
	}
	return attributes, nil
}

// version0 is what the first form had otherwise: the capacity of the pools was stored in
// each job, and a placement was a list of objects.
type version0 struct {
	ID    string `json:"id"`
	Pools []struct {
		Pool string `json:"pool"`
	} `json:"pools"`
	Planned []assigned0 `json:"planned_placement"`
}

type assigned0 struct {
	Member      string  `json:"member"`
	Node        string  `json:"node"`
	GPUs        []int64 `json:"cards"`
	RingGBps    float64 `json:"ring_gbps"`
	NVLinkRings int64   `json:"nvlink_rings"`
}

func fromVersion0(state []byte) (map[string]any, error) {
	var old version0
	attributes, err := attributesOf(state, &old)
	if err != nil {
		return nil, err
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
	if old.Planned != nil {
		var planned []assignment.Model
		for _, m := range old.Planned {
			planned = append(planned, assignment.Model(m))
		}
		attributes["planned_placement"] = assignment.Lines(planned)
	}
	return attributes, nil
}
