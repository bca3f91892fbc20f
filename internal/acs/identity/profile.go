package identity

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// profiles is what is needed of a file with profiles besides credentials.
type profiles struct {
	Current  string `json:"current"`
	Profiles []struct {
		Name   string `json:"name"`
		Region string `json:"region_id"`
	} `json:"profiles"`
}

type profile struct{ Name, Region string }

// readFile reads a file with profiles. It is read before the vendor's library does, whose
// error about a file that is not JSON has the whole file in it.
func readFile(path string) (profiles, error) {
	var file profiles
	text, err := os.ReadFile(path)
	if err != nil {
		return file, fmt.Errorf("the profiles cannot be read: %w; check shared_credentials_file (ALIBABA_CLOUD_CREDENTIALS_FILE), or run `aliyun configure`", err)
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return file, fmt.Errorf("%s is not a file of profiles as `aliyun configure` writes them: %w", path, err)
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
			return profile(p), nil
		}
		names = append(names, p.Name)
	}
	return profile{}, fmt.Errorf("there is no profile %q; there are: %s", name, strings.Join(names, ", "))
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
