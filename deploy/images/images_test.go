// Package images_test checks the image recipes as far as that needs no Docker.
package images_test

import (
	"bufio"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	nodeagent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

const root = "../.."

// recipes are the Dockerfiles by program, with the folder of its source.
var recipes = map[string]struct{ file, source string }{
	"gpuplan-scheduler":  {"scheduler.Dockerfile", "scheduler"},
	"gpuplan-node-agent": {"node-agent.Dockerfile", "nodeagent"},
}

// copied lists what a recipe takes from the repository.
func copied(t *testing.T, recipe string) (sources []string) {
	t.Helper()
	file, err := os.Open(recipe)
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) > 2 && words[0] == "COPY" && !strings.HasPrefix(words[1], "--from") {
			sources = append(sources, words[1:len(words)-1]...)
		}
	}
	return sources
}

// A recipe copies every package of this module that its program is made of.
func TestRecipesHaveAllSources(t *testing.T) {
	for program, recipe := range recipes {
		t.Run(program, func(t *testing.T) {
			sources := copied(t, recipe.file)
			for _, source := range sources {
				_, err := os.Stat(filepath.Join(root, source))
				assert.NoError(t, err)
			}
			list := exec.Command("go", "list", "-deps", "-f", "{{if and .Module .Module.Main}}{{.ImportPath}}{{end}}", "./"+recipe.source)
			list.Dir = root
			output, err := list.Output()
			require.NoError(t, err)
			packages := strings.Fields(string(output))
			require.NotEmpty(t, packages)
			for _, path := range packages {
				folder := strings.TrimPrefix(path, "github.com/gpuplan/terraform-provider-gpuplan/")
				top, _, _ := strings.Cut(folder, "/")
				assert.Contains(t, sources, top, folder)
			}
		})
	}
}

// The programs are built by the targets of the makefile, for both architectures.
func TestRecipesBuildByTheMakefile(t *testing.T) {
	for program, recipe := range recipes {
		t.Run(program, func(t *testing.T) {
			text, err := os.ReadFile(recipe.file)
			require.NoError(t, err)
			assert.Contains(t, string(text), "make bin/"+program+" VERSION=$VERSION")
			for _, arch := range []string{"amd64", "arm64"} {
				dry := exec.Command("make", "--no-print-directory", "--dry-run", "bin/"+program, "VERSION=v1.2.3")
				dry.Dir = root
				dry.Env = append(os.Environ(), "GOARCH="+arch)
				output, err := dry.CombinedOutput()
				require.NoError(t, err, string(output))
				assert.Contains(t, string(output), "main.version=v1.2.3")
				assert.Contains(t, string(output), "-o bin/"+program+" ./"+recipe.source)
			}
		})
	}
}

// The manifests run what the images hold: the entry point with arguments, as the same
// user, and with no need to write into the image.
func TestManifestsRunTheImages(t *testing.T) {
	objects, err := scheduler.Objects(scheduler.Options{Image: "test"})
	require.NoError(t, err)
	agent, err := nodeagent.Objects(nodeagent.Options{Image: "test"})
	require.NoError(t, err)
	workloads := 0
	for _, object := range append(objects, agent...) {
		var workload struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &workload))
		pod := workload.Spec.Template.Spec
		for _, container := range pod.Containers {
			workloads++
			at := object.GetKind() + " " + object.GetName()
			recipe, err := os.ReadFile(recipes[container.Name].file)
			require.NoError(t, err, at)
			assert.Contains(t, string(recipe), fmt.Sprintf("ENTRYPOINT [%q]", "/usr/local/bin/"+container.Name), at)
			assert.Empty(t, container.Command, at)
			user := container.SecurityContext.RunAsUser
			if user == nil {
				user = pod.SecurityContext.RunAsUser
			}
			assert.Contains(t, string(recipe), fmt.Sprintf("USER %d:", *user), at)
			assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, at)
		}
	}
	assert.Equal(t, 3, workloads)
}

// The Go of the images is at least the one that go.mod asks for, and no base image
// changes its version by itself.
func TestBaseImagesAreOfAVersion(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	module := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(text)
	require.NotNil(t, module)
	for program, recipe := range recipes {
		text, err := os.ReadFile(recipe.file)
		require.NoError(t, err)
		compiler := regexp.MustCompile(`(?m)^ARG GO_IMAGE=golang:([\d.]+)-(\w+)$`).FindSubmatch(text)
		require.NotNil(t, compiler, program)
		assert.GreaterOrEqual(t, version.Compare("go"+string(compiler[1]), "go"+string(module[1])), 0, program)
		assert.Regexp(t, `(?m)^ARG BASE_IMAGE=\S+debian12:nonroot$`, string(text), program)
		assert.Equal(t, "bookworm", string(compiler[2]), "the glibc of Debian 12, as in the base image")
	}
}

// A release builds the same images from the same files.
func TestReleaseBuildsTheImages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yml"))
	require.NoError(t, err)
	var release struct {
		Dockers []struct {
			Dockerfile string   `json:"dockerfile"`
			Goarch     string   `json:"goarch"`
			ExtraFiles []string `json:"extra_files"`
			Images     []string `json:"image_templates"`
		} `json:"dockers"`
		Manifests []struct {
			Images []string `json:"image_templates"`
		} `json:"docker_manifests"`
	}
	require.NoError(t, yaml.Unmarshal(text, &release))
	built := map[string][]string{}
	var images []string
	for _, docker := range release.Dockers {
		name := filepath.Base(docker.Dockerfile)
		built[name] = append(built[name], docker.Goarch)
		assert.ElementsMatch(t, copied(t, name), docker.ExtraFiles, name)
		images = append(images, docker.Images...)
	}
	for _, recipe := range recipes {
		slices.Sort(built[recipe.file])
		assert.Equal(t, []string{"amd64", "arm64"}, built[recipe.file], recipe.file)
	}
	var joined []string
	for _, manifest := range release.Manifests {
		joined = append(joined, manifest.Images...)
	}
	assert.ElementsMatch(t, images, joined)
}
