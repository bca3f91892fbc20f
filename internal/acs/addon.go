package acs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Addon is an add-on to install.
type Addon struct {
	Name string `json:"name"`
	// Version is "" for the newest that suits the cluster.
	Version string `json:"version,omitempty"`
	// Config is a JSON object as text, "" for the defaults.
	Config string `json:"config,omitempty"`
}

// AddonInstance is an installed add-on.
type AddonInstance struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// State is "active", or "updating", "upgrading", "deleting", "unhealthy".
	State string `json:"state"`
	// Config is a JSON object as text with all keys that are set, the service's own included.
	Config string `json:"config"`
}

// AddonActive is the state of an add-on that runs with its configuration.
const AddonActive = "active"

// AddonInfo describes an add-on that can be installed.
type AddonInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// ConfigSchema is a JSON schema as text.
	ConfigSchema     string `json:"config_schema"`
	InstallByDefault bool   `json:"install_by_default"`
	// Managed add-ons run outside the cluster.
	Managed bool `json:"managed"`
	// SupportedActions are of "Install", "Upgrade", "Modify", "Uninstall".
	SupportedActions []string `json:"supported_actions"`
	// NewerVersions are those that this one could be upgraded to.
	NewerVersions []AddonVersion `json:"newer_versions"`
}

// AddonVersion is a version of an add-on.
type AddonVersion struct {
	Version string `json:"version"`
	// MinimumClusterVersion is the Kubernetes version that it needs, "" for any.
	MinimumClusterVersion string `json:"minimum_cluster_version"`
	// Upgradable means that the cluster can have it as it is.
	Upgradable bool `json:"upgradable"`
}

// ErrOutcomeUnknown means that nobody knows whether the service has carried a request out: its
// answer got lost, and so did the answer to the question after it.
var ErrOutcomeUnknown = errors.New("whether the request was carried out is unknown")

// InstallAddon installs an add-on that the cluster does not have, as the caller has seen, and
// returns the ID of the task. When the answer gets lost it looks for the add-on, and returns no ID if
// that is there; when nobody answers that either, the error is [ErrOutcomeUnknown].
func (c *Client) InstallAddon(ctx context.Context, clusterID string, addon Addon) (taskID string, err error) {
	var started Started
	err = c.do(ctx, call{"InstallClusterAddons", http.MethodPost, clusterPath(clusterID) + "/components/install", nil, []Addon{addon}}, &started)
	if err == nil || !ambiguous(err) {
		return started.TaskID, err
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), recovery)
	defer cancel()
	switch _, lookErr := c.GetAddon(look, clusterID, addon.Name); {
	case Code(lookErr) == "AddonNotFound":
		return "", err
	case lookErr != nil:
		return "", fmt.Errorf("%w: %w; %w", ErrOutcomeUnknown, err, lookErr)
	}
	return "", nil
}

// GetAddon returns an installed add-on; [IsNotFound] means that it is not installed.
func (c *Client) GetAddon(ctx context.Context, clusterID, name string) (AddonInstance, error) {
	var instance AddonInstance
	err := c.do(ctx, call{"GetClusterAddonInstance", http.MethodGet, clusterPath(clusterID) + "/addon_instances/" + name, nil, nil}, &instance)
	return instance, err
}

// ListAddons returns the installed add-ons without their configuration.
func (c *Client) ListAddons(ctx context.Context, clusterID string) ([]AddonInstance, error) {
	var answer struct {
		Addons []AddonInstance `json:"addons"`
	}
	err := c.do(ctx, call{"ListClusterAddonInstances", http.MethodGet, clusterPath(clusterID) + "/addon_instances", nil, nil}, &answer)
	return answer.Addons, err
}

// ModifyAddon changes the configuration of an add-on. The service merges: a key that
// config (a JSON object as text) lacks keeps its value; an empty value clears it. The
// change goes on without a task; see [Client.WaitAddon].
func (c *Client) ModifyAddon(ctx context.Context, clusterID, name, config string) error {
	body := struct {
		Config string `json:"config"`
	}{config}
	return c.do(ctx, call{"ModifyClusterAddon", http.MethodPost, clusterPath(clusterID) + "/components/" + name + "/config", nil, body}, nil)
}

// UpgradeAddon changes the version of an add-on, with its configuration, and returns the ID of the task.
func (c *Client) UpgradeAddon(ctx context.Context, clusterID, name, from, to string) (taskID string, err error) {
	body := []struct {
		Name        string `json:"component_name"`
		Version     string `json:"version"`
		NextVersion string `json:"next_version"`
	}{{name, from, to}}
	var started Started
	err = c.do(ctx, call{"UpgradeClusterAddons", http.MethodPost, clusterPath(clusterID) + "/components/upgrade", nil, body}, &started)
	return started.TaskID, err
}

// UninstallAddon removes an add-on and returns the ID of the task, "" when it was not
// installed.
func (c *Client) UninstallAddon(ctx context.Context, clusterID, name string) (taskID string, err error) {
	body := []struct {
		Name string `json:"name"`
	}{{name}}
	var started Started
	err = c.do(ctx, call{"UnInstallClusterAddons", http.MethodPost, clusterPath(clusterID) + "/components/uninstall", nil, body}, &started)
	if Code(err) == "AddonNotFound" {
		return "", nil
	}
	return started.TaskID, err
}

// DescribeAddon describes an add-on as the cluster could install it; version "" means the newest.
func (c *Client) DescribeAddon(ctx context.Context, clusterID, name, version string) (AddonInfo, error) {
	query := url.Values{"cluster_id": {clusterID}}
	if version != "" {
		query.Set("version", version)
	}
	var info AddonInfo
	err := c.do(ctx, call{"DescribeAddon", http.MethodGet, "/addons/" + name, query, nil}, &info)
	return info, err
}

// AddonMetadata returns the configuration schema of an add-on for a cluster; version
// "" means the newest.
func (c *Client) AddonMetadata(ctx context.Context, clusterID, name, version string) (AddonInfo, error) {
	query := url.Values{}
	if version != "" {
		query.Set("version", version)
	}
	var info AddonInfo
	err := c.do(ctx, call{"DescribeClusterAddonMetadata", http.MethodGet, clusterPath(clusterID) + "/components/" + name + "/metadata", query, nil}, &info)
	return info, err
}
