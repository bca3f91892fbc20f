package clustercache

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// published keeps the hardware that node agents have published, equal hardware once.
type published struct {
	mu    sync.Mutex
	known map[string]contract.GPUNodeStatus
	// beats are the last heartbeats, by node.
	beats map[string]beat
}

// beat is a heartbeat as the agent wrote it, and when that was by the clock here.
type beat struct{ written, heard metav1.Time }

// hardwareOf keeps of a GPUNode what is read of it, and equal hardware once. One that
// cannot be read counts as a machine without GPUs.
func (p *published) hardwareOf(object any) (any, error) {
	source, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	hardware := &contract.GPUNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(source.Object, hardware); err != nil {
		klog.Background().Error(err, "Cannot read hardware", "node", source.GetName())
		hardware.Status = contract.GPUNodeStatus{}
	}
	conditions, agent := hardware.Status.Conditions, hardware.Status.Agent
	status, err := p.share(hardware.Status)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", contract.GPUNodeKind, source.GetName(), err)
	}
	if slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionUnknown }) {
		status.Conditions = conditions
	}
	if agent != nil {
		status.Agent = &contract.AgentInfo{Heartbeat: p.heard(source.GetName(), agent.Heartbeat)}
	}
	return &contract.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: source.GetName(), ResourceVersion: source.GetResourceVersion()},
		Status:     status,
	}, nil
}

// heard returns when a heartbeat was written by the clock here, which need not be that of the node: when it was shown first, but
// the first one of a node may be older.
func (p *published) heard(node string, written metav1.Time) metav1.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.beats[node]
	if known && last.written.Equal(&written) {
		return last.heard
	}
	heard := metav1.Now()
	if !known && written.Before(&heard) {
		heard = written
	}
	if p.beats == nil {
		p.beats = map[string]beat{}
	}
	p.beats[node] = beat{written, heard}
	return heard
}

// share returns a status, the same one for equal hardware without unhealthy GPUs, without what nobody
// reads here and what only tells two equal machines apart. Of others it has the GPUs for itself.
func (p *published) share(s contract.GPUNodeStatus) (contract.GPUNodeStatus, error) {
	s.Conditions, s.DriverVersion, s.BootID, s.Agent, s.Sharing = nil, "", "", nil, nil
	s.LockableKiB = 0
	for i, nic := range s.NICs {
		s.NICs[i] = contract.NICInfo{Name: nic.Name, Links: nic.Links}
	}
	for i, device := range s.GPUs {
		s.GPUs[i] = contract.GPUInfo{
			Index: device.Index, MemoryMiB: device.MemoryMiB, NUMANode: device.NUMANode, CPUAffinity: device.CPUAffinity,
			Health: device.Health, Reason: device.Reason, MIG: device.MIG,
		}
	}
	own, sick := s.GPUs, false
	s.GPUs = slices.Clone(own)
	for i, device := range own {
		sick = sick || device.Health != contract.Healthy || device.Reason != ""
		s.GPUs[i].Health, s.GPUs[i].Reason = contract.Healthy, ""
	}
	shared, err := p.wired(s)
	if sick {
		shared.GPUs = own
	}
	return shared, err
}

// wired returns a status all of whose GPUs are healthy, the same one for equal hardware.
func (p *published) wired(s contract.GPUNodeStatus) (contract.GPUNodeStatus, error) {
	key, err := json.Marshal(s)
	if err != nil {
		return s, fmt.Errorf("describe hardware: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.known[string(key)]; ok {
		return known, nil
	}
	if p.known == nil {
		p.known = map[string]contract.GPUNodeStatus{}
	}
	p.known[string(key)] = s
	return s, nil
}
