package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

func TestLinked(t *testing.T) {
	at := func(node string, rings int64, gpus ...int64) assignment.Model {
		return assignment.Model{Node: node, GPUs: gpus, NVLinkRings: rings}
	}
	for name, test := range map[string]struct {
		members []assignment.Model
		want    string
	}{
		"nowhere":                    {nil, ""},
		"a ring among two members":   {[]assignment.Model{at("a", 2, 0), at("a", 2, 3)}, "a"},
		"one GPU beside it":          {[]assignment.Model{at("a", 0, 0), at("b", 2, 0, 3)}, "b"},
		"no ring":                    {[]assignment.Model{at("a", 0, 0, 1)}, ""},
		"no ring on another of them": {[]assignment.Model{at("a", 2, 0, 3), at("b", 0, 0, 1)}, ""},
		"GPUs of nobody's choice":    {[]assignment.Model{at("a", 0), at("a", 0)}, ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, linked(test.members)) })
	}
}
