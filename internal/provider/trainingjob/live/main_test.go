// Package live_test has the tests of what the plan of a job says of a cluster in which others run: who is evicted, what is
// taken meanwhile, and what admission adds. They run on the local platform, as some of package trainingjob's do.
package live_test

import (
	"os"
	"testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }
