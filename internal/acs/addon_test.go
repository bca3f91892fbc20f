package acs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
)

func TestAddons(t *testing.T) {
	fake, c := both(t, nil)
	ctx := t.Context()
	_, err := c.GetAddon(ctx, cluster, "ack-arena")
	require.True(t, acs.IsNotFound(err))

	task, err := c.InstallAddon(ctx, cluster, acs.Addon{Name: "ack-erdma-controller", Config: `{"agent":{"preferDriver":"ofed"}}`})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, task, nil)
	require.NoError(t, err)
	var seen []acs.Progress
	addon, err := c.WaitAddon(ctx, cluster, "ack-erdma-controller", func(p acs.Progress) { seen = append(seen, p) })
	require.NoError(t, err)
	assert.NotEmpty(t, seen)
	assert.JSONEq(t, `{"agent":{"preferDriver":"ofed","allocateAllDevices":false}}`, addon.Config)
	_, err = c.InstallAddon(ctx, cluster, acs.Addon{Name: "ack-erdma-controller"})
	assert.Equal(t, "AddonAlreadyInstalled", acs.Code(err))
	_, err = c.InstallAddon(ctx, cluster, acs.Addon{Name: "no-such-addon"})
	assert.True(t, acs.IsNotFound(err))

	// Absent keys stay; an empty value clears.
	for _, step := range []struct{ send, want string }{
		{`{"agent":{"allocateAllDevices":true}}`, `{"agent":{"preferDriver":"ofed","allocateAllDevices":true}}`},
		{`{"agent":{"preferDriver":""}}`, `{"agent":{"preferDriver":"default","allocateAllDevices":true}}`},
		{`{"note":"x"}`, `{"agent":{"preferDriver":"default","allocateAllDevices":true},"note":"x"}`},
		{`{"note":null}`, `{"agent":{"preferDriver":"default","allocateAllDevices":true}}`},
	} {
		require.NoError(t, c.ModifyAddon(ctx, cluster, "ack-erdma-controller", step.send))
		addon, err = c.WaitAddon(ctx, cluster, "ack-erdma-controller", nil)
		require.NoError(t, err)
		assert.JSONEq(t, step.want, addon.Config, step.send)
	}
	err = c.ModifyAddon(ctx, cluster, "ack-erdma-controller", `[]`)
	assert.Equal(t, "InvalidParameter.Config", acs.Code(err))

	list, err := c.ListAddons(ctx, cluster)
	require.NoError(t, err)
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
	}
	assert.Contains(t, names, "kube-scheduler")
	assert.Contains(t, names, "ack-erdma-controller")

	task, err = c.UninstallAddon(ctx, cluster, "ack-erdma-controller")
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, task, nil)
	require.NoError(t, err)
	task, err = c.UninstallAddon(ctx, cluster, "ack-erdma-controller")
	require.NoError(t, err, "removing what is gone is success")
	assert.Empty(t, task)
	_, err = c.UninstallAddon(ctx, cluster, "kube-scheduler")
	assert.Equal(t, "AddonUninstallNotSupported", acs.Code(err))

	fake.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{{Code: "ChartFailed", Message: "timed out", Hidden: true}}})
	task, err = c.InstallAddon(ctx, cluster, acs.Addon{Name: "ack-arena", Version: "0.15.4"})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, task, nil)
	assert.ErrorContains(t, err, "ChartFailed", "a failed add-on within a successful task")
	_, err = c.GetAddon(ctx, cluster, "ack-arena")
	assert.True(t, acs.IsNotFound(err))
}

func TestAddonDescriptions(t *testing.T) {
	_, c := both(t, nil)
	info, err := c.DescribeAddon(t.Context(), cluster, "kube-scheduler", "")
	require.NoError(t, err)
	assert.True(t, info.Managed)
	assert.True(t, info.InstallByDefault)
	assert.NotContains(t, info.SupportedActions, "Uninstall")
	assert.Contains(t, info.ConfigSchema, "enableReservation")
	info, err = c.AddonMetadata(t.Context(), cluster, "ack-arena", "0.15.4")
	require.NoError(t, err)
	assert.Equal(t, "0.15.4", info.Version)
	_, err = c.DescribeAddon(t.Context(), cluster, "nothing", "1")
	assert.True(t, acs.IsNotFound(err))
}
