package identity

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// profiles is what is needed of a file with profiles besides credentials.
type profiles struct {
	Current  string     `json:"current"`
	Profiles []*profile `json:"profiles"`
}

type profile struct {
	Name   string `json:"name"`
	Region string `json:"region_id"`
	Mode   string `json:"mode"`
	// Source is the profile that assumes the role of one of mode ChainableRamRoleArn.
	Source string `json:"source_profile"`
	// Command is the program of a profile of mode External.
	Command string `json:"process_command"`
}

// Modes of profiles that need something of their own.
const (
	modeChain   = "ChainableRamRoleArn"
	modeProcess = "External"
)

// readFile reads a file with profiles. It is read before the vendor's library does, whose
// error about a file that is not JSON has the whole file in it.
func readFile(path string) (profiles, error) {
	var file profiles
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return file, fmt.Errorf("the profiles cannot be read: %w; check shared_credentials_file (ALIBABA_CLOUD_CREDENTIALS_FILE), or run `aliyun configure`", err)
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return file, fmt.Errorf("%s is not a file of profiles as `aliyun configure` writes them: %w", path, err)
	}
	if slices.Contains(file.Profiles, nil) {
		return file, fmt.Errorf("%s is not a file of profiles as `aliyun configure` writes them: one of the profiles is null", path)
	}
	return file, nil
}

// find returns the profile of a name, "" for the current one.
func (f profiles) find(name string) (profile, error) {
	if name == "" {
		name = f.Current
	}
	var names []string
	for _, p := range f.Profiles {
		if p.Name == name {
			return *p, nil
		}
		names = append(names, p.Name)
	}
	return profile{}, fmt.Errorf("there is no profile %q; there are: %s", name, strings.Join(names, ", "))
}

// checkSources follows the profiles that assume a profile's role, which the vendor's library does without end.
func (f profiles) checkSources(p profile) error {
	for passed := []string{p.Name}; p.Mode == modeChain; passed = append(passed, p.Name) {
		source, err := f.find(p.Source)
		switch {
		case p.Source == "" || err != nil:
			return fmt.Errorf("the profile %q has no source_profile that exists: %q", p.Name, p.Source)
		case slices.Contains(passed, source.Name):
			return fmt.Errorf("the profiles %s are the source_profile of each other", strings.Join(passed, ", "))
		case source.Mode == modeProcess:
			return fmt.Errorf("the source_profile %q of %q runs a program, which only a profile of its own may: choose it, and the role by assume_role", source.Name, p.Name)
		}
		p = source
	}
	return nil
}

// Region is the region of the profile that the settings use, "" when they use none or it has none.
func (s Settings) Region() string {
	if !s.usesProfile() {
		return ""
	}
	file, err := readFile(s.file())
	if err != nil {
		return ""
	}
	p, _ := file.find(s.Profile)
	return p.Region
}
