package preflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Members are the clusters of a fleet to which a job may go, by their names, and how it gets there.
type Members struct {
	Hub     *kube.Client
	Clients map[string]*kube.Client
	// Policy is the name of the one that sends the job, Dependencies whether it sends what the job refers to as well.
	Policy       string
	Dependencies bool
}

// named is something that the pods of a job name and a cluster does not have.
type named struct{ attribute, kind, name string }

// InMembers says what the pods of a job of a fleet name and clusters do not have to which the job may go, nor get from the hub; unknown
// claims are left out.
func InMembers(ctx context.Context, of Members, spec job.Spec, unknownClaim string) (findings []Finding) {
	unmet := map[named][]string{}
	for _, name := range slices.Sorted(maps.Keys(of.Clients)) {
		c := &check{Client: of.Clients[name], ctx: ctx, spec: spec, unknownClaim: unknownClaim, members: &of}
		c.names()
		for volume, v := range spec.Volumes {
			c.present(volume, v)
		}
		for what := range c.unmet {
			unmet[what] = append(unmet[what], name)
		}
	}
	byName := func(a, b named) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name)) }
	for _, what := range slices.SortedFunc(maps.Keys(unmet), byName) {
		advice := "Create it there, or have the policy keep the job from there."
		if of.sends(spec) && of.hubHas(ctx, spec, what) {
			advice = fmt.Sprintf("The hub has it: with propagate_deps = true policy %s sends it along.", of.Policy)
		}
		findings = append(findings, Finding{Warning: true, Attribute: what.attribute, Summary: what.kind + " does not exist in a member cluster", Detail: fmt.Sprintf(
			"Job %s needs the %s %s, which these member clusters do not have now: %s. The job does not run there before it is there. %s", spec.ID(), what.kind, what.name, strings.Join(unmet[what], ", "), advice)})
	}
	return findings
}

// arrives reports whether a member cluster that lacks something gets it from the hub before the job: its namespace, and what the policy
// sends along.
func (m *Members) arrives(ctx context.Context, spec job.Spec, what named) bool {
	if what.attribute == namespace {
		ns, err := m.Hub.Typed.CoreV1().Namespaces().Get(ctx, spec.Namespace, metav1.GetOptions{})
		return err != nil || ns.Labels[contract.KarmadaSkipsNamespaceLabel] != "true" // without it on the hub the job is not created, which is said
	}
	return m.Dependencies && m.sends(spec) && m.hubHas(ctx, spec, what)
}

// sends reports whether Karmada knows what jobs of the kind refer to.
// https://github.com/karmada-io/karmada/tree/v1.17.1/pkg/resourceinterpreter/default
func (m *Members) sends(spec job.Spec) bool {
	return spec.Framework == job.PyTorch || spec.Framework == job.Batch
}

// hubHas reports whether the hub has something that it can send along with a job.
func (m *Members) hubHas(ctx context.Context, spec job.Spec, what named) bool {
	core, err := m.Hub.Typed.CoreV1(), error(nil)
	switch _, name, _ := strings.Cut(what.name, "/"); what.kind {
	case "ServiceAccount":
		_, err = core.ServiceAccounts(spec.Namespace).Get(ctx, name, metav1.GetOptions{})
	case "Secret":
		_, err = core.Secrets(spec.Namespace).Get(ctx, name, metav1.GetOptions{})
	case "PersistentVolumeClaim":
		_, err = core.PersistentVolumeClaims(spec.Namespace).Get(ctx, name, metav1.GetOptions{})
	default:
		return false
	}
	return err == nil
}
