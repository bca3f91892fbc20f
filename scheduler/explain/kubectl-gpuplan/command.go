package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

// version is set when a release is built.
var version = "dev"

// asker asks one cluster, or all of a fleet.
type asker struct {
	out       io.Writer
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	// member is the cluster of a fleet that is asked, "" for all.
	member string
	// timeout is what the user gives each request, 0 for as long as any.
	timeout time.Duration
	output  string
	all     bool
}

func command(out io.Writer) *cobra.Command {
	a := &asker{out: out, rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	root := &cobra.Command{
		Use:   "kubectl gpuplan",
		Short: "Why gangs wait, what would make them fit, and where everything is",
		Long: `Why gangs wait, what would make them fit, and where everything is.

The answers come from the planner that also runs at terraform plan and in
gpuplan-scheduler, on nodes, pods and gpuplan's objects as the API server has them
now. Nothing is changed. The cluster role gpuplan-explain has the rights it needs.

On the hub of a fleet the answers are about all its clusters, or about one (--member),
with the hub's access to them.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gpuplan"},
	}
	root.SetOut(out)
	root.CompletionOptions.DisableDefaultCmd = true // the shell completes kubectl, which runs kubectl_complete-gpuplan
	flags := root.PersistentFlags()
	flags.StringVar(&a.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.ShortName = "n"
	clientcmd.BindOverrideFlags(&a.overrides, flags, names)
	flags.StringVar(&a.member, "member", "", "The cluster of the fleet to ask, where the kubeconfig leads to a hub; all without")

	if err := root.RegisterFlagCompletionFunc("member", a.completeMember); err != nil {
		panic(err) // the flag is defined above
	}

	why := a.subcommand("why NAME", "Say why a gang waits, or where it runs", a.why, "text", "json")
	why.Long = "Say why a gang waits: what it asks for, how many members fit where and what stops\nthe next one, what would make it fit, and the most that fits now.\nNAME is a gang, a job or a pod: of another namespace as NAMESPACE/NAME, as gangs lists\nthem. A kind before it, as in pod/NAME, is left aside."
	why.Args, why.ValidArgsFunction = oneName, a.complete(1, gangNames)
	fits := a.subcommand("fits NAME", "Say what would make a gang fit", a.fits, "text", "json")
	fits.Long = "Say what would make a gang fit. Each of the changes was planned: with any one of\nthem the whole gang fits."
	fits.Args, fits.ValidArgsFunction = oneName, a.complete(1, gangNames)
	gangs := a.subcommand("gangs", "List the gangs, those that wait first", a.gangs, "text", "json")
	gangs.Flags().BoolVarP(&a.all, "all-namespaces", "A", false, "List the gangs of all namespaces")
	gpus := a.subcommand("map", "Show every GPU and who is on it", a.gpus, "table", "svg", "json")
	without := a.subcommand("without NODE...", "Say who would lose a place without nodes", a.without, "text", "json")
	without.Long = "Say which gangs would lose members if nodes went away, and whether these members\nwould fit on the nodes that are left. Nothing is drained."
	without.Args, without.ValidArgsFunction = someNodes, a.complete(0, nodeNames)
	root.AddCommand(why, fits, gangs, gpus, without)
	root.SetHelpCommand(helpCommand(root))
	return root
}

// helpCommand is cobra's, which succeeds for a command that there is not.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, _, err := root.Find(args)
			if err != nil {
				return err
			}
			return c.Help()
		},
	}
}

func oneName(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("%s wants the name of a gang, a job or a pod; kubectl gpuplan gangs -A lists them", c.CommandPath())
	case len(args) > 1:
		return fmt.Errorf("%s wants one name, not %d: %s", c.CommandPath(), len(args), strings.Join(args, " "))
	}
	return nil
}

func someNodes(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s wants the names of nodes; kubectl gpuplan map lists those with GPUs", c.CommandPath())
	}
	return nil
}

func noName(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no names, and %q is one", c.CommandPath(), args[0])
	}
	return nil
}

// question answers from what was read.
type question func(seen *seen, args []string) error

// subcommand makes a command that reads the cluster and answers in one of the forms,
// of which the first is the default.
func (a *asker) subcommand(use, short string, ask question, forms ...string) *cobra.Command {
	var output string
	c := &cobra.Command{Use: use, Short: short, Args: noName, RunE: func(c *cobra.Command, args []string) error {
		if !slices.Contains(forms, output) {
			return fmt.Errorf("output %q is none of %s", output, strings.Join(forms, ", "))
		}
		a.output = output
		seen, err := a.read(c.Context())
		if err != nil {
			return err
		}
		for _, why := range seen.unread {
			fmt.Fprintln(c.ErrOrStderr(), "warning:", why)
		}
		return ask(seen, args)
	}}
	c.Flags().StringVarP(&output, "output", "o", forms[0], "Form of the answer: "+strings.Join(forms, ", "))
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
	return c
}

// find answers for what a text stands for.
func (a *asker) find(seen *seen, text string) ([]explain.Answer, error) {
	about, err := parseTarget(text, a.overrides.Context.Namespace, seen.namespace)
	if err != nil {
		return nil, err
	}
	answers := seen.find(about)
	if len(answers) == 0 && len(seen.unread) > 0 {
		return nil, fmt.Errorf("what could be read of the fleet has in namespace %s no gang, job or pod %q that asks for GPUs; see kubectl gpuplan gangs -A", about.namespace, about.name)
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("namespace %s has no gang, job or pod %q that asks for GPUs; see kubectl gpuplan gangs -A", about.namespace, about.name)
	}
	return answers, nil
}

func (a *asker) why(seen *seen, args []string) error {
	now := time.Now()
	return a.each(seen, args[0], func(answer explain.Answer, w io.Writer) error { return answer.WriteText(w, now) })
}

func (a *asker) fits(seen *seen, args []string) error {
	return a.each(seen, args[0], explain.Answer.WriteFixes)
}

// each writes all answers to a name.
func (a *asker) each(seen *seen, text string, write func(explain.Answer, io.Writer) error) error {
	answers, err := a.find(seen, text)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.json(answers)
	}
	return explain.WriteAll(a.out, answers, write)
}

func (a *asker) gangs(seen *seen, _ []string) error {
	gangs := slices.DeleteFunc(seen.gangs(), func(g explain.Answer) bool {
		return !a.all && !strings.HasPrefix(g.Gang, seen.namespace+"/")
	})
	if err := seen.nothing(); len(gangs) == 0 && err != nil {
		return err
	}
	if a.output == "json" {
		return a.json(gangs)
	}
	if len(gangs) == 0 && !a.all {
		_, err := fmt.Fprintf(a.out, "No pod of namespace %s asks for GPUs; -A shows those of all namespaces.\n", seen.namespace)
		return err
	}
	return explain.WriteGangs(a.out, gangs, time.Now())
}

func (a *asker) gpus(seen *seen, _ []string) error {
	if a.output == "svg" {
		one, err := seen.one()
		if err != nil {
			return err
		}
		_, err = a.out.Write(explain.GPUs(one.snapshot).SVG())
		return err
	}
	if !seen.fleet {
		return a.oneMap(explain.GPUs(seen.clusters[0].snapshot))
	}
	if err := seen.nothing(); err != nil {
		return err
	}
	maps := map[string]explain.GPUMap{}
	for i, c := range seen.clusters {
		maps[c.name] = explain.GPUs(c.snapshot)
		if a.output == "json" {
			continue
		}
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "Cluster %s\n\n", c.name)
		if err := a.oneMap(maps[c.name]); err != nil {
			return err
		}
	}
	if a.output == "json" {
		return a.json(maps)
	}
	return nil
}

func (a *asker) oneMap(gpus explain.GPUMap) error {
	if a.output == "json" {
		return a.json(gpus)
	}
	return gpus.WriteText(a.out)
}

func (a *asker) without(seen *seen, args []string) error {
	one, err := seen.one()
	if err != nil {
		return err
	}
	losses, err := explain.Without(one.snapshot, args)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.json(losses)
	}
	return explain.WriteLosses(a.out, args, losses)
}

func (a *asker) json(answer any) error {
	encoder := json.NewEncoder(a.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(answer)
}
