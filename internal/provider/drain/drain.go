package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// again is the time between two looks at pods that are on their way, and at what does not let them go.
const again = time.Second

// atOnce is how many pods are asked to leave at a time.
const atOnce = 32

// drain takes the pods from nodes.
type drain struct {
	client *kube.Client
	nodes  []string
	// force evicts pods that nobody makes again, too.
	force bool
	say   func(format string, args ...any)

	// waits is why pods have not left yet, by the name of their group.
	waits map[string]string
	left  int
}

// run cordons the nodes and evicts their pods. It returns when these have gone, or with an error that says
// what stays and why.
func (d *drain) run(ctx context.Context) error {
	o, err := clusterlist.Read(ctx, d.client)
	if err != nil {
		return err
	}
	if err := d.refuseBare(departuresOf(o, d.nodes)); err != nil {
		return err
	}
	if err := d.cordon(ctx, o.Nodes); err != nil {
		return err
	}
	d.waits = map[string]string{}
	for {
		if o, err = clusterlist.Read(ctx, d.client); err != nil {
			return d.cut(ctx, err)
		}
		now := departuresOf(o, d.nodes)
		if len(now.groups)+len(now.leaving) == 0 {
			d.report(now)
			return nil
		}
		if err := d.refuseBare(now); err != nil {
			return err
		}
		if err := d.empty(ctx, now); err != nil {
			return d.cut(ctx, err)
		}
	}
}

// refuseBare refuses to evict pods that nobody makes again.
func (d *drain) refuseBare(now departures) error {
	if bare := now.bare(); len(bare) > 0 && !d.force {
		return fmt.Errorf("nobody makes these pods again, because no controller has made them: %s; move them, or evict them as well with force = true", namesOf(bare))
	}
	return nil
}

