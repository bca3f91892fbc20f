package capacity

import (
	"context"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// Offers reads what pools offer as Terraform sends it with each job. Many jobs list the
// same pools, and what is equal is read once. It is safe for concurrent use; the zero
// value is ready.
type Offers struct {
	mu    sync.Mutex
	known map[string]Capacity
}

// Read returns the capacity in Terraform's encoding (MessagePack); ok is false for what is
// none, or not known before apply.
func (o *Offers) Read(ctx context.Context, encoded []byte) (c Capacity, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, ok = o.known[string(encoded)]; ok {
		return c, true
	}
	value, err := tfprotov6.DynamicValue{MsgPack: encoded}.Unmarshal(Type.TerraformType(ctx))
	if err != nil || value.IsNull() || !value.IsFullyKnown() {
		return Capacity{}, false
	}
	object, err := Type.ValueFromTerraform(ctx, value)
	if err != nil {
		return Capacity{}, false
	}
	c, diags := From(ctx, object.(types.Object)) //nolint:forcetypeassert // an object type has object values
	if diags.HasError() {
		return Capacity{}, false
	}
	c.planned = &planned{}
	if o.known == nil {
		o.known = map[string]Capacity{}
	}
	o.known[string(encoded)] = c
	return c, true
}

// Forget begins a new walk.
func (o *Offers) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = nil
}

type carried struct{}

// Carry returns a context in which [List] finds these pools, whatever it is asked to read.
func Carry(ctx context.Context, pools []Capacity) context.Context {
	return context.WithValue(ctx, carried{}, pools)
}

// carriedBy returns the pools that a context carries.
func carriedBy(ctx context.Context) ([]Capacity, bool) {
	pools, ok := ctx.Value(carried{}).([]Capacity)
	return slices.Clone(pools), ok
}
