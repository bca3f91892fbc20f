package server

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5"
)

// Attributes that a resource has before the framework instead of those that it is not shown.
const (
	// carriedAttribute has all of them, encoded.
	carriedAttribute = "carried"
	// touchedAttribute is unknown when the framework makes what is computed unknown.
	touchedAttribute = "touched"
)

// halves are the attributes of a type of resource in two parts. The framework is shown those for
// which it has something to do beside handing them on, as a default, a plan modifier or a meaning of
// its own. All others are carried past it in one text: it walks all values of a resource a dozen
// times for each attribute at its top, and most of a resource are attributes that are null and what
// pools offer.
type halves struct {
	shown, carried map[string]schema.Attribute
	whole, rest    tftypes.Object // the types of all attributes and of the carried ones
	schema         schema.Schema  // of all attributes
}

// halve divides the attributes of a schema; ok is false for one with blocks, in which none are carried.
func halve(ctx context.Context, of schema.Schema) (h *halves, ok bool) {
	if len(of.Blocks) > 0 {
		return nil, false
	}
	h = &halves{
		shown: map[string]schema.Attribute{}, carried: map[string]schema.Attribute{}, schema: of,
		whole: tftypes.Object{AttributeTypes: map[string]tftypes.Type{}}, rest: tftypes.Object{AttributeTypes: map[string]tftypes.Type{}},
	}
	for name, a := range of.Attributes {
		kind := a.GetType().TerraformType(ctx)
		h.whole.AttributeTypes[name] = kind
		if plain(a) {
			h.carried[name], h.rest.AttributeTypes[name] = a, kind
		} else {
			h.shown[name] = a
		}
	}
	return h, true
}

// compact is the schema that the framework is shown.
func (h *halves) compact() schema.Schema {
	attributes := maps.Clone(h.shown)
	attributes[carriedAttribute] = schema.StringAttribute{Optional: true}
	attributes[touchedAttribute] = schema.StringAttribute{Computed: true}
	return schema.Schema{Version: h.schema.Version, Attributes: attributes}
}

// split makes a value of a resource one of the compact schema; without leaves out what is write-only.
// ok is false for what is no value of the resource in Terraform's encoding.
func (h *halves) split(value *tfprotov6.DynamicValue, without bool) (compact *tfprotov6.DynamicValue, ok bool) {
	if value == nil || len(value.MsgPack) == 0 {
		return value, value == nil
	}
	var attributes map[string]msgpack.RawMessage
	if err := msgpack.Unmarshal(value.MsgPack, &attributes); err != nil {
		return nil, false
	}
	if attributes == nil {
		return value, true
	}
	shown, carried := map[string]msgpack.RawMessage{touchedAttribute: nil}, map[string]msgpack.RawMessage{}
	for name, encoded := range attributes {
		a, isCarried := h.carried[name]
		switch {
		case !isCarried:
			shown[name] = encoded
		case without && a.IsWriteOnly():
			carried[name] = nil
		default:
			carried[name] = encoded
		}
	}
	var err error
	if shown[carriedAttribute], err = msgpack.Marshal(string(encode(carried))); err != nil {
		return nil, false
	}
	return &tfprotov6.DynamicValue{MsgPack: encode(shown)}, true
}

// join is the reverse of split.
func (h *halves) join(compact *tfprotov6.DynamicValue) (*tfprotov6.DynamicValue, error) {
	if isNull(compact) {
		return compact, nil
	}
	var all, carried map[string]msgpack.RawMessage
	var text string
	if err := msgpack.Unmarshal(compact.MsgPack, &all); err != nil {
		return nil, fmt.Errorf("read what the framework answers: %w", err)
	}
	if err := msgpack.Unmarshal(all[carriedAttribute], &text); err != nil {
		return nil, fmt.Errorf("read what the framework carries: %w", err)
	}
	if err := msgpack.Unmarshal([]byte(text), &carried); err != nil {
		return nil, fmt.Errorf("read what the framework carries: %w", err)
	}
	delete(all, carriedAttribute)
	delete(all, touchedAttribute)
	maps.Copy(all, carried)
	return &tfprotov6.DynamicValue{MsgPack: encode(all)}, nil
}

// expand makes a value as the framework has it one of all attributes. touched reports whether the
// framework has made what is computed unknown.
func (h *halves) expand(compact tftypes.Value) (whole tftypes.Value, touched bool, err error) {
	if compact.IsNull() {
		return tftypes.NewValue(h.whole, nil), false, nil
	}
	var all, carried map[string]tftypes.Value
	if err := compact.As(&all); err != nil {
		return whole, false, fmt.Errorf("read what the framework has: %w", err)
	}
	var text string
	if err := all[carriedAttribute].As(&text); err != nil {
		return whole, false, fmt.Errorf("read what the framework carries: %w", err)
	}
	value, err := tfprotov6.DynamicValue{MsgPack: []byte(text)}.Unmarshal(h.rest)
	if err == nil {
		err = value.As(&carried)
	}
	if err != nil {
		return whole, false, fmt.Errorf("decode what the framework carries: %w", err)
	}
	touched = !all[touchedAttribute].IsKnown()
	for name := range h.shown {
		carried[name] = all[name]
	}
	return tftypes.NewValue(h.whole, carried), touched, nil
}

