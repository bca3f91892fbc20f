// Package topology publishes the GPUs of a node in the cluster: as a GPUNode
// object, which the planner reads, as a condition of the Node, and as the ConfigMap that
// `arena top node` reads.
package topology

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
)

var (
	nodeKind      = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	gpuNodeKind   = schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
)

// A node may publish a few changes at once, and then one in writeInterval, always the newest. What comes within
// writeGap is published together: when something breaks several GPUs report it.
const (
	writeInterval = 10 * time.Second
	writeBurst    = 6
	writeGap      = time.Second
)

func newLimiter() *rate.Limiter { return rate.NewLimiter(rate.Every(writeInterval), writeBurst) }

// publisher publishes the GPUs of one node. It writes only what has changed, and a
// heartbeat.
type publisher struct {
	*observer
	*Agent
	node    string
	log     *slog.Logger
	writes  *rate.Limiter
	wrote   time.Time
	started metav1.Time
	// said is the last status that was written, but the heartbeat.
	said contract.GPUNodeStatus
	// restored means that what an earlier run had published was taken over; published is the UID of the Node while the
	// GPUNode has been there since, else "".
	restored  bool
	published types.UID
	// yields means that another agent publishes the node.
	yields bool
	mirror mirror
	labels nodeLabels
}

// publish brings the cluster to what was seen. later is how long to wait when too much
// was written already.
func (p *publisher) publish(ctx context.Context) (later time.Duration, err error) {
	if err := p.Nodes.Synced(); err != nil {
		return 0, err
	}
	node := p.Nodes.Get(cluster.Node, p.node)
	if node == nil {
		return 0, fmt.Errorf("%w: %s", errNoNode, p.node)
	}
	live, err := p.live()
	if err != nil {
		return 0, err
	}
	if err := p.remember(ctx, live, node); err != nil {
		return 0, err
	}
	if p.yield(live.Status.Agent) {
		return 0, nil
	}
	status := p.status(live.Status)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: p.node, UID: node.GetUID()}
	writes := p.due(live, status, node, owner)
	if len(writes) == 0 {
		return 0, nil
	}
	now := p.Now()
	if since := now.Sub(p.wrote); 0 <= since && since < writeGap {
		return writeGap - since, nil
	}
	if reservation := p.writes.ReserveN(now, 1); reservation.DelayFrom(now) > 0 {
		later = reservation.DelayFrom(now)
		reservation.CancelAt(now)
		return later, nil
	}
	p.wrote = now
	for _, write := range writes {
		if err := write(ctx); err != nil {
			return 0, err
		}
	}
	p.published = node.GetUID()
	return 0, nil
}

// due lists the writes that bring the cluster to a status.
func (p *publisher) due(live contract.GPUNode, status contract.GPUNodeStatus, node *unstructured.Unstructured, owner metav1.OwnerReference) []func(context.Context) error {
	var writes []func(context.Context) error
	owners := []metav1.OwnerReference{owner}
	if needsReset(status) {
		owners = nil // a machine whose Node is made again has to find it
	}
	have := slices.DeleteFunc(slices.Clone(live.OwnerReferences), func(o metav1.OwnerReference) bool { return o.Kind != owner.Kind })
	if live.UID == "" || !slices.Equal(have, owners) {
		writes = append(writes, func(ctx context.Context) error {
			return p.apply(ctx, cluster.GPUNode, p.object(gpuNodeKind, "", p.node, owners))
		})
	}
	if p.differs(live.Status, status) {
		writes = append(writes, func(ctx context.Context) error {
			if err := p.writeStatus(ctx, status); err != nil {
				return err
			}
			p.said = status
			p.announce(live.Status, status, node)
			return nil
		})
	}
	if write := p.nodeConditions(node, status); write != nil {
		writes = append(writes, write)
	}
	if write := p.writeMirror(status, node.GetLabels()[contract.NodeModeLabel], owner); write != nil {
		writes = append(writes, write)
	}
	if write := p.writeLabels(node); write != nil {
		writes = append(writes, write)
	}
	return writes
}

// live returns the GPUNode as the cluster has it; without one, an empty one.
func (p *publisher) live() (contract.GPUNode, error) {
	var live contract.GPUNode
	obj := p.Nodes.Get(cluster.GPUNode, p.node)
	if obj == nil {
		return live, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &live); err != nil {
		return live, fmt.Errorf("read the published GPUNode %s: %w", p.node, err)
	}
	return live, nil
}

// remember takes over what an earlier run has published. Whoever deletes the GPUNode asks
// to start again: what was held against GPUs, and GPUs that are gone, are forgotten.
func (p *publisher) remember(ctx context.Context, live contract.GPUNode, node *unstructured.Unstructured) error {
	switch {
	case !p.restored:
		p.restored = true
		p.restore(live.Status, p.Boot)
	case live.UID == "" && p.published == node.GetUID():
		stays, err := p.stays(ctx, node)
		if err != nil {
			return err
		}
		if stays {
			p.log.Info("the GPUNode was deleted: starting again with what the driver says")
			p.forget()
		}
	}
	if p.published = ""; live.UID != "" {
		p.published = node.GetUID()
	}
	return nil
}

