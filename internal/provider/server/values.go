package server

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// wrongValues says which values of a configuration the framework cannot read: numbers
// that are not whole, or too large, where the schema wants an integer, which is any
// number in Terraform's protocol; and null in the place of an element.
func (s *server) wrongValues(ctx context.Context, name string, config *tfprotov6.DynamicValue) (wrong []*tfprotov6.Diagnostic) {
	schema, ok := s.schemas()[name]
	if !ok || config == nil {
		return nil
	}
	value, err := config.Unmarshal(schema.Type().TerraformType(ctx))
	if err != nil {
		return nil // the framework says so
	}
	_ = tftypes.Walk(value, func(at *tftypes.AttributePath, v tftypes.Value) (bool, error) {
		refuse := func(summary, format string, args ...any) {
			wrong = append(wrong, &tfprotov6.Diagnostic{
				Severity: tfprotov6.DiagnosticSeverityError, Attribute: at,
				Summary: summary, Detail: words(at) + " is " + fmt.Sprintf(format, args...) + ".",
			})
		}
		if _, attribute := at.LastStep().(tftypes.AttributeName); v.IsNull() && !attribute && len(at.Steps()) > 0 && !inCapacity(at) {
			refuse("Null in a collection", "null: leave it out")
		}
		var number *big.Float
		if v.Type().Is(tftypes.Number) && !v.IsNull() && v.IsKnown() && v.As(&number) == nil {
			if summary, fault := s.fault(ctx, schema, at, number); fault != "" {
				refuse(summary, "%s: %s", number.Text('g', 20), fault)
			}
		}
		return true, nil
	}) // the callback never fails
	return wrong
}

// inCapacity reports whether a value is part of what a pool offers, which the pool says and
// no user: a label that a node lacks is null there.
func inCapacity(at *tftypes.AttributePath) bool {
	steps := at.Steps()
	return len(steps) > 2 && steps[0].Equal(tftypes.AttributeName(poolsAttribute))
}

// fault says what is wrong with a number, "" when it is fine.
func (s *server) fault(ctx context.Context, schema typed, at *tftypes.AttributePath, number *big.Float) (summary, fault string) {
	wanted, err := schema.TypeAtTerraformPath(ctx, at)
	if err != nil {
		return "", ""
	}
	var least, most int64
	switch {
	case wanted.Equal(types.Int64Type):
		least, most = math.MinInt64, math.MaxInt64
	case wanted.Equal(types.Int32Type):
		least, most = math.MinInt32, math.MaxInt32
	default:
		return "", ""
	}
	if !number.IsInt() {
		return "Not a whole number", "write a whole number"
	}
	if n, exact := number.Int64(); exact != big.Exact || n < least || n > most {
		return "Number out of range", "no number of that size can be meant"
	}
	return "", ""
}

// words writes a path as Terraform does: roles["worker"].replicas.
func words(at *tftypes.AttributePath) string {
	var b strings.Builder
	for _, step := range at.Steps() {
		switch step := step.(type) {
		case tftypes.AttributeName:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(string(step))
		case tftypes.ElementKeyString:
			fmt.Fprintf(&b, "[%q]", string(step))
		case tftypes.ElementKeyInt:
			fmt.Fprintf(&b, "[%d]", int64(step))
		case tftypes.ElementKeyValue:
			b.WriteString("[…]")
		}
	}
	return b.String()
}