// reduce is the reverse of expand. What is write-only and carried is left out.
func (h *halves) reduce(ctx context.Context, whole tftypes.Value) (compact tftypes.Value, err error) {
	kind := h.compact().Type().TerraformType(ctx)
	if whole.IsNull() {
		return tftypes.NewValue(kind, nil), nil
	}
	var all map[string]tftypes.Value
	if err := whole.As(&all); err != nil {
		return compact, fmt.Errorf("read what the resource answers: %w", err)
	}
	shown, carried := map[string]tftypes.Value{}, map[string]tftypes.Value{}
	for name, value := range all {
		a, isCarried := h.carried[name]
		switch {
		case !isCarried:
			shown[name] = value
		case a.IsWriteOnly():
			carried[name] = tftypes.NewValue(value.Type(), nil)
		default:
			carried[name] = value
		}
	}
	encoded, err := tfprotov6.NewDynamicValue(h.rest, tftypes.NewValue(h.rest, carried))
	if err != nil {
		return compact, fmt.Errorf("encode what the resource answers: %w", err)
	}
	shown[carriedAttribute] = tftypes.NewValue(tftypes.String, string(encoded.MsgPack))
	shown[touchedAttribute] = tftypes.NewValue(tftypes.String, nil)
	return tftypes.NewValue(kind, shown), nil
}

// unknown makes what is computed and carried, and null in a configuration, unknown in a plan, as the framework does.
func (h *halves) unknown(plan, config tftypes.Value) (tftypes.Value, error) {
	var planned, written map[string]tftypes.Value
	if err := plan.As(&planned); err != nil {
		return plan, fmt.Errorf("read the plan: %w", err)
	}
	if err := config.As(&written); err != nil {
		return plan, fmt.Errorf("read the configuration: %w", err)
	}
	planned = maps.Clone(planned) // the plan has this one
	for name, a := range h.carried {
		if a.IsComputed() && written[name].IsNull() {
			planned[name] = tftypes.NewValue(planned[name].Type(), tftypes.UnknownValue)
		}
	}
	return tftypes.NewValue(h.whole, planned), nil
}

// encode writes attributes in the order of their names, as Terraform does, so that equal ones look alike.
func encode(attributes map[string]msgpack.RawMessage) []byte {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	_ = e.EncodeMapLen(len(attributes)) // nothing fails in memory
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		_ = e.EncodeString(name)
		_ = e.Encode(attributes[name]) // null was decoded as nothing at all
	}
	return b.Bytes()
}

// plain reports whether the framework only hands an attribute on, apart from what [halves] does itself.
func plain(a schema.Attribute) bool {
	if !inert(a) || !basic(a.GetType()) {
		return false
	}
	for _, below := range nested(a) {
		if !handed(below, a.IsComputed() && !a.IsOptional()) {
			return false
		}
	}
	return true
}

// handed reports the same of an attribute below another. result means that the one above is never configured,
// so that nothing below it is null in a configuration by itself.
func handed(a schema.Attribute, result bool) bool {
	if !inert(a) || a.IsWriteOnly() || a.IsComputed() && !result {
		return false
	}
	for _, below := range nested(a) {
		if !handed(below, result) {
			return false
		}
	}
	return true
}

// nested are the attributes of the objects that an attribute is made of.
func nested(a schema.Attribute) map[string]schema.Attribute {
	switch a := a.(type) {
	case schema.SingleNestedAttribute:
		return a.Attributes
	case schema.ListNestedAttribute:
		return a.NestedObject.Attributes
	case schema.MapNestedAttribute:
		return a.NestedObject.Attributes
	case schema.SetNestedAttribute:
		return a.NestedObject.Attributes
	}
	return nil
}

// inert reports whether an attribute has neither a default nor a plan modifier.
func inert(a schema.Attribute) bool {
	switch a := a.(type) {
	case schema.StringAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.BoolAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.Int64Attribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.Int32Attribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.ListAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.SetAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.MapAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.SingleNestedAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0
	case schema.ListNestedAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0 && len(a.NestedObject.PlanModifiers) == 0
	case schema.SetNestedAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0 && len(a.NestedObject.PlanModifiers) == 0
	case schema.MapNestedAttribute:
		return a.Default == nil && len(a.PlanModifiers) == 0 && len(a.NestedObject.PlanModifiers) == 0
	}
	return false
}

// basic reports whether a type consists of the framework's own types. Only others may have an opinion on
// which of their values mean the same.
func basic(t attr.Type) bool {
	switch t := t.(type) {
	case basetypes.StringType, basetypes.BoolType, basetypes.Int64Type, basetypes.Int32Type:
		return true
	case basetypes.ListType:
		return basic(t.ElemType)
	case basetypes.SetType:
		return basic(t.ElemType)
	case basetypes.MapType:
		return basic(t.ElemType)
	case basetypes.ObjectType:
		for _, below := range t.AttrTypes {
			if !basic(below) {
				return false
			}
		}
		return true
	}
	return false
}
