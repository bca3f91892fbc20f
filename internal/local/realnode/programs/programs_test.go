package programs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersionOfContainerd(t *testing.T) {
	for output, want := range map[string]struct {
		version               Version
		current, givesDevices bool
	}{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n":                         {Version{1, 6}, false, false},
		"containerd containerd.io v1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da\n":                           {Version{1, 7}, false, true},
		"containerd github.com/containerd/containerd/v2 v2.2.0 1c4457e00facac03ce1d75f7b6777a7a851e5c41\n":      {Version{2, 2}, true, true},
		"containerd github.com/containerd/containerd/v2 2.1.4 75cb2b7193e4e490e9fbdc236c0e811ccaba3376 extra\n": {Version{2, 1}, true, true},
	} {
		got, err := versionIn(output)
		require.NoError(t, err)
		assert.Equal(t, want.version, got, output)
		assert.Equal(t, want.current, got.Current(), output)
		assert.Equal(t, want.givesDevices, got.GivesDevices(), output)
	}
	_, err := versionIn("no idea")
	require.Error(t, err)
}

// What is missing is named with the command that installs it.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find()
	require.Error(t, err)
	if err.Error() != "real nodes need root: their containers have namespaces and control groups" {
		assert.ErrorContains(t, err, "the program containerd")
		assert.ErrorContains(t, err, "apt-get install containerd runc")
	}
}