// cordon keeps pods from the nodes.
func (d *drain) cordon(ctx context.Context, live []corev1.Node) error {
	for _, name := range d.nodes {
		i := slices.IndexFunc(live, func(n corev1.Node) bool { return n.Name == name })
		if i < 0 {
			return fmt.Errorf("the cluster has no node %s", name)
		}
		if live[i].Spec.Unschedulable {
			continue
		}
		_, err := d.client.Typed.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`),
			metav1.PatchOptions{FieldManager: contract.FieldManager})
		if err != nil {
			return fmt.Errorf("cordon node %s: %w", name, err)
		}
		d.say("Node %s is cordoned.", name)
	}
	return nil
}

// empty evicts groups of pods as soon as each may leave as a whole, and waits until they, and those that leave already,
// have gone. Pods that are made again in their place it leaves alone.
func (d *drain) empty(ctx context.Context, now departures) error {
	leaving, staying := now.leaving, now.groups
	for _, p := range leaving {
		d.waits["pod "+nameOf(p)] = "it is being deleted"
	}
	for {
		budgets, err := d.budgets(ctx, staying)
		if err != nil {
			return err
		}
		var rest []group
		for _, g := range staying {
			asked, kept, err := d.evict(ctx, g, budgets)
			if err != nil {
				return err
			}
			leaving = append(leaving, asked...)
			if len(kept.pods) > 0 {
				rest = append(rest, kept)
			}
		}
		staying = rest
		if leaving, err = d.present(ctx, leaving); err != nil {
			return err
		}
		if len(leaving)+len(staying) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(again):
		}
	}
}

// budgets lists the disruption budgets of the groups' namespaces.
func (d *drain) budgets(ctx context.Context, groups []group) (all []policyv1.PodDisruptionBudget, err error) {
	seen := map[string]bool{}
	for _, g := range groups {
		namespace := g.pods[0].Namespace
		if seen[namespace] {
			continue
		}
		seen[namespace] = true
		list, err := d.client.Typed.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			continue // the API server keeps to them pod by pod
		}
		if err != nil {
			return nil, fmt.Errorf("list the disruption budgets of namespace %s: %w", namespace, err)
		}
		all = append(all, list.Items...)
	}
	return all, nil
}

// evict evicts the pods of a group where all of them may leave, and returns those that were evicted, and the rest of the group.
func (d *drain) evict(ctx context.Context, g group, budgets []policyv1.PodDisruptionBudget) (evicted []*corev1.Pod, kept group, err error) {
	why := forbids(budgets, g.pods)
	for i := 0; why == "" && i < len(g.pods); i++ {
		if _, why, err = d.request(ctx, g.pods[i], metav1.DryRunAll); err != nil {
			return nil, g, err
		}
	}
	if why != "" {
		d.wait(g, why)
		return nil, g, nil
	}
	delete(d.waits, g.String())
	d.say("Evicting %s from %s.", g, strings.Join(nodesOf(g.pods), ", "))
	answers := d.ask(ctx, g.pods)
	kept.gang = g.gang
	for i, p := range g.pods {
		switch a := answers[i]; {
		case a.err != nil:
			err = cmp.Or(err, a.err)
			kept.pods = append(kept.pods, p)
		case a.refused != "": // someone else has used the disruption meanwhile
			kept.pods = append(kept.pods, p)
			d.wait(kept, a.refused)
		case !a.gone:
			evicted = append(evicted, p)
			d.left++
			d.waits["pod "+nameOf(p)] = "it was evicted and has not ended yet"
		}
	}
	return evicted, kept, err
}

// answer is what the API server says to an eviction.
type answer struct {
	gone    bool
	refused string
	err     error
}

// ask asks for the eviction of pods, of many at once: a member of a gang that was made again before the last of the others
// is being deleted would be placed beside those, and not with what is made again of them.
func (d *drain) ask(ctx context.Context, pods []*corev1.Pod) []answer {
	answers := make([]answer, len(pods))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), atOnce, len(pods), func(i int) {
		answers[i].gone, answers[i].refused, answers[i].err = d.request(ctx, pods[i])
	})
	return answers
}

// wait notes why a group stays, and says what is new.
func (d *drain) wait(g group, why string) {
	if name := g.String(); d.waits[name] != why {
		d.waits[name] = why
		d.say("Waiting with %s: %s.", g, why)
	}
}

// request asks the API server to evict exactly this pod. gone means that it is not there any more; refused says why it
// cannot leave now.
func (d *drain) request(ctx context.Context, p *corev1.Pod, dryRun ...string) (gone bool, refused string, err error) {
	uid := p.UID
	err = d.client.Typed.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: dryRun},
	})
	switch {
	case err == nil:
		return false, "", nil
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return true, "", nil
	case apierrors.IsTooManyRequests(err):
		return false, causeOf(err), nil
	}
	return false, "", fmt.Errorf("evict pod %s: %w", nameOf(p), err)
}

// causeOf is what the API server says of a disruption budget that does not let a pod go.
func causeOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause && cause.Message != "" {
				return cause.Message
			}
		}
	}
	return strings.TrimSuffix(err.Error(), ".")
}

// present keeps the pods that are still there.
func (d *drain) present(ctx context.Context, pods []*corev1.Pod) (still []*corev1.Pod, err error) {
	for _, p := range pods {
		live, err := d.client.Typed.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && (live.UID != p.UID || live.Status.Phase == corev1.PodSucceeded || live.Status.Phase == corev1.PodFailed):
			delete(d.waits, "pod "+nameOf(p))
		case err != nil:
			return nil, fmt.Errorf("look at pod %s: %w", nameOf(p), err)
		default:
			still = append(still, p)
		}
	}
	return still, nil
}

// report says what was done, and what stays on the nodes.
func (d *drain) report(now departures) {
	stays := ""
	if len(now.pinned) > 0 {
		stays = fmt.Sprintf(" Pods of DaemonSets and static pods stay: %s.", namesOf(now.pinned))
	}
	d.say("Drained %s: %s left.%s The nodes stay cordoned; %s lets pods on them again.", strings.Join(d.nodes, ", "), count(d.left, "pod"), stays, d.uncordon())
}

func (d *drain) uncordon() string { return "`kubectl uncordon " + strings.Join(d.nodes, " ") + "`" }

// cut is the error of a drain that does not come to its end.
func (d *drain) cut(ctx context.Context, err error) error {
	var parts []string
	for name, why := range d.waits {
		parts = append(parts, name+" ("+why+")")
	}
	slices.Sort(parts)
	stays := ""
	if len(parts) > 0 {
		stays = " These stay: " + strings.Join(parts, "; ") + "."
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = errors.New("the time is over, and pods are still on the nodes")
	case ctx.Err() != nil:
		err = errors.New("it was interrupted")
	}
	return fmt.Errorf("%w.%s The nodes stay cordoned, and what was evicted is gone: invoke the action again to go on, or give up with %s", err, stays, d.uncordon())
}

func nodesOf(pods []*corev1.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Spec.NodeName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
