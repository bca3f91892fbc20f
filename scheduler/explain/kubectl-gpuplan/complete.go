package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// suggestion lists what may stand as an argument of a command, the namespace that the user works in known.
type suggestion func(snapshot *clusterstate.Snapshot, around explain.Around, namespace string) []string

// complete suggests arguments out of the cluster, at most so many, 0 for any number, and none when it cannot be read.
// kubectl asks for them through the program kubectl_complete-gpuplan.
func (a *asker) complete(most int, suggest suggestion) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		snapshot, around, namespace, err := a.read(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		left := slices.DeleteFunc(suggest(snapshot, around, namespace), func(s string) bool { return slices.Contains(args, s) })
		return left, cobra.ShellCompDirectiveNoFileComp
	}
}

// gangNames are the gangs by the names under which a user of a namespace asks about them.
func gangNames(snapshot *clusterstate.Snapshot, around explain.Around, namespace string) []string {
	var names []string
	for _, gang := range explain.Gangs(snapshot, around) {
		names = append(names, strings.TrimPrefix(gang.Gang, namespace+"/"))
	}
	return names
}

func nodeNames(snapshot *clusterstate.Snapshot, _ explain.Around, _ string) []string {
	return snapshot.View.Nodes()
}
