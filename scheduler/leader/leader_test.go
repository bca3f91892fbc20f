package leader_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/leader"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// One of two works at a time, and the other one when the first has ended.
func TestOneLeads(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", localtest.Start(t).Kubeconfig)
	require.NoError(t, err)
	works := make(chan string, 2)
	begin := func(name string) (end context.CancelFunc, ended chan error) {
		ctx, end := context.WithCancel(t.Context())
		ended = make(chan error, 1)
		go func() {
			lease := leader.Lease{Namespace: "default", Name: "lead", Identity: name, Duration: 2 * time.Second}
			ended <- leader.Run(ctx, config, lease, func(ctx context.Context) error {
				works <- name
				<-ctx.Done()
				return nil
			})
		}()
		return end, ended
	}
	endFirst, firstEnded := begin("first")
	assert.Equal(t, "first", <-works)
	endSecond, secondEnded := begin("second")
	endFirst()
	require.NoError(t, <-firstEnded)
	assert.Equal(t, "second", <-works, "it was told by the lease, which the first has released")
	assert.Empty(t, works)
	endSecond()
	require.NoError(t, <-secondEnded)
}

func TestIdentity(t *testing.T) {
	one, err := leader.Identity()
	require.NoError(t, err)
	other, err := leader.Identity()
	require.NoError(t, err)
	assert.NotEqual(t, one, other)
}
