package trainingjob_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Terraform plans a replacement twice and leaves out the warnings of the second plan, in
// which the new job is placed. They must be in the first.
func TestWarningsOfReplacements(t *testing.T) {
	connected(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, setting{size: 1, gangs: gangs{"a": {4, ""}, "b": {4, ""}}}.config())
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })

	cli.Write(t, setting{size: 1, gangs: gangs{"a": {5, ""}, "b": {5, ""}}}.config())
	said := acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, said, "2 to add, 0 to change, 2 to destroy")
	assert.Contains(t, said, "Jobs fit alone, but not together")
	cli.Write(t, setting{size: 1, gangs: gangs{"a": {5, ""}, "b": {3, ""}}}.config())
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), "not together")
}
