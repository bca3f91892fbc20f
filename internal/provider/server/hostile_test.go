package server_test

import (
	"context"
	"fmt"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
)

// What a configuration needs beside the value under test, by resource or data source.
var needed = map[string]map[string]any{
	"gpuplan_node_pool": {
		"name": "v100", "instance_type": "ecs.gn6v-c10g1.20xlarge", "size": 1, "vswitch_ids": []any{"vsw-1"},
	},
	"gpuplan_node_gpu":         {"name": "v100", "nodes": []any{"gpu-1"}, "mode": "topology"},
	"gpuplan_scheduler":        {"image": "x"},
	"gpuplan_node_agent":       {"image": "x"},
	"gpuplan_addon":            {"name": "kube-scheduler", "config": "{}"},
	"gpuplan_scheduler_config": {"enable_reservation": true},
	"gpuplan_erdma_controller": {"driver": "ofed"},
	"gpuplan_quota_tree":       {"total": map[string]any{"cpu": "10"}, "quotas": map[string]any{"a": map[string]any{"min": map[string]any{"cpu": "1"}}}},
	"gpuplan_propagation_policy": {
		"name": "p", "propagate_deps": true, "resource_selectors": []any{map[string]any{"api_version": "v1", "kind": "ConfigMap"}},
	},
	"gpuplan_training_job": {
		"name": "j", "framework": "pytorch", "image": "x",
		"roles": map[string]any{"worker": map[string]any{"replicas": 2, "gpus": 1}},
	},
	"data.gpuplan_training_job": {"id": "default/j"},
	"data.gpuplan_node_pool":    {"name": "v100"},
	"data.gpuplan_addon":        {"name": "kube-scheduler"},
	"data.gpuplan_job_logs":     {"id": "default/j"},
	"data.gpuplan_placement":    {"roles": map[string]any{"worker": map[string]any{"replicas": 2, "gpus": 1}}},

	"action.gpuplan_drain_nodes":        {"nodes": []any{"gpu-1"}},
	"action.gpuplan_rerun_training_job": {"id": "default/j"},
}

// spent is what a validation with its plan may allocate, in bytes. A job of the largest
// size takes a twentieth of it.
const spent = 1 << 30

// busy is how long it may compute: a parser that never ends allocates little. The
// costliest value takes a hundredth of it.
const busy = 30 * time.Second

var (
	texts = []string{
		"", " ", "\n", "\x00", "..", "/", "a/b", "-1", "0", "1", "64", "1.5", "1e999", "1e-99999999", "1e30", "NaN", "-5m", "1ns", "9999999h", "64Gi", "2Ei", "8 cores",
		"９", "\u202e", "💥", "${x}", "%s%d%n", `"`, "kubernetes.io/x", "gpuplan.dev/queue", "default/j", "default/nobody",
		"9223372036854775808", "99999999999999999999999999Gi", strings.Repeat("a", 64), strings.Repeat("a", 1<<14), strings.Repeat("9", 1<<14),
	}
	numbers = []string{
		"0", "1", "-1", "1.5", "0.1", "-0.5", "63", "65", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808",
		"-9223372036854775808", "100000000", "1e30", "1e300", "-1e300", "1e-300",
	}
)

// Every attribute of every schema takes what nobody should write: with an error that
// names the attribute or a plan, without a panic, and at a price that is bounded.
func TestHostileValues(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	p := server.New(provider.New("test", provider.Command{})(), server.Command{})
	schemas, err := p.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	require.NoError(t, err)
	all := map[string]*tfprotov6.Schema{}
	for name, s := range schemas.ResourceSchemas {
		all[name] = s
	}
	for name, s := range schemas.DataSourceSchemas {
		all["data."+name] = s
	}
	for name, s := range schemas.ActionSchemas {
		all["action."+name] = s.Schema
	}
	for name, s := range all {
		base, ok := needed[name]
		if !assert.True(t, ok || !requires(s), "the test must say what %s needs", name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := hostile{server: p, provider: schemas.Provider, name: name, schema: s, base: base}
			h.try(t, "as it is", base, "")
			for _, at := range h.attributes(s.Block.Attributes, nil) {
				t.Run(strings.Join(at.path, "."), func(t *testing.T) {
					for _, value := range values(at.kind) {
						what := fmt.Sprint(value)
						h.try(t, what[:min(len(what), 60)], with(base, at.path, value), at.path[0])
					}
				})
			}
		})
	}
}

func requires(s *tfprotov6.Schema) bool {
	return slices.ContainsFunc(s.Block.Attributes, func(a *tfprotov6.SchemaAttribute) bool { return a.Required })
}

