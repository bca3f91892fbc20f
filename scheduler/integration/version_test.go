package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// olderVersions are the minor versions of Kubernetes that the scheduler supports beside
// its own, tooOld is the one before.
var (
	olderVersions = []string{"1.35", "1.34"}
	tooOld        = "1.33"
)

// versionScenarios are the tests that run against every version: install with its
// rights and its admission policy, a gang, shared cards, the verdict on a PodGroup, a
// node that goes away.
const versionScenarios = "^(TestAPIServerVersion|TestInstalled|TestTopologyGangOnBestCards|TestSharedCardsBinpack|TestPodGroupSaysWhyItWaits|TestNodeGoesAway)$"

// TestOlderAPIServers runs scenarios of this package on platforms that behave like older
// versions, each in a process of its own: a process has one platform.
func TestOlderAPIServers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a platform per version")
	}
	for _, version := range olderVersions {
		t.Run(version, func(t *testing.T) {
			output := runOn(t, version, versionScenarios)
			assert.Equal(t, strings.Count(versionScenarios, "|")+1, strings.Count(output, "--- PASS: "), output)
		})
	}
	t.Run(tooOld, func(t *testing.T) {
		output := runOn(t, tooOld, "^TestTooOldAPIServer$")
		assert.Contains(t, output, "--- PASS: ")
	})
}

// runOn runs tests of this package on a platform that behaves like a version.
func runOn(t *testing.T, version, tests string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(self, "-test.run", tests, "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), localtest.EmulatedVersion+"="+version)
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	return string(output)
}

// The scheduler says that it cannot work, where it would wait for ever.
func TestTooOldAPIServer(t *testing.T) {
	if os.Getenv(localtest.EmulatedVersion) != tooOld {
		t.Skip("needs an API server that is too old")
	}
	connect(t)
	scheduler := startScheduler(t)
	<-scheduler.done
	assert.Contains(t, scheduler.log.String(), "the API server behaves like Kubernetes 1.33; this scheduler needs 1.34 or later")
}

// The API server is of the version that the environment asks for.
func TestAPIServerVersion(t *testing.T) {
	connect(t)
	have, err := api().Discovery().ServerVersion()
	require.NoError(t, err)
	t.Logf("API server %s emulates %s.%s", have.GitVersion, have.EmulationMajor, have.EmulationMinor)
	want := os.Getenv(localtest.EmulatedVersion)
	if want == "" {
		want = "1.36"
	}
	assert.Equal(t, want, have.EmulationMajor+"."+have.EmulationMinor)
}
