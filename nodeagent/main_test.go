package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv("GPUPLAN_HARDWARE_DIR", "")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing to publish": {nil, "name the node with --node-name"},
		"too long":           {[]string{"--node-name=n", "--interval=6m"}, "--interval is 6m0s: it must be positive, and at most 2m0s"},
		"no time":            {[]string{"--node-name=n", "--interval=0s"}, "--interval is 0s"},
		"simulated":          {[]string{"--hardware-dir=d", "--mps"}, "--mps is for the GPUs of this machine"},
		"mps alone":          {[]string{"--node-name=n", "--mps"}, "--mps needs --device-plugins"},
		"a stray word":       {[]string{"--node-name=n", "now"}, `unexpected argument "now"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(test.args, io.Discard)
			assert.ErrorContains(t, err, test.want)
		})
	}
	_, err := parse([]string{"--help"}, io.Discard)
	assert.True(t, errors.Is(err, flag.ErrHelp))
	_, err = parse([]string{"--version"}, io.Discard)
	assert.ErrorIs(t, err, errVersion)

	t.Setenv("NODE_NAME", "from-env")
	t.Setenv("POD_IP", "")
	s, err := parse([]string{"--interval=5s"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, settings{
		nodeName: "from-env", interval: 5 * time.Second, mpsDir: "/run/gpuplan/mps", featureLabels: true,
		pluginDir: "/var/lib/kubelet/device-plugins", podResources: "/var/lib/kubelet/pod-resources/kubelet.sock",
		cdiDir: "/var/run/cdi", vendorCDI: "/etc/cdi:/var/run/cdi", hostRoot: "/", nriSocket: "/var/run/nri/nri.sock",
	}, s, "without device plugins")
	t.Setenv("POD_IP", "fd00::1")
	s, err = parse(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "[fd00::1]:9401", s.healthAddress, "where the manifest's liveness probe asks")
}

func TestRunNeedsACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
	err := run(context.Background(), []string{"--hardware-dir", t.TempDir()}, io.Discard)
	assert.ErrorContains(t, err, "environment variable KUBECONFIG")
}