// stays asks whether a Node is not deleted: the garbage collector deletes what belongs to it, which the agent may learn first.
func (p *publisher) stays(ctx context.Context, node *unstructured.Unstructured) (bool, error) {
	now, err := p.Client.Get(ctx, nodeKind, "", p.node)
	switch {
	case err == nil && now.GetUID() != node.GetUID() || kube.IsNotFound(err):
		return false, fmt.Errorf("%w: %s", errNoNode, p.node) // which the watch has yet to show
	case err != nil:
		return false, err
	}
	return now.GetDeletionTimestamp() == nil, nil
}

// yield tells whether another agent publishes the node: of two that run, the one that
// started later, so that a new one takes over at once and neither writes over the other. One of another boot of the
// machine does not run, whatever its clock said.
func (p *publisher) yield(agent *contract.AgentInfo) bool {
	yields := agent != nil && agent.Instance != p.Instance && !another(agent.BootID, p.Boot) && agent.Beats(p.Now(), contract.HeartbeatLimit) &&
		(p.started.Before(&agent.Started) || p.started.Equal(&agent.Started) && p.Instance < agent.Instance)
	if yields != p.yields {
		if p.yields = yields; yields {
			p.log.Warn("another agent publishes this node, started later: this one only watches", "other", agent.Instance)
		} else {
			p.log.Info("this agent publishes the node again")
		}
	}
	p.Metrics.Yields(p.node, yields)
	return yields
}

// status is what is to be published now, but the heartbeat.
func (p *publisher) status(live contract.GPUNodeStatus) contract.GPUNodeStatus {
	status := live
	if p.verdicts != nil {
		status = statusOf(p.whole, p.verdicts, p.roster.NVLinks)
		status.BootID = p.Boot
		if p.Enforcement != nil {
			sharing := p.Enforcement(p.whole)
			status.Sharing = &sharing
		}
	}
	ready := condition.Next(meta.FindStatusCondition(live.Conditions, contract.ConditionReady), readyCondition(status, p.err, p.Now()))
	status.Conditions = []metav1.Condition{ready} // and nobody else's
	status.Agent = &contract.AgentInfo{Instance: p.Instance, Version: p.Version, BootID: p.Boot, Started: p.started}
	return status
}

// differs tells whether a status has to be written: it is news, or a heartbeat is due. A field that others have
// added, and that the agent does not write, would stay.
func (p *publisher) differs(live, status contract.GPUNodeStatus) bool {
	if live.Agent == nil || !live.Agent.Beats(p.Now(), contract.HeartbeatInterval) {
		return true
	}
	if ready := meta.FindStatusCondition(live.Conditions, contract.ConditionReady); ready != nil {
		live.Conditions = []metav1.Condition{*ready}
	}
	if equality.Semantic.DeepEqual(p.said, status) {
		theirs, ours := reflect.ValueOf(&live).Elem(), reflect.ValueOf(status)
		for i := range ours.NumField() {
			if ours.Field(i).IsZero() {
				theirs.Field(i).SetZero()
			}
		}
	}
	agent := *status.Agent
	agent.Heartbeat = live.Agent.Heartbeat
	status.Agent = &agent
	return !equality.Semantic.DeepEqual(live, status)
}

func (p *publisher) writeStatus(ctx context.Context, status contract.GPUNodeStatus) error {
	agent := *status.Agent
	agent.Heartbeat = metav1.NewTime(p.Now()).Rfc3339Copy()
	status.Agent = &agent
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encode the status of GPUNode %s: %w", p.node, err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	obj.SetGroupVersionKind(gpuNodeKind)
	obj.SetName(p.node)
	if err = p.apply(ctx, cluster.GPUNode, obj, "status"); !apierrors.IsInvalid(err) {
		return err
	}
	// Earlier agents applied conditions of others too, and may own fields of them that the schema requires.
	// What its owner does not send goes, so these are sent, as they are, until another writes them.
	live, err := p.Client.Get(ctx, gpuNodeKind, "", p.node)
	if err != nil {
		return err
	}
	fields["conditions"] = condition.Among(live, status.Conditions[0])
	obj.SetResourceVersion(live.GetResourceVersion())
	return p.apply(ctx, cluster.GPUNode, obj, "status")
}

// apply writes an object as the only writer of its fields, and takes the answer in.
func (p *publisher) apply(ctx context.Context, kind cluster.Kind, obj *unstructured.Unstructured, subresources ...string) error {
	written, err := p.Client.ApplyAs(ctx, contract.NodeAgentName, obj, subresources...)
	if err != nil {
		return err
	}
	p.Nodes.Wrote(kind, written)
	return nil
}

// object returns an object with our labels that goes when its owners go.
func (p *publisher) object(gvk schema.GroupVersionKind, namespace, name string, owners []metav1.OwnerReference) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(gvk)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetLabels(map[string]string{contract.NameLabel: contract.NodeAgentName, contract.PartOfLabel: contract.PartOfValue})
	obj.SetOwnerReferences(owners)
	return obj
}
