package server

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

// poolsAttribute is the write-only attribute with the capacity of the pools that a
// resource may use.
const poolsAttribute = "pools"

// aside takes the capacity of pools out of a configuration, into the context, where
// [capacity.List] finds it. The framework walks all values of a configuration several
// times, with a look at the schema for each: of a job, most of them are what its pools
// offer. For the framework the pools are unknown. Pools that are not all known, or no
// capacity, stay where they are.
func (s *server) aside(ctx context.Context, typeName string, config *tfprotov6.DynamicValue) (context.Context, *tfprotov6.DynamicValue) {
	attributes, ok := s.takesPools(typeName, config)
	if !ok {
		return ctx, config
	}
	var encoded []msgpack.RawMessage
	if err := msgpack.Unmarshal(attributes[poolsAttribute], &encoded); err != nil || len(encoded) == 0 {
		return ctx, config
	}
	pools, unknown := make([]capacity.Capacity, len(encoded)), make([]msgpack.RawMessage, len(encoded))
	for i, e := range encoded {
		if pools[i], ok = s.offers.Read(ctx, e); !ok {
			return ctx, config
		}
		unknown[i] = unknownValue
	}
	without, ok := replaced(attributes, unknown)
	if !ok {
		return ctx, config
	}
	return capacity.Carry(ctx, pools), without
}

// written returns a proposed state without what is write-only, as the framework makes it
// after it has walked all of it.
func (s *server) written(typeName string, proposed *tfprotov6.DynamicValue) *tfprotov6.DynamicValue {
	attributes, ok := s.takesPools(typeName, proposed)
	if !ok {
		return proposed
	}
	if without, ok := replaced(attributes, nil); ok {
		return without
	}
	return proposed
}

// unknownValue is an unknown value in Terraform's encoding: an extension of type 0.
var unknownValue = msgpack.RawMessage{0xd4, 0, 0}

// takesPools decodes the attributes of a resource, without their values, if it can list pools.
func (s *server) takesPools(typeName string, value *tfprotov6.DynamicValue) (attributes map[string]msgpack.RawMessage, ok bool) {
	of, _ := s.schemas()[typeName].(schema.Schema)
	pools, ok := of.Attributes[poolsAttribute].(schema.ListAttribute)
	if !ok || !pools.WriteOnly || !pools.GetType().Equal(types.ListType{ElemType: capacity.Type}) || value == nil || len(value.MsgPack) == 0 {
		return nil, false
	}
	err := msgpack.Unmarshal(value.MsgPack, &attributes)
	return attributes, err == nil && attributes != nil
}

// replaced encodes attributes with other pools.
func replaced(attributes map[string]msgpack.RawMessage, pools []msgpack.RawMessage) (*tfprotov6.DynamicValue, bool) {
	encoded, err := msgpack.Marshal(pools)
	if err != nil {
		return nil, false
	}
	attributes[poolsAttribute] = encoded
	whole, err := msgpack.Marshal(attributes)
	return &tfprotov6.DynamicValue{MsgPack: whole}, err == nil
}
