package transcript

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// scrubber replaces everything that may tell whose account it is by placeholders, equal things
// by equal ones. Texts stay only below keys that are known to have values of the service's own.
type scrubber struct {
	placeholders map[string]string
	counts       map[string]int
}

// kept are the keys whose texts are words of the service's own: states, codes, types, versions.
var kept = map[string]bool{
	"state": true, "node_status": true, "status": true, "code": true, "Code": true, "type": true, "task_type": true, "category": true,
	"cluster_type": true, "cluster_spec": true, "profile": true, "current_version": true, "version": true, "next_version": true,
	"instance_type": true, "instance_types": true, "instance_type_family": true, "instance_charge_type": true, "system_disk_category": true,
	"system_disk_performance_level": true, "performance_level": true, "encrypted": true, "cpu_policy": true, "scaling_policy": true,
	"multi_az_policy": true, "spot_strategy": true, "runtime": true, "runtime_version": true, "image_type": true, "instance_role": true, "source": true,
	"effect": true, "match_criteria": true, "supported_actions": true, "current_stage": true,
}

// safe is what a kept text may be.
var safe = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$|^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(-aliyun\.[0-9]{1,3})?$|^$`)

// id is how IDs begin, which shows what they are of.
var id = regexp.MustCompile(`^(?:(c|np)[0-9a-f]{32}|(T|i|vpc|vsw|sg|asg|eni|rg)-[0-9a-z]{8,})$`)

// published are the parts of a path below which names follow that are the service's own.
var published = map[string]bool{"components": true, "addon_instances": true, "addons": true}

// operations are the parts of paths that are no names.
var operations = map[string]bool{
	"clusters": true, "nodepools": true, "nodes": true, "tasks": true, "node_config": true, "install": true, "upgrade": true, "uninstall": true,
	"config": true, "metadata": true, "components": true, "addon_instances": true, "addons": true, "": true,
}

func (s *scrubber) placeholder(text string) string {
	if text == "" {
		return ""
	}
	if s.placeholders == nil {
		s.placeholders, s.counts = map[string]string{}, map[string]int{}
	}
	if p, ok := s.placeholders[text]; ok {
		return p
	}
	kind := "text"
	if m := id.FindStringSubmatch(text); m != nil {
		kind = m[1] + m[2]
	}
	s.counts[kind]++
	s.placeholders[text] = fmt.Sprintf("%s-%d", kind, s.counts[kind])
	return s.placeholders[text]
}

func (s *scrubber) text(key, text string) string {
	if kept[key] && safe.MatchString(text) && !id.MatchString(text) {
		return text
	}
	return s.placeholder(text)
}

// longNumber is an account's number, or a time.
const longNumber = 9

func (s *scrubber) value(key string, v any) any {
	switch v := v.(type) {
	case string:
		return s.text(key, v)
	case json.Number:
		if len(v) >= longNumber {
			return json.Number("0")
		}
	case []any:
		scrubbed := make([]any, 0, len(v))
		for _, element := range v {
			scrubbed = append(scrubbed, s.value(key, element))
		}
		return scrubbed
	case map[string]any:
		scrubbed := make(map[string]any, len(v))
		for _, name := range sortedKeys(v) { // so that placeholders are numbered alike
			scrubbed[name] = s.value(name, v[name])
		}
		return scrubbed
	}
	return v
}

func sortedKeys(v map[string]any) []string {
	keys := make([]string, 0, len(v))
	for key := range v {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// target is a path with its query.
func (s *scrubber) target(u *url.URL) string {
	parts := strings.Split(u.Path, "/")
	for i, part := range parts {
		if !operations[part] && !published[parts[max(i-1, 0)]] {
			parts[i] = s.placeholder(part)
		}
	}
	query := u.Query()
	for key, values := range query {
		for i, value := range values {
			var list []any
			if json.Unmarshal([]byte(value), &list) == nil { // instance_ids is a list in JSON
				text, _ := json.Marshal(s.value(key, list))
				values[i] = string(text)
			} else if value != "true" && value != "false" && len(value) > 3 {
				values[i] = s.text(key, value)
			}
		}
		query[key] = values
	}
	if len(query) == 0 {
		return strings.Join(parts, "/")
	}
	return strings.Join(parts, "/") + "?" + query.Encode()
}
