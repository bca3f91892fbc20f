package known_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

func TestWholly(t *testing.T) {
	list := func(elements ...attr.Value) attr.Value { return types.ListValueMust(types.StringType, elements) }
	for name, test := range map[string]struct {
		values []attr.Value
		want   bool
	}{
		"nothing":            {nil, true},
		"null":               {[]attr.Value{types.StringNull()}, true},
		"text":               {[]attr.Value{types.StringValue("a")}, true},
		"unknown":            {[]attr.Value{types.StringUnknown()}, false},
		"one of several":     {[]attr.Value{types.StringValue("a"), types.Int64Unknown()}, false},
		"a known list":       {[]attr.Value{list(types.StringValue("a"), types.StringNull())}, true},
		"an unknown element": {[]attr.Value{list(types.StringValue("a"), types.StringUnknown())}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, known.Wholly(t.Context(), test.values...)) })
	}
}
