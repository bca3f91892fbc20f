package acsfake

import (
	"net/http"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// poolBody is what the emulator checks in the body of a create or modify request.
type poolBody struct {
	Info *struct {
		Name string `json:"name"`
	} `json:"nodepool_info"`
	ScalingGroup *struct {
		InstanceTypes []string `json:"instance_types"`
		VSwitchIDs    []string `json:"vswitch_ids"`
		DesiredSize   *int     `json:"desired_size"`
		KeyPair       string   `json:"key_pair"`
		LoginPassword string   `json:"login_password"`
		groupSettings
	} `json:"scaling_group"`
	KubernetesConfig *struct {
		Labels []struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		} `json:"labels"`
		Taints        []Taint `json:"taints"`
		CPUPolicy     string  `json:"cpu_policy"`
		CMSEnabled    bool    `json:"cms_enabled"`
		Runtime       string  `json:"runtime"`
		UserData      string  `json:"user_data"`
		PreUserData   string  `json:"pre_user_data"`
		Unschedulable bool    `json:"unschedulable"`
	} `json:"kubernetes_config"`
	AutoScaling *struct {
		Enable       bool   `json:"enable"`
		Type         string `json:"type"`
		MinInstances int    `json:"min_instances"`
		MaxInstances int    `json:"max_instances"`
	} `json:"auto_scaling"`
	Management *managementSettings `json:"management"`
	NodeConfig *struct {
		Kubelet *kubeletSettings `json:"kubelet_configuration"`
	} `json:"node_config"`
	Count       *int `json:"count"`
	UpdateNodes bool `json:"update_nodes"`

	blocks poolBlocks
}

// poolBlocks is the body as it came in.
type poolBlocks struct {
	Info             map[string]any `json:"nodepool_info"`
	ScalingGroup     map[string]any `json:"scaling_group"`
	KubernetesConfig map[string]any `json:"kubernetes_config"`
	AutoScaling      map[string]any `json:"auto_scaling"`
	Management       map[string]any `json:"management"`
	NodeConfig       map[string]any `json:"node_config"`
}

func parsePool(raw []byte) (poolBody, error) {
	var b poolBody
	if err := decode(raw, &b); err != nil {
		return poolBody{}, err
	}
	err := decode(raw, &b.blocks)
	return b, err
}

// size is the number of nodes that the request asks for, otherwise the given one.
func (b poolBody) size(otherwise int) int {
	switch {
	case b.AutoScaling != nil && b.AutoScaling.Enable:
		return min(max(otherwise, b.AutoScaling.MinInstances), b.AutoScaling.MaxInstances)
	case b.ScalingGroup != nil && b.ScalingGroup.DesiredSize != nil:
		return *b.ScalingGroup.DesiredSize
	case b.Count != nil:
		return *b.Count
	}
	return otherwise
}

// Limits of the service.
const (
	maxInstanceTypes = 10
	maxVSwitches     = 8
	maxLabels        = 20
	maxLabelKey      = 64
	maxLabelValue    = 128
	maxPoolSize      = 2000
)

func invalid(field, format string, args ...any) error {
	return refuse(http.StatusBadRequest, "InvalidParameter."+field, format, args...)
}

// checkNewPool refuses what the service refuses in a create request; the caller holds the lock.
func (s *Server) checkNewPool(b poolBody) error {
	switch {
	case b.Info == nil || b.Info.Name == "":
		return invalid("Name", "nodepool_info.name must be set")
	case b.ScalingGroup == nil:
		return invalid("ScalingGroup", "scaling_group must be set")
	case b.ScalingGroup.InstanceTypes == nil:
		return invalid("InstanceTypes", "scaling_group.instance_types must be set")
	case b.ScalingGroup.VSwitchIDs == nil:
		return invalid("VSwitchIds", "scaling_group.vswitch_ids must be set")
	}
	if assumePoolNamesUnique {
		for _, p := range s.state.Pools {
			if p.name() == b.Info.Name {
				return invalid("Name", "a node pool named %s exists", b.Info.Name)
			}
		}
	}
	if b.NodeConfig != nil && b.NodeConfig.Kubelet != nil {
		if err := b.NodeConfig.Kubelet.check(); err != nil {
			return err
		}
	}
	return s.check(b, b.ScalingGroup.InstanceTypes, b.AutoScaling != nil && b.AutoScaling.Enable)
}

