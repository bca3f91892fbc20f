package addon_test

import (
	"fmt"
	"testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	addons "github.com/gpuplan/terraform-provider-gpuplan/internal/provider/addon"
)

// Whatever is unknown of an add-on until apply, the plan has not said what the apply does otherwise: neither of one that the
// resource installs nor of one that was there.
func TestUnknownAttributes(t *testing.T) {
	type object = acctest.Object
	times := [2]any{`"9m"`, `"8m"`}
	for name, values := range map[string]struct{ versions, configs [2]any }{
		"ack-erdma-controller": {
			[2]any{`"v0.4.0"`, `"v0.5.0"`},
			[2]any{`jsonencode({ agent = { preferDriver = "ofed" } })`, `jsonencode({ agent = { preferDriver = "compat" } })`},
		},
		"kube-scheduler": {
			[2]any{`"v1.36.3-aliyun.1"`, `"v1.36.3-aliyun.1"`},
			[2]any{`jsonencode({ enableReservation = true })`, `jsonencode({ binpackPluginWeight = 9 })`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t)
			acctest.Unknown{
				Type: "gpuplan_addon", Resource: addons.New(), One: true,
				Base: func(string) object { return object{"name": fmt.Sprintf("%q", name)} },
				Values: map[string][2]any{
					"config": values.configs, "keep_on_destroy": {"true", "false"}, "name": {fmt.Sprintf("%q", name), `"ack-arena"`}, "version": values.versions,
					"timeouts": {object{"create": `"9m"`}, object{"create": `"8m"`}}, "timeouts.create": times, "timeouts.update": times, "timeouts.delete": times,
				},
			}.Test(t)
		})
	}
}
