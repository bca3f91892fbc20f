package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

func TestReportContainers(t *testing.T) {
	jobs := snapshot{{Name: "vgg16", planned: []assignment.Model{
		{Member: "worker-0", Node: "v100[0]", GPUs: []int64{0}},
		{Member: "worker-1", Node: "v100[0]", GPUs: []int64{1, 2}},
		{Member: "worker-2", Node: "v100[1]", GPUs: []int64{0}},
	}}}
	for name, c := range map[string]struct {
		change func([]container) []container
		want   string
	}{
		"as planned":    {func(c []container) []container { return c }, ""},
		"another GPU":   {func(c []container) []container { c[2].gpus = "1,3"; return c }, `container main of pod w1 has GPUs "1,3" of n1`},
		"no GPU":        {func(c []container) []container { c[1].gpus = ""; return c }, `container main of pod w0 has GPUs "" of n1`},
		"another node":  {func(c []container) []container { c[2].node = "n2"; return c }, `container main of pod w1 has GPUs "1,2" of n2`},
		"one for two":   {func(c []container) []container { c[3].node = "n1"; return c }, `container main of pod w2 has GPUs "0" of n1`},
		"not there":     {func(c []container) []container { return c[:3] }, "worker-2 of vgg16 has no container"},
		"launcher's":    {func(c []container) []container { c[0].gpus = "7"; return c }, `container main of pod l has GPUs "7" of n2`},
		"of no one job": {func(c []container) []container { return append(c, container{job: "other", gpus: "7"}) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			containers := c.change([]container{
				{job: "vgg16", member: "launcher-0", node: "n2", pod: "l", name: "main"},
				{job: "vgg16", member: "worker-0", node: "n1", pod: "w0", name: "main", gpus: "0"},
				{job: "vgg16", member: "worker-1", node: "n1", pod: "w1", name: "main", gpus: "1,2"},
				{job: "vgg16", member: "worker-2", node: "n2", pod: "w2", name: "main", gpus: "0"},
			})
			var out bytes.Buffer
			err := reportContainers(&out, jobs, containers)
			if c.want == "" {
				require.NoError(t, err)
				assert.Regexp(t, `vgg16 +w1 +main +n1 +1,2 +v100\[0\] +1,2 +yes`, out.String())
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
