package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// suggestion lists what may stand as an argument of a command.
type suggestion func(seen *seen) []string

// complete suggests arguments out of the cluster, at most so many, 0 for any number, and none when it cannot be read.
// kubectl asks for them through the program kubectl_complete-gpuplan.
func (a *asker) complete(most int, suggest suggestion) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		seen, err := a.read(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		left := slices.DeleteFunc(suggest(seen), func(s string) bool { return slices.Contains(args, s) })
		return left, cobra.ShellCompDirectiveNoFileComp
	}
}

// gangNames are the gangs by the names under which a user of a namespace asks about them.
func gangNames(seen *seen) []string {
	var names []string
	for _, gang := range seen.gangs() {
		names = append(names, strings.TrimPrefix(gang.Gang, seen.namespace+"/"))
	}
	return slices.Compact(names)
}

func nodeNames(seen *seen) []string {
	one, err := seen.one()
	if err != nil {
		return nil
	}
	return one.snapshot.View.Nodes()
}
