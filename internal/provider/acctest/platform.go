package acctest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// OnPlatform points the provider to the local platform of this test process ([localtest.Start]) and returns a client of
// its cluster.
func OnPlatform(t *testing.T) *kube.Client {
	t.Helper()
	ClearEnv(t)
	p := localtest.Start(t)
	for name, value := range p.Env {
		t.Setenv(name, value)
	}
	client, err := kube.New(p.Config(t))
	require.NoError(t, err)
	return client
}
