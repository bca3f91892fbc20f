package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDestroys(t *testing.T) {
	for line, want := range map[string]bool{
		"terraform destroy":                              true,
		"terraform -chdir=x destroy -auto-approve":       true,
		"terraform plan -destroy -out=p":                 true,
		"terraform apply --destroy":                      true,
		"terraform apply -destroy=true":                  true,
		"terraform apply -destroy=false":                 false,
		"terraform apply":                                false,
		"terraform apply destroy":                        false, // a plan file of that name
		"terraform plan -out destroy":                    false,
		"terraform plan -var destroy=true":               false,
		"TF_CLI_ARGS=-destroy terraform plan":            true,
		"TF_CLI_ARGS_plan=-destroy terraform plan":       true,
		"TF_CLI_ARGS_plan=-destroy terraform apply":      false,
		"TF_CLI_ARGS=-destroy terraform plan -destroy=0": false,
		"": false,
	} {
		env, rest, _ := strings.Cut(line, "terraform")
		variable, value, _ := strings.Cut(strings.TrimSpace(env), "=")
		args := append([]string{"terraform"}, strings.Fields(rest)...)
		got := destroys(args, func(name string) string {
			if variable != "" && name == variable {
				return value
			}
			return ""
		})
		assert.Equal(t, want, got, line)
	}
	assert.False(t, destroys(nil, func(string) string { return "" }), "where nothing can be read")
}
