package acsfake

import (
	"context"
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

const (
	addonInitial   = "initial"
	addonActive    = "active"
	addonUpdating  = "updating"
	addonUpgrading = "upgrading"
	addonDeleting  = "deleting"
)

// addonKind is an add-on that can be installed.
type addonKind struct {
	Name             string   `json:"name"`
	Version          string   `json:"version"`
	InstallByDefault bool     `json:"install_by_default"`
	Managed          bool     `json:"managed"`
	SupportedActions []string `json:"supported_actions"`
	// Config are the defaults, Properties the keys of the configuration schema.
	Config     map[string]any `json:"config"`
	Properties map[string]any `json:"properties"`
}

//go:embed addons.json
var addonFile []byte

// addonKinds are the add-ons that public sources name, with versions of about Nov 2026.
var addonKinds = sync.OnceValue(func() []addonKind {
	var kinds []addonKind
	if err := json.Unmarshal(addonFile, &kinds); err != nil {
		panic("acsfake: addons.json: " + err.Error())
	}
	return kinds
})

func kindOf(name string) (addonKind, bool) {
	for _, k := range addonKinds() {
		if k.Name == name {
			return k, true
		}
	}
	return addonKind{}, false
}

// defaultAddons are those of a cluster that was set up for GPUs, as the vendor's documents presuppose.
func defaultAddons() []*AddonRecord {
	var addons []*AddonRecord
	for _, k := range addonKinds() {
		if k.InstallByDefault || k.Name == contract.AIInstaller {
			addons = append(addons, &AddonRecord{Name: k.Name, Version: k.Version, State: addonActive, Config: mergeConfig(nil, nil, k.Config)})
		}
	}
	return addons
}

// installAddons is InstallClusterAddons; its body is an array.
func (s *Server) installAddons(r *request) (any, error) {
	var asked []struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Config  string `json:"config"`
	}
	if err := decode(r.body, &asked); err != nil {
		return nil, err
	}
	if len(asked) != 1 {
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", "the emulator installs one add-on per request")
	}
	kind, ok := kindOf(asked[0].Name)
	if !ok {
		return nil, refuse(assumeNotFoundStatus, "AddonNotFound", "The add-on %s does not exist.", asked[0].Name)
	}
	config, err := parseConfig(asked[0].Config)
	if err != nil {
		return nil, err
	}
	version := kind.Version
	if asked[0].Version != "" {
		version = asked[0].Version
	}
	s.mu.Lock()
	if s.addon(kind.Name) != nil {
		s.mu.Unlock()
		return nil, refuse(http.StatusBadRequest, assumeReinstallCode, "The add-on %s is installed.", kind.Name)
	}
	s.state.Addons = append(s.state.Addons, &AddonRecord{Name: kind.Name, Version: version, State: addonInitial, Config: mergeConfig(nil, config, kind.Config)})
	answer := s.acceptedAddon(r, s.startTask(TaskRecord{Type: taskInstallAddon, Target: kind.Name}))
	s.mu.Unlock()
	s.changed()
	return answer, nil
}

// upgradeAddons is UpgradeClusterAddons; its body is an array.
func (s *Server) upgradeAddons(r *request) (any, error) {
	var asked []struct {
		Name        string `json:"component_name"`
		Version     string `json:"version"`
		NextVersion string `json:"next_version"`
	}
	if err := decode(r.body, &asked); err != nil {
		return nil, err
	}
	if len(asked) != 1 {
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", "the emulator upgrades one add-on per request")
	}
	s.mu.Lock()
	a := s.addon(asked[0].Name)
	if a == nil {
		s.mu.Unlock()
		return nil, refuse(assumeNotFoundStatus, "AddonNotFound", "The add-on %s is not installed.", asked[0].Name)
	}
	a.State, a.Next = addonUpgrading, asked[0].NextVersion
	answer := s.acceptedAddon(r, s.startTask(TaskRecord{Type: taskUpgradeAddon, Target: a.Name}))
	s.mu.Unlock()
	s.changed()
	return answer, nil
}

func (s *Server) upgradeSteps() []step {
	return []step{{name: "upgrade_addon", message: "Upgrade the add-on.", faulty: true, do: func(_ context.Context, j *job) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a := s.addon(j.target); a != nil {
			if a.State = addonActive; j.fault == nil {
				a.Version = a.Next
			}
			a.Next = ""
		}
		return nil
	}}}
}

// uninstallAddons is UnInstallClusterAddons; its body is an array.
func (s *Server) uninstallAddons(r *request) (any, error) {
	var asked []struct {
		Name string `json:"name"`
	}
	if err := decode(r.body, &asked); err != nil {
		return nil, err
	}
	if len(asked) != 1 {
		return nil, refuse(http.StatusNotImplemented, "NotImplemented", "the emulator removes one add-on per request")
	}
	s.mu.Lock()
	a := s.addon(asked[0].Name)
	if a == nil {
		s.mu.Unlock()
		return nil, refuse(assumeNotFoundStatus, "AddonNotFound", "The add-on %s is not installed.", asked[0].Name)
	}
	if kind, _ := kindOf(a.Name); !slices.Contains(kind.SupportedActions, "Uninstall") {
		s.mu.Unlock()
		return nil, refuse(http.StatusBadRequest, assumeUninstallCode, "The add-on %s cannot be uninstalled.", a.Name)
	}
	a.State = addonDeleting
	answer := s.acceptedAddon(r, s.startTask(TaskRecord{Type: taskUninstallAddon, Target: a.Name}))
	s.mu.Unlock()
	s.changed()
	return answer, nil
}

