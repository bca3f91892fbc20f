// Package owner tells to which configuration an object belongs: it makes a stamp of
// the place where Terraform keeps the state. What carries the stamp of the state and
// is missing in it was created by an apply that did not live to write it down.
package owner

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Process is what a provider's process knows of the Terraform that runs it.
type Process struct {
	// Dir is Terraform's working directory, also with -chdir.
	Dir string
	// Getenv reads Terraform's environment.
	Getenv func(string) string
	// Machine identifies the machine; a local state exists only there.
	Machine []string
}

// This is the process that asks.
func This() (Process, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return Process{}, fmt.Errorf("find the working directory: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return Process{}, fmt.Errorf("find the name of this machine: %w", err)
	}
	id, _ := os.ReadFile("/etc/machine-id") // not every system has one
	return Process{Dir: dir, Getenv: os.Getenv, Machine: []string{host, strings.TrimSpace(string(id))}}, nil
}

// Stamp returns the stamp of the state that Terraform uses there: 26 lower-case letters
// and digits. It is the same as long as the state stays where it is, and another one for
// each workspace. Credentials of the state's backend are not in it.
func (p Process) Stamp() (string, error) {
	place, err := p.place()
	if err != nil {
		return "", fmt.Errorf("find out where Terraform keeps the state: %w", err)
	}
	return digest(place...), nil
}

// OfTests returns the stamp of what `terraform test` creates with a configuration that has the
// given one: tests keep their state in memory and delete all of it when they end, so what the
// configuration has is not theirs.
func OfTests(stamp string) string { return digest("test", stamp) }

// digest returns 26 lower-case letters and digits that stand for some texts.
func digest(texts ...string) string {
	text, _ := json.Marshal(texts) // strings can always be marshalled
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// place names the state.
func (p Process) place() ([]string, error) {
	if slug := p.Getenv("TFC_WORKSPACE_SLUG"); slug != "" {
		return []string{"cloud", slug}, nil // a run on HCP Terraform, which hides its backend
	}
	data := p.Getenv("TF_DATA_DIR")
	if data == "" {
		data = ".terraform"
	}
	data = p.absolute(data)
	workspace, err := p.workspace(data)
	if err != nil {
		return nil, err
	}
	b, err := readBackend(filepath.Join(data, "terraform.tfstate"))
	if err != nil {
		return nil, err
	}
	switch b.Type {
	case "cloud", "remote":
		return []string{"cloud", b.slug(p.Getenv, workspace)}, nil
	case "", "local":
		return append([]string{"local", p.absolute(b.text("path", "terraform.tfstate")), b.text("workspace_dir", ""), workspace}, p.Machine...), nil
	}
	named := b.place(p.Getenv)
	if len(named) == 0 { // a backend that is told by other means where its state is
		named = append(p.Machine, p.Dir)
	}
	return append([]string{b.Type, workspace}, named...), nil
}

// workspace is the selected workspace.
func (p Process) workspace(data string) (string, error) {
	if name := p.Getenv("TF_WORKSPACE"); name != "" {
		return name, nil
	}
	selected, err := os.ReadFile(filepath.Join(data, "environment"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if name := strings.TrimSpace(string(selected)); name != "" {
		return name, nil
	}
	return "default", nil
}

func (p Process) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(p.Dir, path)
}
