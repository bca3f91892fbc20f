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
	for _, gang := range seen.gangs() { // one name may be in several clusters, and states
		if name := strings.TrimPrefix(gang.Gang, seen.namespace+"/"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// completeMember suggests the clusters of the fleet, and none when they cannot be read.
func (a *asker) completeMember(c *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	client, _, err := a.access()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	members, _, err := membersOf(c.Context(), client)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, m := range members {
		names = append(names, m.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func nodeNames(seen *seen) []string {
	one, err := seen.one()
	if err != nil {
		return nil
	}
	return one.snapshot.View.Nodes()
}
