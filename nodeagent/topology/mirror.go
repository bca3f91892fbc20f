package topology

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
)

// modeTopology is the value of [contract.NodeModeLabel] for which the mirror exists.
const modeTopology = "topology"

// mirror is the last rendering of the ConfigMap, and what it was made from.
type mirror struct {
	gpus       []contract.GPUInfo
	links      []string
	p2p        *contract.P2PInfo
	unreadable bool
	data       map[string]string
}

// writeMirror returns the write that keeps the ConfigMap of a node in mode topology, or
// removes it from others; nil when there is nothing to do.
func (p *publisher) writeMirror(status contract.GPUNodeStatus, mode string, owner metav1.OwnerReference) func(context.Context) error {
	name := contract.TopologyConfigMapPrefix + p.node
	live := p.Nodes.Get(cluster.Mirror, p.node)
	if mode != modeTopology || len(status.GPUs) == 0 {
		if live == nil {
			return nil
		}
		return func(ctx context.Context) error {
			if err := p.Client.Delete(ctx, configMapKind, cluster.MirrorNamespace, name); err != nil {
				return err
			}
			p.Nodes.Deleted(cluster.Mirror, p.node)
			return nil
		}
	}
	data, err := p.mirror.of(status)
	if err != nil {
		return func(context.Context) error { return fmt.Errorf("render the topology of node %s: %w", p.node, err) }
	}
	obj := p.object(configMapKind, cluster.MirrorNamespace, name, []metav1.OwnerReference{owner})
	labels := obj.GetLabels()
	labels[contract.TopologyConfigMapNodeLabel] = p.node
	labels[contract.NodeModeLabel] = modeTopology
	obj.SetLabels(labels)
	if live != nil {
		have, _, _ := unstructured.NestedStringMap(live.Object, "data")
		if has(have, data) && has(live.GetLabels(), labels) && slices.Contains(live.GetOwnerReferences(), owner) {
			return nil
		}
	}
	if err := unstructured.SetNestedStringMap(obj.Object, data, "data"); err != nil {
		return func(context.Context) error { return fmt.Errorf("render the topology of node %s: %w", p.node, err) }
	}
	return func(ctx context.Context) error { return p.apply(ctx, cluster.Mirror, obj) }
}

// of returns the rendering of a status, which is recreated only when that has changed.
func (m *mirror) of(status contract.GPUNodeStatus) (map[string]string, error) {
	unread := unreadable(status) != ""
	if m.data != nil && m.unreadable == unread && reflect.DeepEqual(m.gpus, status.GPUs) && slices.Equal(m.links, status.Links) && reflect.DeepEqual(m.p2p, status.P2P) {
		return m.data, nil
	}
	data, err := mirrorOf(status)
	if err != nil {
		return nil, err
	}
	*m = mirror{gpus: status.GPUs, links: status.Links, p2p: status.P2P, unreadable: unread, data: data}
	return data, nil
}

// mirrorOf renders the data of the ConfigMap that `arena top node` reads: the
// health by GPU index, and as matrices the links and the bandwidth of each pair
// of GPUs in GB/s, both directions together. GPUs that cannot be read are unhealthy.
func mirrorOf(status contract.GPUNodeStatus) (map[string]string, error) {
	machine, err := status.Machine()
	if err != nil {
		return nil, err
	}
	table, err := gpu.NewTable(machine)
	if err != nil {
		return nil, err
	}
	devices := map[string]string{}
	links := make([][]string, len(machine.GPUs))
	bandwidths := make([][]float64, len(machine.GPUs))
	for i := range machine.GPUs {
		health := status.GPUs[i].Health
		if unreadable(status) != "" {
			health = contract.Unhealthy
		}
		devices[strconv.Itoa(status.GPUs[i].Index)] = health
		links[i] = make([]string, len(machine.GPUs))
		bandwidths[i] = make([]float64, len(machine.GPUs))
		for j := range machine.GPUs {
			if i == j {
				links[i][j] = gpu.None.String()
				continue
			}
			links[i][j] = machine.Links[i][j].String()
			bandwidths[i][j] = 2 * table.Ring(gpu.SetOf(i, j)).GBps
		}
	}
	data := map[string]string{}
	for key, value := range map[string]any{"devices": devices, "linkType": links, "bandwidth": bandwidths} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		data[key] = string(text)
	}
	return data, nil
}