func (s *Server) acceptedAddon(r *request, t *TaskRecord) map[string]any {
	answer := accepted(r, t)
	answer["cluster_id"] = s.opts.ClusterID
	return answer
}

func (s *Server) installSteps() []step {
	return []step{{name: "install_addon", message: "Install the add-on.", faulty: true, do: func(_ context.Context, j *job) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if j.fault != nil {
			s.forget(j.target)
		} else if a := s.addon(j.target); a != nil {
			a.State = addonActive
		}
		return nil
	}}}
}

func (s *Server) uninstallSteps() []step {
	return []step{{name: "uninstall_addon", message: "Uninstall the add-on.", faulty: true, do: func(_ context.Context, j *job) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if j.fault == nil {
			s.forget(j.target)
		} else if a := s.addon(j.target); a != nil {
			a.State = addonActive
		}
		return nil
	}}}
}

// forget takes an add-on off the list; the caller holds the lock.
func (s *Server) forget(addon string) {
	s.state.Addons = slices.DeleteFunc(s.state.Addons, func(a *AddonRecord) bool { return a.Name == addon })
}

// modifyAddon is ModifyClusterAddon: an empty answer without a task; the add-on is
// "updating" for a while.
func (s *Server) modifyAddon(r *request) (any, error) {
	var body struct {
		Config string `json:"config"`
	}
	if err := decode(r.body, &body); err != nil {
		return nil, err
	}
	config, err := parseConfig(body.Config)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	a := s.addon(r.PathValue("addon"))
	if a == nil {
		s.mu.Unlock()
		return nil, refuse(assumeNotFoundStatus, "AddonNotFound", "The add-on %s is not installed.", r.PathValue("addon"))
	}
	kind, _ := kindOf(a.Name)
	a.Config, a.State = mergeConfig(a.Config, config, kind.Config), addonUpdating
	name, pause := a.Name, s.opts.TaskDuration+s.knobs.ExtraTaskDuration
	if !s.closed {
		s.tasks.Go(func() { s.activate(name, pause) })
	}
	s.mu.Unlock()
	s.changed()
	return nil, nil
}

// activate ends an update of an add-on.
func (s *Server) activate(name string, after time.Duration) {
	if s.wait(after) != nil {
		return
	}
	s.mu.Lock()
	if a := s.addon(name); a != nil && a.State == addonUpdating {
		a.State = addonActive
	}
	s.mu.Unlock()
	s.changed()
}

func parseConfig(raw string) (map[string]any, error) {
	if strings.TrimSpace(raw) == "" {
		return nil, nil
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(raw), &config); err != nil {
		return nil, refuse(http.StatusBadRequest, "InvalidParameter.Config", "config is not a JSON object: %v", err)
	}
	return config, nil
}

// mergeConfig lays sent over old: absent keys keep their value, objects are merged, an
// empty value clears the key, and then its default, if any, is back.
func mergeConfig(old, sent, defaults map[string]any) map[string]any {
	merged := maps.Clone(old)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range sent {
		object, isObject := value.(map[string]any)
		switch {
		case isObject && len(object) > 0:
			before, _ := merged[key].(map[string]any)
			fallback, _ := defaults[key].(map[string]any)
			merged[key] = mergeConfig(before, object, fallback)
		case empty(value):
			delete(merged, key)
		default:
			merged[key] = value
		}
	}
	for key, value := range defaults {
		if _, present := merged[key]; !present {
			merged[key] = value
		}
	}
	return merged
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// getAddon is GetClusterAddonInstance.
func (s *Server) getAddon(r *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.addon(r.PathValue("addon"))
	if a == nil {
		return nil, refuse(assumeNotFoundStatus, "AddonNotFound", "The add-on %s is not installed.", r.PathValue("addon"))
	}
	return map[string]any{"name": a.Name, "version": a.Version, "state": a.State, "config": string(encode(a.Config)), "logging": map[string]any{}}, nil
}

// listAddons is ListClusterAddonInstances.
func (s *Server) listAddons(*request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	addons := []any{}
	for _, a := range s.state.Addons {
		addons = append(addons, map[string]any{"name": a.Name, "version": a.Version, "state": a.State})
	}
	return map[string]any{"addons": addons}, nil
}

// describeAddon is DescribeAddon and DescribeClusterAddonMetadata.
func (s *Server) describeAddon(r *request) (any, error) {
	kind, ok := kindOf(r.PathValue("addon"))
	if !ok {
		return nil, refuse(assumeNotFoundStatus, "AddonNotFound", "The add-on %s does not exist.", r.PathValue("addon"))
	}
	schema := map[string]any{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": kind.Properties}
	version, newer := kind.Version, []any{}
	if asked := r.URL.Query().Get("version"); asked != "" && asked != kind.Version {
		version = asked
		newer = append(newer, map[string]any{"version": kind.Version, "minimum_cluster_version": "", "upgradable": true})
	}
	return map[string]any{
		"name": kind.Name, "version": version, "config_schema": string(encode(schema)),
		"install_by_default": kind.InstallByDefault, "managed": kind.Managed,
		"supported_actions": kind.SupportedActions, "architecture": []string{"amd64", "arm64"},
		"category": "", "newer_versions": newer,
	}, nil
}