// checkChange refuses what the service refuses in a modify request; the caller holds the lock.
func (s *Server) checkChange(p *PoolRecord, b poolBody) error {
	scaled, _ := p.AutoScaling["enable"].(bool)
	if b.AutoScaling != nil {
		scaled = b.AutoScaling.Enable
	}
	if _, present := b.blocks.ScalingGroup["ram_role_name"]; present && assumeRoleIsFixed && b.ScalingGroup.RAMRoleName != text(p.ScalingGroup, "ram_role_name") {
		return invalid("RamRoleName", "ram_role_name cannot be changed")
	}
	types := p.instanceTypes()
	if b.ScalingGroup != nil && b.ScalingGroup.InstanceTypes != nil {
		types = b.ScalingGroup.InstanceTypes
	}
	return s.check(b, types, scaled)
}

// check holds the rules that create and modify share; types are the pool's instance types after
// the request, and scaled means that it scales by itself then.
func (s *Server) check(b poolBody, types []string, scaled bool) error {
	if g := b.ScalingGroup; g != nil {
		for _, key := range []string{"key_name", "min_size", "max_size"} {
			if _, present := b.blocks.ScalingGroup[key]; present && assumeUnknownKeysRefused {
				return invalid("ScalingGroup", "scaling_group.%s does not exist", key)
			}
		}
		switch {
		case g.InstanceTypes != nil && (len(g.InstanceTypes) == 0 || len(g.InstanceTypes) > maxInstanceTypes):
			return invalid("InstanceTypes", "scaling_group.instance_types must have 1 to %d entries", maxInstanceTypes)
		case g.VSwitchIDs != nil && (len(g.VSwitchIDs) == 0 || len(g.VSwitchIDs) > maxVSwitches):
			return invalid("VSwitchIds", "scaling_group.vswitch_ids must have 1 to %d entries", maxVSwitches)
		case scaled && (g.DesiredSize != nil || b.Count != nil):
			return refuse(http.StatusBadRequest, "InvalidDesiredSizeOrCount.NotNull", "desired_size and count must not be set when auto_scaling.enable is true.")
		case g.DesiredSize != nil && s.knobs.NoOOSRole:
			return refuse(http.StatusForbidden, "MissingAuth.AliyunOOSLifecycleHook4CSRole", "The service role AliyunOOSLifecycleHook4CSRole is not granted.")
		}
		for _, t := range g.InstanceTypes {
			if !strings.HasPrefix(t, "ecs.") {
				return invalid("InstanceTypes", "the instance type %q does not exist", t)
			}
		}
		if err := g.check(types); err != nil {
			return err
		}
	}
	if size := b.size(0); size < 0 || size > maxPoolSize {
		return invalid("DesiredSize", "the size must be 0 to %d, not %d", maxPoolSize, size)
	}
	if b.Management != nil && b.Management.Enable && s.addon(contract.NodeProblemDetector) == nil {
		return invalid("Management", "management.enable needs the add-on %s", contract.NodeProblemDetector)
	}
	if b.Management != nil {
		if err := b.Management.check(); err != nil {
			return err
		}
	}
	return checkKubernetes(b)
}

func checkKubernetes(b poolBody) error {
	k := b.KubernetesConfig
	if k == nil {
		return nil
	}
	if len(k.Labels) > maxLabels {
		return invalid("Labels", "a node pool has at most %d labels, not %d", maxLabels, len(k.Labels))
	}
	for _, l := range k.Labels {
		if l.Key == "" || len(l.Key) > maxLabelKey || len(l.Value) > maxLabelValue {
			return invalid("Labels", "label %q: the key has 1 to %d characters, the value at most %d", l.Key, maxLabelKey, maxLabelValue)
		}
		for _, prefix := range []string{"aliyun", "acs:", "http://", "https://"} {
			if strings.HasPrefix(l.Key, prefix) {
				return invalid("Labels", "label %q must not start with %q", l.Key, prefix)
			}
		}
	}
	for _, t := range k.Taints {
		switch t.Effect {
		case "NoSchedule", "NoExecute", "PreferNoSchedule":
		default:
			return invalid("Taints", "taint %q has the unknown effect %q", t.Key, t.Effect)
		}
	}
	switch k.CPUPolicy {
	case "", "none", "static":
	default:
		return invalid("CpuPolicy", "cpu_policy must be none or static, not %q", k.CPUPolicy)
	}
	return first(oneOf("Runtime", "runtime", k.Runtime, "containerd", "docker", "Sandboxed-Container.runv"),
		checkScript("UserData", k.UserData), checkScript("PreUserData", k.PreUserData))
}
