package integration

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// olderVersions are the minor versions of Kubernetes that the scheduler supports beside
// its own, tooOld is the one before. TestAPIServerVersion is told by minorVersion which
// it should find.
var (
	olderVersions = []string{"1.35", "1.34"}
	tooOld        = "1.33"
	minorVersion  = "GPUPLAN_TEST_MINOR_VERSION"
)

// versionScenarios are the tests that run against every version: install with its
// rights and its admission policy, a gang, shared GPUs, the verdict on a PodGroup, a
// node that goes away.
const versionScenarios = "^(TestAPIServerVersion|TestInstalled|TestTopologyGangOnBestGPUs|TestSharedGPUsBinpack|TestPodGroupSaysWhyItWaits|TestNodeGoesAway)$"

// TestOlderAPIServers runs scenarios of this package on platforms that behave like older
// versions, and on platforms with the API server of an older version where it was built.
// Each has a process of its own: a process has one platform.
func TestOlderAPIServers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a platform per version")
	}
	for _, version := range olderVersions {
		t.Run("like "+version, func(t *testing.T) {
			runOn(t, versionScenarios, minorVersion+"="+version, localtest.EmulatedVersion+"="+version)
		})
		t.Run("kube-apiserver "+version, func(t *testing.T) {
			program, err := filepath.Abs("../../bin/kube-apiserver-" + version)
			require.NoError(t, err)
			if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
				t.Skipf("kube-apiserver %s is not built; make bin/kube-apiserver-%s builds it in about 6 minutes", version, version)
			}
			runOn(t, versionScenarios, minorVersion+"="+version, localtest.APIServer+"="+program)
		})
	}
	t.Run("like "+tooOld, func(t *testing.T) {
		runOn(t, "^(TestTooOldAPIServer)$", localtest.EmulatedVersion+"="+tooOld)
	})
}

// runOn runs tests of this package, all of which must pass, on a platform of its own
// with variables of the environment.
func runOn(t *testing.T, tests string, environment ...string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(self, "-test.run", tests, "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Equal(t, strings.Count(tests, "|")+1, strings.Count(string(output), "--- PASS: "), string(output))
	t.Log(reported.FindString(string(output)))
}

// The scheduler says that it cannot work, where it would wait for ever.
func TestTooOldAPIServer(t *testing.T) {
	if os.Getenv(localtest.EmulatedVersion) != tooOld {
		t.Skip("needs an API server that is too old")
	}
	connect(t)
	scheduler := startScheduler(t)
	<-scheduler.Done
	assert.Contains(t, scheduler.Log.String(), "the API server behaves like Kubernetes 1.33; this scheduler needs 1.34 or later")
}

// reported is what TestAPIServerVersion says.
var reported = regexp.MustCompile(`API server v\S+ emulates \S+`)

// The API server is of the version that the environment asks for.
func TestAPIServerVersion(t *testing.T) {
	connect(t)
	have, err := api().Discovery().ServerVersion()
	require.NoError(t, err)
	t.Logf("API server %s emulates %s.%s", have.GitVersion, have.EmulationMajor, have.EmulationMinor)
	want := os.Getenv(minorVersion)
	if want == "" {
		want = "1.36"
	}
	assert.Equal(t, want, have.EmulationMajor+"."+have.EmulationMinor)
}
