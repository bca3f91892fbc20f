package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTargets(t *testing.T) {
	for line, want := range map[string]bool{
		"terraform plan":                              false,
		"terraform plan -target=a.b":                  true,
		"terraform apply -target a.b":                 true,
		"tofu plan -exclude=a.b":                      true,
		"terraform plan -var target=x":                false,
		"terraform plan -out target":                  false,
		"TF_CLI_ARGS_plan=-target=a.b terraform plan": true,
	} {
		env, args := "", strings.Fields(line)
		if strings.HasPrefix(args[0], "TF_CLI_ARGS_plan=") {
			env, args = strings.TrimPrefix(args[0], "TF_CLI_ARGS_plan="), args[1:]
		}
		got := targets(args, func(name string) string {
			if name == "TF_CLI_ARGS_plan" {
				return env
			}
			return ""
		})
		assert.Equal(t, want, got, line)
	}
}

func TestParallelism(t *testing.T) {
	for line, want := range map[string]int{
		"terraform apply":                                              10,
		"terraform destroy -parallelism=1":                             1,
		"tofu plan -parallelism 3":                                     3,
		"terraform apply p --parallelism=2":                            2,
		"terraform plan -var parallelism=1":                            10,
		"TF_CLI_ARGS_apply=-parallelism=4 terraform apply":             4,
		"TF_CLI_ARGS=-parallelism=4 terraform apply -parallelism=5 -a": 5,
		"": 0,
	} {
		assert.Equal(t, want, parallelism(commandLine(line)), line)
	}
}

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

func TestRefreshes(t *testing.T) {
	for line, want := range map[string]bool{
		"terraform apply -refresh-only -auto-approve":       true,
		"terraform plan --refresh-only=true":                true,
		"terraform plan -refresh-only=false":                false,
		"terraform plan -refresh=false":                     false,
		"terraform plan -out refresh-only":                  false,
		"TF_CLI_ARGS_apply=-refresh-only terraform apply":   true,
		"TF_CLI_ARGS_apply=-refresh-only terraform destroy": false,
		"": false,
	} {
		assert.Equal(t, want, refreshes(commandLine(line)), line)
	}
}

func TestPlan(t *testing.T) {
	for line, want := range map[string]string{
		"terraform apply p.out":                                  "p.out",
		"terraform -chdir=x apply -auto-approve -no-color p.out": "p.out",
		"terraform apply -parallelism 5 -lock-timeout=3s p.out":  "p.out",
		"tofu apply -var a=b -state s p.out":                     "p.out",
		"TF_CLI_ARGS_apply=p.out terraform apply":                "p.out",
		"TF_CLI_ARGS=-no-color terraform apply p.out":            "p.out",
		"terraform apply apply":                                  "apply", // a plan file of that name
		"terraform apply":                                        "",
		"terraform apply -auto-approve":                          "",
		"terraform apply -var a=b":                               "",
		"terraform apply -target x.y --replace x.z":              "",
		"terraform apply -var-file=f":                            "",
		"terraform plan p.out":                                   "",
		"terraform plan -out apply":                              "",
		"terraform destroy x":                                    "",
		"":                                                       "",
	} {
		assert.Equal(t, want, plan(commandLine(line)), line)
	}
	assert.Empty(t, plan(nil, func(string) string { return "" }), "where nothing can be read")
}

// commandLine takes a line apart: an environment variable before the command, and its arguments.
func commandLine(line string) (args []string, env func(name string) string) {
	words := strings.Fields(line)
	variable, value := "", ""
	if len(words) > 0 && strings.HasPrefix(words[0], "TF_") {
		variable, value, _ = strings.Cut(words[0], "=")
		words = words[1:]
	}
	return words, func(name string) string {
		if variable != "" && name == variable {
			return value
		}
		return ""
	}
}
