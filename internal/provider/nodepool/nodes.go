package nodepool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
)

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// nodesOf keeps the Kubernetes nodes of a pool.
func nodesOf(snapshot *cluster.Snapshot, poolID string) []*corev1.Node {
	var nodes []*corev1.Node
	for i := range snapshot.Nodes {
		if n := &snapshot.Nodes[i]; n.Labels[contract.NodePoolIDLabel] == poolID {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func names(nodes []*corev1.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}

// wanted returns the labels that the pool gives to its nodes.
func wanted(p capacity.Pool) map[string]string {
	labels := p.OwnLabels()
	maps.Copy(labels, p.Labels)
	return labels
}

// drift says what a node lacks of what its pool gives it, "" when nothing.
func drift(n *corev1.Node, p capacity.Pool) string {
	texts := labelDrift(n.Labels, p)
	for _, t := range p.Taints {
		if !slices.ContainsFunc(n.Spec.Taints, func(live corev1.Taint) bool { return same(live, t) }) {
			texts = append(texts, fmt.Sprintf("taint %s=%s:%s is missing", t.Key, t.Value, t.Effect))
		}
	}
	return strings.Join(texts, "; ")
}

func labelDrift(live map[string]string, p capacity.Pool) []string {
	var texts []string
	want := wanted(p)
	if otherMode(live, p) != "" {
		delete(want, contract.NodeModeLabel)
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		switch value, ok := live[key]; {
		case !ok:
			texts = append(texts, fmt.Sprintf("label %s is missing, should be %s", key, want[key]))
		case value != want[key]:
			texts = append(texts, fmt.Sprintf("label %s is %s, should be %s", key, value, want[key]))
		}
	}
	return texts
}

// recordDrift says what the service's own record of the pool lacks: labels of the
// provider, when it was imported or changed elsewhere, or nodes that did not come.
func recordDrift(record acs.NodePool, p capacity.Pool) string {
	live := map[string]string{}
	for _, l := range record.KubernetesConfig.Labels {
		live[l.Key] = l.Value
	}
	texts := labelDrift(live, capacity.Pool{Name: p.Name, Mode: p.Mode, GPUPolicy: p.GPUPolicy})
	switch size := record.ScalingGroup.DesiredSize; {
	case leaving(record.Status.State):
	case record.Status.State != acs.PoolActive:
		texts = append(texts, fmt.Sprintf("the service is not done with it (%s)", record.Status.State))
	case size != nil && record.Status.Total != *size:
		texts = append(texts, fmt.Sprintf("%s, should be %d", exist(record.Status.Total), *size))
	}
	return strings.Join(texts, "; ")
}

func same(live corev1.Taint, t capacity.Taint) bool {
	return live.Key == t.Key && live.Value == t.Value && string(live.Effect) == t.Effect
}

// converge waits until every node is ready in Kubernetes and carries what the pool
// gives it. A node that the service left as it was is changed directly. Labels and
// taints of before that are not the pool's any more are removed. It returns the nodes as they came.
func converge(ctx context.Context, client *kube.Client, nodeNames []string, before, p capacity.Pool) (came []*corev1.Node, err error) {
	for _, name := range nodeNames {
		say := func(status string) {
			tflog.Info(ctx, fmt.Sprintf("node pool %s: node %s: %s", p.Name, name, status))
		}
		if _, err := client.WaitFor(ctx, nodeKind, "", name, ready, say); err != nil {
			return nil, err
		}
		node, err := bring(ctx, client, name, before, p, say)
		if err != nil {
			return nil, err
		}
		came = append(came, node)
	}
	return came, nil
}

// bring gives a node what its pool gives it, and returns it as it came. What others write meanwhile stays.
func bring(ctx context.Context, client *kube.Client, name string, before, p capacity.Pool, say func(string)) (came *corev1.Node, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if came, err = client.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("read node %s: %w", name, err)
		}
		patch, err := repair(*came, before, p)
		if err != nil || patch == nil {
			return err
		}
		say("the service did not bring it up to date; changing its labels and taints directly")
		if _, err := client.Typed.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: contract.FieldManager}); err != nil {
			return fmt.Errorf("change labels and taints of node %s: %w", name, err)
		}
		return nil
	})
	return came, err
}

// short says of which nodes the cluster has less than the plan has counted with, and of what.
func short(p capacity.Pool, nodes []*corev1.Node) (diags diag.Diagnostics) {
	less := map[string][]string{}
	for _, n := range nodes {
		text, err := p.Short(n)
		if err != nil {
			return nil // whoever places something there says so
		}
		if text != "" {
			less[text] = append(less[text], n.Name)
		}
	}
	if len(less) == 0 {
		return nil
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(less)) {
		parts = append(parts, fmt.Sprintf("%s on %s", text, join(less[text])))
	}
	diags.AddWarning("Nodes offer less than planned", fmt.Sprintf(
		"Nodes of pool %s offer less to pods than is known of instance type %s: %s. Plans count with what the nodes offer from now on, also for nodes that are added to the pool; "+
			"what was planned on them before they came may wait.", p.Name, p.InstanceType, strings.Join(parts, "; ")))
	return diags
}

// ready is done when the node's condition Ready is true.
func ready(obj *unstructured.Unstructured) (bool, string, error) {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, raw := range conditions {
		condition, ok := raw.(map[string]any)
		if !ok || condition["type"] != string(corev1.NodeReady) {
			continue
		}
		if condition["status"] == string(corev1.ConditionTrue) {
			return true, "ready", nil
		}
		return false, fmt.Sprintf("not ready: %v", condition["message"]), nil
	}
	return false, "registered, not ready yet", nil
}

// repair is the merge patch that makes a node what its pool gives it, nil when it is. It leaves a mode alone that no
// label changes. Taints are one list, written whole: the patch is of the node as it was read.
func repair(n corev1.Node, before, p capacity.Pool) ([]byte, error) {
	labels, want := map[string]any{}, wanted(p)
	ofAnother := otherMode(n.Labels, p) != ""
	for key, value := range want {
		if live, ok := n.Labels[key]; (!ok || live != value) && (key != contract.NodeModeLabel || !ofAnother) {
			labels[key] = value
		}
	}
	for key := range wanted(before) {
		if _, keep := want[key]; !keep {
			if _, present := n.Labels[key]; present {
				labels[key] = nil
			}
		}
	}
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(live corev1.Taint) bool {
		isLive := func(t capacity.Taint) bool { return same(live, t) }
		return slices.ContainsFunc(before.Taints, isLive) && !slices.ContainsFunc(p.Taints, isLive)
	})
	for _, t := range p.Taints {
		if !slices.ContainsFunc(taints, func(live corev1.Taint) bool { return same(live, t) }) {
			taints = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
		}
	}
	metadata, patch := map[string]any{}, map[string]any{}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if !slices.Equal(taints, n.Spec.Taints) {
		metadata["resourceVersion"] = n.ResourceVersion
		patch["spec"] = map[string]any{"taints": taints}
	}
	if len(metadata) == 0 {
		return nil, nil
	}
	patch["metadata"] = metadata
	return json.Marshal(patch)
}