func configure(t *testing.T, p tfprotov6.ProviderServer, s *tfprotov6.Schema) {
	t.Helper()
	config := dynamic(t, s.ValueType(), map[string]any{})
	resp, err := p.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: config})
	require.NoError(t, err)
	require.Empty(t, resp.Diagnostics)
}

type hostile struct {
	server           tfprotov6.ProviderServer
	provider, schema *tfprotov6.Schema
	name             string
	base             map[string]any
}

// attribute is a place in a configuration that users can write.
type attribute struct {
	path []string // names, and keys of maps; "0" in lists and sets
	kind tftypes.Type
}

// attributes lists what can be written, those below others included.
func (h hostile) attributes(list []*tfprotov6.SchemaAttribute, above []string) (out []attribute) {
	for _, a := range list {
		if !a.Required && !a.Optional {
			continue
		}
		path := append(append([]string(nil), above...), a.Name)
		out = append(out, attribute{path, a.ValueType()})
		if a.NestedType == nil {
			continue
		}
		switch a.NestedType.Nesting {
		case tfprotov6.SchemaObjectNestingModeMap:
			path = append(path, map[string]string{"roles": "worker", "quotas": "a"}[a.Name])
		case tfprotov6.SchemaObjectNestingModeList, tfprotov6.SchemaObjectNestingModeSet:
			path = append(path, "0")
		}
		out = append(out, h.attributes(a.NestedType.Attributes, path)...)
	}
	return out
}

// values are what to write at a place of a type.
func values(kind tftypes.Type) (out []any) {
	switch {
	case kind.Is(tftypes.String):
		for _, text := range texts {
			out = append(out, text)
		}
	case kind.Is(tftypes.Number):
		for _, text := range numbers {
			n, _, err := big.ParseFloat(text, 10, 512, big.ToNearestEven)
			if err != nil {
				panic(err)
			}
			out = append(out, n)
		}
	case kind.Is(tftypes.Bool):
		return []any{true, false, nil}
	}
	switch kind := kind.(type) {
	case tftypes.Map:
		out = append(out, map[string]any{}, map[string]any{"a": nil})
		for _, key := range texts {
			out = append(out, map[string]any{key: sample(kind.ElementType)})
		}
		for _, value := range values(kind.ElementType) {
			out = append(out, map[string]any{"cpu": value})
		}
	case tftypes.List:
		out = append(out, []any{}, []any{nil}, many(kind.ElementType))
		for _, value := range values(kind.ElementType) {
			out = append(out, []any{value})
		}
	case tftypes.Set:
		out = append(out, []any{}, []any{nil})
		for _, value := range values(kind.ElementType) {
			out = append(out, []any{value})
		}
	case tftypes.Object:
		out = append(out, map[string]any{})
	}
	return append(out, nil)
}

func sample(kind tftypes.Type) any {
	switch {
	case kind.Is(tftypes.String):
		return "1"
	case kind.Is(tftypes.Number):
		return 1
	case kind.Is(tftypes.Bool):
		return true
	}
	return map[string]any{}
}

// many is a long list. Of objects it is a shorter one: each may have several errors, and
// the framework compares every error with all before it.
func many(kind tftypes.Type) []any {
	list := make([]any, 1000)
	if kind.Is(tftypes.Object{}) {
		list = list[:100]
	}
	for i := range list {
		list[i] = sample(kind)
	}
	return list
}

// with is a configuration with one value more.
func with(base any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "0" {
		return []any{with(map[string]any{}, path[1:], value)}
	}
	out := map[string]any{}
	if m, ok := base.(map[string]any); ok {
		for k, v := range m {
			out[k] = v
		}
	}
	out[path[0]] = with(out[path[0]], path[1:], value)
	return out
}

// try validates a configuration and plans it when it is valid.
func (h hostile) try(t *testing.T, what string, config any, attribute string) {
	t.Helper()
	value := dynamic(t, h.schema.ValueType(), config)
	before, since := allocated(), computed(t)
	diags := h.ask(t.Context(), t, value)
	assert.Less(t, allocated()-before, uint64(spent), what)
	assert.Less(t, computed(t)-since, busy, what)
	for _, d := range diags {
		if d.Severity != tfprotov6.DiagnosticSeverityError {
			continue
		}
		text := d.Summary + ": " + d.Detail
		assert.NotContains(t, text, "error in the provider", what)
		assert.NotEmpty(t, attribute, "the base is wrong: %s", text)
		if !assert.NotNil(t, d.Attribute, "%s: %s has no attribute", what, text) {
			continue
		}
		first, _ := d.Attribute.Steps()[0].(tftypes.AttributeName)
		assert.Contains(t, h.related(attribute), string(first), "%s: %s", what, text)
	}
}

