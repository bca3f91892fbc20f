package nodepool_test

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// meagre is a cloud whose nodes offer less than the catalogue says.
type meagre struct {
	acsfake.Backend
	cloud *acctest.Cloud
}

func (b *meagre) EnsureNode(_ context.Context, n acsfake.Node) error {
	n.Labels = maps.Clone(n.Labels)
	n.Labels[contract.GPUMemoryLabel] = "16130MiB"
	object, err := acctest.Node(n)
	if err != nil {
		return err
	}
	for name, amount := range map[string]string{"cpu": "80", "memory": "300Gi"} {
		if err := unstructured.SetNestedField(object.Object, amount, "status", "allocatable", name); err != nil {
			return err
		}
	}
	b.cloud.API.Put(object)
	return nil
}

func (b *meagre) UpdateNode(ctx context.Context, _, n acsfake.Node) error {
	return b.EnsureNode(ctx, n)
}

// What nodes offer less than the catalogue says is told when the first have come, and not again. Nodes
// that are added are planned as those that are there.
func TestNodesThatOfferLessThanPlanned(t *testing.T) {
	backend := &meagre{}
	backend.cloud = acctest.StartCloud(t, func(o *acsfake.Options) { backend.Backend, o.Backend = o.Backend, backend })
	cli := acctest.StartCLI(t)
	const summary = "Nodes offer less than planned"

	cli.Write(t, poolWith("size = 1"))
	assert.NotContains(t, cli.Must(t, "plan"), summary)
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, summary)
	assert.Contains(t, said, "80000m CPU instead of 81725m, 307200 MiB memory instead of 331201, 16130 MiB memory per GPU instead of 16160 on cn-hangzhou.10.0.1.1.")

	again := cli.Must(t, "plan")
	assert.NotContains(t, again, summary)
	assert.Contains(t, again, "No changes.")

	cli.Write(t, poolWith("size = 2"))
	plan := cli.Must(t, "plan", "-out=plan")
	assert.NotContains(t, plan, summary)
	output := cli.Must(t, "show", "-json", "plan")
	require.Contains(t, output, `"name":"v100[1]"`)
	assert.Regexp(t, `"gpu_memory_mib":16130,[^{}]*"memory_mib":307200,"milli_cpu":80000,"name":"v100\[1\]"`, output)
	assert.NotContains(t, cli.Must(t, "apply", "-auto-approve"), summary, "the plan has counted with it")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}
