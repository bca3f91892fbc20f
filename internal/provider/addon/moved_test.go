package addon_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// An add-on that the resource has installed is uninstalled with it, also at the address that it was moved to.
func TestAddonThatIsMoved(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, "resource \"gpuplan_addon\" \"x\" {\n  name = \"ack-kube-queue\"\n}\n")
	cli.Apply(t, 1, 0, 0)
	cli.Write(t, "resource \"gpuplan_addon\" \"y\" {\n  name = \"ack-kube-queue\"\n}\nmoved {\n  from = gpuplan_addon.x\n  to   = gpuplan_addon.y\n}\n")
	cli.Apply(t, 0, 0, 0)
	assert.Regexp(t, `installed += true`, cli.Must(t, "state", "show", "gpuplan_addon.y"))
	cli.Must(t, "destroy", "-auto-approve")
	for _, left := range cloud.ACS.State().Addons {
		assert.NotEqual(t, "ack-kube-queue", left.Name)
	}
}
