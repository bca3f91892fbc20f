package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// published are the pages that the registry shows.
var published = regexp.MustCompile(`^docs/(index\.md|(guides|resources|data-sources|ephemeral-resources|list-resources|functions|actions)/[\w-]+\.md)$`)

// Links of pages in the registry lead to others there, or by their whole address to the repository.
func TestLinksOfPublishedPages(t *testing.T) {
	r := read(t)
	count := 0
	for _, path := range r.files {
		if !published.MatchString(path) {
			continue
		}
		count++
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		assert.Empty(t, r.strayLinks(page{path, string(text)}), path)
	}
	assert.Greater(t, count, 30)
}

// strayLinks lists the links of a page that lead nowhere in the registry.
func (r *repository) strayLinks(p page) (faults []string) {
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(p.text, ""), -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" {
			continue // a heading of the page, of which the generator takes care
		}
		fault, path := r.link(filepath.Dir(p.path), m[1]), filepath.Join(filepath.Dir(p.path), target)
		if fault == "" && !strings.Contains(target, "://") && !published.MatchString(path) {
			fault = path + " is not in the registry: give its whole address"
		}
		if fault != "" && !slices.Contains(faults, fault) {
			faults = append(faults, fault)
		}
	}
	return faults
}

func TestStrayLinksAreFound(t *testing.T) {
	const repository = "https://github.com/gpuplan/terraform-provider-gpuplan/"
	r := read(t)
	for text, want := range map[string][]string{
		"[a](../install.md#a-fleet)":                                {"docs/install.md is not in the registry: give its whole address"},
		"[a](fleet.md) [b](../index.md) [c](https://example.com)":   nil,
		"[a](" + repository + "blob/main/docs/install.md#a-fleet)":  nil,
		"[a](" + repository + "blob/main/docs/install.md#no-fleet)": {"no heading no-fleet in docs/install.md"},
		"[a](" + repository + "tree/main/examples/nothing)":         {"no path examples/nothing"},
	} {
		assert.Equal(t, want, r.strayLinks(page{"docs/guides/fleet.md", text}), text)
	}
}