// related are the attributes at which a value of another may be refused.
func (h hostile) related(attribute string) []string {
	return append([]string{attribute}, map[string][]string{
		"mode":             {"gpu_policy", "roles", "gang"}, // GPUs are asked for by the mode
		"framework":        {"roles"},
		"gang":             {"roles"},
		"roles":            {"gang"},
		"total":            {"quotas"},
		"quotas":           {"total"},
		"image":            {"roles"},
		"gpu_policy":       {"mode"},
		"suspend":          {"queue"},
		"queue":            {"suspend"},
		"arena_compatible": {"labels"},
		"shared_memory":    {"volumes"},
		"after":            {"name"},
		"name":             {"after"},
		"namespace":        {"after"},
		"nodes":            {"pool"},
		"pool":             {"nodes"},
	}[attribute]...)
}

func (h hostile) ask(ctx context.Context, t *testing.T, config *tfprotov6.DynamicValue) []*tfprotov6.Diagnostic {
	t.Helper()
	if name, ok := strings.CutPrefix(h.name, "data."); ok {
		valid, err := h.server.ValidateDataResourceConfig(ctx, &tfprotov6.ValidateDataResourceConfigRequest{TypeName: name, Config: config})
		require.NoError(t, err)
		return valid.Diagnostics // it reads a cluster, and there is none
	}
	if name, ok := strings.CutPrefix(h.name, "action."); ok {
		return h.askAction(ctx, t, name, config)
	}
	valid, err := h.server.ValidateResourceConfig(ctx, &tfprotov6.ValidateResourceConfigRequest{
		TypeName: h.name, Config: config, ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
	})
	require.NoError(t, err)
	for _, d := range valid.Diagnostics {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			return valid.Diagnostics
		}
	}
	configure(t, h.server, h.provider) // a walk of its own
	none := dynamic(t, h.schema.ValueType(), nil)
	planned, err := h.server.PlanResourceChange(ctx, &tfprotov6.PlanResourceChangeRequest{
		TypeName: h.name, PriorState: none, ProposedNewState: config, Config: config,
	})
	require.NoError(t, err)
	return planned.Diagnostics
}

// askAction validates and plans an action.
func (h hostile) askAction(ctx context.Context, t *testing.T, name string, config *tfprotov6.DynamicValue) []*tfprotov6.Diagnostic {
	t.Helper()
	actions, ok := h.server.(tfprotov6.ActionServer)
	require.True(t, ok)
	valid, err := actions.ValidateActionConfig(ctx, &tfprotov6.ValidateActionConfigRequest{ActionType: name, Config: config})
	require.NoError(t, err)
	if len(valid.Diagnostics) > 0 {
		return valid.Diagnostics
	}
	configure(t, h.server, h.provider)
	planned, err := actions.PlanAction(ctx, &tfprotov6.PlanActionRequest{ActionType: name, Config: config})
	require.NoError(t, err)
	return planned.Diagnostics
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// computed is the CPU time of this process so far.
func computed(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano())
}

// dynamic is a value as Terraform sends it.
func dynamic(t *testing.T, kind tftypes.Type, value any) *tfprotov6.DynamicValue {
	t.Helper()
	d, err := tfprotov6.NewDynamicValue(kind, build(kind, value))
	require.NoError(t, err)
	return &d
}

// build makes a value of a type; what is missing in objects is null.
func build(kind tftypes.Type, value any) tftypes.Value {
	if value == nil || value == tftypes.UnknownValue {
		return tftypes.NewValue(kind, value)
	}
	switch kind := kind.(type) {
	case tftypes.Object:
		given, _ := value.(map[string]any)
		out := map[string]tftypes.Value{}
		for name, sub := range kind.AttributeTypes {
			out[name] = build(sub, given[name])
		}
		return tftypes.NewValue(kind, out)
	case tftypes.Map:
		out := map[string]tftypes.Value{}
		for key, element := range value.(map[string]any) {
			out[key] = build(kind.ElementType, element)
		}
		return tftypes.NewValue(kind, out)
	case tftypes.List:
		return tftypes.NewValue(kind, elements(kind.ElementType, value))
	case tftypes.Set:
		return tftypes.NewValue(kind, elements(kind.ElementType, value))
	}
	if n, ok := value.(int); ok {
		return tftypes.NewValue(kind, int64(n))
	}
	return tftypes.NewValue(kind, value)
}

func elements(kind tftypes.Type, value any) []tftypes.Value {
	var out []tftypes.Value
	for _, element := range value.([]any) {
		out = append(out, build(kind, element))
	}
	return out
}
