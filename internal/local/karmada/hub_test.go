package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	manager "github.com/karmada-io/karmada/cmd/controller-manager/app"
	scheduler "github.com/karmada-io/karmada/cmd/scheduler/app"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// crds is the folder of the module's CRDs of policies.
func crds(t *testing.T) string {
	t.Helper()
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/karmada-io/karmada").Output()
	require.NoError(t, err)
	return filepath.Join(strings.TrimSpace(string(output)), "charts/karmada/_crds/bases/policy")
}

func TestManifests(t *testing.T) {
	objects, err := manifests(crds(t))
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, object := range objects {
		if kinds[object.GetKind()]++; object.GetKind() == "CustomResourceDefinition" {
			assert.Len(t, kinds, 1, "%s comes after objects that need it", object.GetName())
		}
	}
	assert.Equal(t, map[string]int{
		"CustomResourceDefinition": 7, "MutatingAdmissionPolicy": 4, "MutatingAdmissionPolicyBinding": 4,
		"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
	}, kinds)

	spec := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
	for _, object := range objects {
		if !strings.HasSuffix(object.GetName(), "propagationpolicies.policy.karmada.io") {
			continue
		}
		versions, _, err := unstructured.NestedSlice(object.Object, "spec", "versions")
		require.NoError(t, err)
		for path, want := range map[string]string{
			"suspension.properties.scheduling":                                            "boolean",
			"suspension.properties.dispatching":                                           "boolean",
			"placement.properties.replicaScheduling.properties.customSchedulingType":      "string",
			"placement.properties.replicaScheduling.properties.replicaDivisionPreference": "string",
		} {
			kind, _, err := unstructured.NestedString(versions[0].(map[string]any), append(append([]string{}, spec...), append(strings.Split(path, "."), "type")...)...)
			require.NoError(t, err)
			assert.Equal(t, want, kind, "%s of %s", path, object.GetName())
		}
	}
}

func TestManifestsSayWhatIsMissing(t *testing.T) {
	_, err := manifests(t.TempDir())
	assert.ErrorContains(t, err, "run `make fleet`")

	dir := t.TempDir()
	const name = "policy.karmada.io_propagationpolicies.yaml"
	data, err := os.ReadFile(filepath.Join(crds(t), name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	_, err = manifests(dir)
	assert.ErrorContains(t, err, "clusterpropagationpolicies.policy.karmada.io is not in")

	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(data), "suspension:", "renamed:")), 0o600))
	_, err = manifests(dir)
	assert.ErrorContains(t, err, "has no field suspension")
}

// Karmada's programs know the arguments and the controllers.
func TestArguments(t *testing.T) {
	scheduler := scheduler.NewSchedulerCommand(t.Context())
	require.NoError(t, scheduler.ParseFlags(schedulerArguments("hub.kubeconfig")))
	assert.Equal(t, "hub.kubeconfig", scheduler.Flag("kubeconfig").Value.String())

	manager := manager.NewControllerManagerCommand(t.Context())
	require.NoError(t, manager.ParseFlags(managerArguments("hub.kubeconfig")))
	known := manager.Flag("controllers").Usage
	for _, controller := range controllers {
		assert.Regexp(t, `\b`+controller+`\b`, known)
	}
	assert.Equal(t, "hub.kubeconfig", manager.Flag("kubeconfig").Value.String())
}
