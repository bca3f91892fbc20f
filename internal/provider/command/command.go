// Package command is what a provider can learn about the Terraform command that started
// it, its parent process: the protocol between the two does not say which command it is,
// nor that it was killed.
package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Destroys reports whether the command plans to destroy everything: `terraform destroy`,
// or plan or apply with -destroy. Where the parent's arguments cannot be read, on
// Windows, only the environment's count, TF_CLI_ARGS.
func Destroys() bool {
	return destroys(arguments(os.Getppid()), os.Getenv)
}

// Refreshes reports whether the command takes over what there is and changes nothing: plan or apply with -refresh-only.
// Where the parent's arguments cannot be read, on Windows, only the environment's count, TF_CLI_ARGS.
func Refreshes() bool { return refreshes(arguments(os.Getppid()), os.Getenv) }

// Targets reports whether the command is about a part of the configuration only, by -target
// or -exclude. Where the parent's arguments cannot be read, on Windows, only the
// environment's count, TF_CLI_ARGS.
func Targets() bool { return targets(arguments(os.Getppid()), os.Getenv) }

// Tests reports whether the command is `terraform test`, whose state is kept nowhere. Where the
// parent's arguments cannot be read, it is false.
func Tests() bool { return nameOf(arguments(os.Getppid())) == "test" }

// Applies reports whether the command is `terraform apply`, which walks the configuration twice. Where the parent's arguments
// cannot be read, it is false.
func Applies() bool { return nameOf(arguments(os.Getppid())) == "apply" }

// Parallelism is how many resources the command visits at a time (-parallelism), 0 where that cannot be read.
func Parallelism() int { return parallelism(arguments(os.Getppid()), os.Getenv) }

// defaultParallelism is Terraform's.
const defaultParallelism = 10

func parallelism(args []string, env func(string) string) int {
	if len(args) == 0 {
		return 0
	}
	all := withEnvironment(args, nameOf(args), env)
	most := defaultParallelism
	for i, arg := range all {
		flag, value, valued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || flag != "parallelism" {
			continue
		}
		if !valued && i+1 < len(all) {
			value = all[i+1]
		}
		if set, err := strconv.Atoi(value); err == nil && set > 0 {
			most = set
		}
	}
	return most
}

func targets(args []string, env func(string) string) bool {
	name := nameOf(args)
	return slices.ContainsFunc(withEnvironment(args, name, env), func(arg string) bool {
		flag, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return strings.HasPrefix(arg, "-") && (flag == "target" || flag == "exclude" || flag == "target-file" || flag == "exclude-file")
	})
}

// nameOf is the name of a command, "" for none.
func nameOf(args []string) string {
	for _, arg := range args[min(1, len(args)):] {
		if !strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return ""
}

// withEnvironment puts the arguments of the environment before those of the command; the last wins.
func withEnvironment(args []string, name string, env func(string) string) []string {
	return slices.Concat(strings.Fields(env("TF_CLI_ARGS")), strings.Fields(env("TF_CLI_ARGS_"+name)), args)
}

// destroys decides by the arguments, those of the environment included.
func destroys(args []string, env func(string) string) bool {
	return nameOf(args) == "destroy" || switchedOn("destroy", args, env)
}

func refreshes(args []string, env func(string) string) bool {
	return switchedOn("refresh-only", args, env)
}

// switchedOn reports whether an option without a value is set.
func switchedOn(option string, args []string, env func(string) string) bool {
	on := false
	for _, arg := range withEnvironment(args, nameOf(args), env) {
		flag, value, valued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || flag != option {
			continue
		}
		on = !valued
		if set, err := strconv.ParseBool(value); err == nil {
			on = set
		}
	}
	return on
}

// Plan is the file of the saved plan that the command applies, so that another command has shown what it says; "" for
// none, and where the parent's arguments cannot be read.
func Plan() string {
	return plan(arguments(os.Getppid()), os.Getenv)
}

// valued are the options of apply whose value may be an argument of its own.
var valued = []string{
	"backup", "exclude", "exclude-file", "invoke", "lock-timeout", "parallelism", "replace", "state", "state-out", "target", "target-file", "var", "var-file",
}

// plan decides by the arguments, those of the environment included: what is left of
// the options is the file of the plan.
func plan(args []string, env func(string) string) string {
	at := slices.IndexFunc(args[min(1, len(args)):], func(arg string) bool { return !strings.HasPrefix(arg, "-") }) + 2
	if at < 2 || args[at-1] != "apply" {
		return ""
	}
	rest := slices.Concat(strings.Fields(env("TF_CLI_ARGS_apply")), strings.Fields(env("TF_CLI_ARGS")), args[at:])
	for i := 0; i < len(rest); i++ {
		name := strings.TrimLeft(rest[i], "-")
		switch {
		case name == rest[i]:
			return name
		case slices.Contains(valued, name):
			i++
		}
	}
	return ""
}

// arguments are those of a running process, the program first; nil where they cannot be read.
func arguments(pid int) []string {
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		return strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
	}
	text, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// look is the time between two looks at who the parent is.
const look = time.Second

// Wait returns when the process that started this one has ended: parent, as it was at the start.
func Wait(parent int) {
	if runtime.GOOS == "windows" { // where the parent's ID outlives the parent
		if process, err := os.FindProcess(parent); err == nil {
			_, _ = process.Wait() // whatever its end was
		}
		return
	}
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for range ticker.C {
		if os.Getppid() != parent {
			return
		}
	}
}
