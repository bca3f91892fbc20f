// Package usage tells Prometheus how much GPUs are used, and by which containers, when it asks.
package usage

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cgroup"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/rdma"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

// Holder is a container that was given a GPU, or a part of one.
type Holder struct {
	Namespace, Pod string
	// UID is that by which the kubelet knows the pod, ContainerID that in the pod's status, "" before the container has started.
	UID         types.UID
	Container   string
	ContainerID string
	// Gang is the pod's gang as namespace/name, "" for none.
	Gang string
	// GPU is the GPU's identity, as [hardware.ID] has it.
	GPU string
	// MemoryLimit, in bytes, and CoresLimit, from 0 to 1, are its part of the GPU; 0 is no limit.
	MemoryLimit, CoresLimit float64
}

// Collector collects for one node. Meter and Node must be set.
type Collector struct {
	Node  string
	Meter hardware.Meter
	// Holders tells who has which GPU, nil when nobody knows.
	Holders func() []Holder
	// Proc is the folder of the node's processes, Sysfs that of its devices.
	Proc, Sysfs string
	// Index returns the index with which a GPU is published, by its identity; nil where that is the driver's.
	Index func(gpu string) (index int, known bool)
	// Limit is how long the driver may take.
	Limit time.Duration

	reads watchdog.Reads[[]hardware.Usage]
}

// metric is how Prometheus knows a quantity.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// labels are the values of labels beside those of the GPU.
	labels []string
}

var ofGPU = []string{"node", "gpu", "uuid"}

func ofGPUs(name, help string, kind prometheus.ValueType, more ...string) metric {
	return metric{desc: prometheus.NewDesc(name, help, append(ofGPU[:3:3], more...), nil), kind: kind}
}

// with is the metric with values of its further labels.
func (m metric) with(labels ...string) metric {
	m.labels = labels
	return m
}

var (
	slowed = ofGPUs("gpuplan_gpu_slowed", "1 while the GPU runs slower than it could for that reason, else 0: power, heat or hardware.", prometheus.GaugeValue, "reason")
	ecc    = ofGPUs("gpuplan_gpu_ecc_errors_total", "Memory errors since the driver was loaded or the GPU was reset, by kind: corrected or uncorrected.", prometheus.CounterValue, "kind")
)

// metrics are those of GPUs.
var metrics = map[hardware.Quantity]metric{
	hardware.Utilization:      ofGPUs("gpuplan_gpu_utilization_ratio", "Part of the driver's last sample period in which a kernel ran, from 0 to 1.", prometheus.GaugeValue),
	hardware.MemoryUsed:       ofGPUs("gpuplan_gpu_memory_used_bytes", "Memory of the GPU in use.", prometheus.GaugeValue),
	hardware.MemoryTotal:      ofGPUs("gpuplan_gpu_memory_total_bytes", "Memory of the GPU.", prometheus.GaugeValue),
	hardware.Power:            ofGPUs("gpuplan_gpu_power_watts", "Power that the GPU draws.", prometheus.GaugeValue),
	hardware.Temperature:      ofGPUs("gpuplan_gpu_temperature_celsius", "Temperature of the GPU.", prometheus.GaugeValue),
	hardware.Clock:            ofGPUs("gpuplan_gpu_clock_hertz", "Clock of the multiprocessors.", prometheus.GaugeValue),
	hardware.SlowedByPower:    slowed.with("power"),
	hardware.SlowedByHeat:     slowed.with("heat"),
	hardware.SlowedByHardware: slowed.with("hardware"),
	hardware.Energy:           ofGPUs("gpuplan_gpu_energy_joules_total", "Energy that the GPU has used since the driver was loaded.", prometheus.CounterValue),
	hardware.ECCCorrected:     ecc.with("corrected"),
	hardware.ECCUncorrected:   ecc.with("uncorrected"),
	hardware.NVLinkReceived:   ofGPUs("gpuplan_gpu_nvlink_received_bytes_total", "Payload that has come over the GPU's NVLinks.", prometheus.CounterValue),
	hardware.NVLinkSent:       ofGPUs("gpuplan_gpu_nvlink_sent_bytes_total", "Payload that has gone over the GPU's NVLinks.", prometheus.CounterValue),
}

func ofContainer(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"node", "gpu", "uuid", "namespace", "pod", "container", "gang"}, nil)
}

func ofPort(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"node", "device", "port"}, nil)
}

var (
	memoryLimit = ofContainer("gpuplan_container_gpu_memory_limit_bytes", "Memory of the GPU that the container was given: its part, or all.")
	coresLimit  = ofContainer("gpuplan_container_gpu_cores_limit_ratio", "Part of the GPU's multiprocessors that the container was given, from 0 to 1.")
	memoryUsed  = ofContainer("gpuplan_container_gpu_memory_used_bytes", "Memory of the GPU that the container's processes have.")
	utilization = ofContainer("gpuplan_container_gpu_utilization_ratio", "Part of the GPU's time that the container's processes used lately, from 0 to 1.")

	portActive = ofPort("gpuplan_rdma_port_active", "1 while the port of the RDMA device is ACTIVE, else 0.")
	received   = ofPort("gpuplan_rdma_received_bytes_total", "Bytes that the port has received.")
	sent       = ofPort("gpuplan_rdma_sent_bytes_total", "Bytes that the port has sent.")
)

// Describe describes nothing: what there is depends on the driver.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect collects what the driver tells in time. While a look does not end there is no other, and nothing to tell.
func (c *Collector) Collect(all chan<- prometheus.Metric) {
	gpus, _ := c.reads.Do(context.Background(), c.Limit, c.Meter.Usage) // that the GPUs cannot be read, others say
	for _, g := range gpus {
		for quantity, value := range g.Values {
			if m, ok := metrics[quantity]; ok {
				all <- prometheus.MustNewConstMetric(m.desc, m.kind, value, append(c.labels(g), m.labels...)...)
			}
		}
	}
	if c.Holders != nil {
		c.collectContainers(gpus, c.Holders(), all)
	}
	c.collectPorts(all)
}

// labels are those of a GPU. Prometheus takes only valid UTF-8, and a GPU may call itself anything.
func (c *Collector) labels(g hardware.Usage) []string {
	index := g.Index
	if c.Index != nil {
		if published, known := c.Index(g.GPU); known {
			index = published
		}
	}
	return []string{c.Node, strconv.Itoa(index), strings.ToValidUTF8(g.GPU, "\uFFFD")}
}

// collectContainers tells what containers may use, and what they do: by their processes, where these can be seen, else of one
// that has its GPU alone.
func (c *Collector) collectContainers(gpus []hardware.Usage, holders []Holder, all chan<- prometheus.Metric) {
	of := map[string]int{}
	for _, h := range holders {
		of[h.GPU]++
	}
	for _, g := range gpus {
		groups := make([]cgroup.Path, len(g.Processes))
		for i, p := range g.Processes {
			groups[i] = cgroup.Of(c.Proc, p.PID)
		}
		for _, h := range holders {
			if h.GPU != g.GPU {
				continue
			}
			tell := func(desc *prometheus.Desc, value float64, known bool) {
				if known {
					all <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append(c.labels(g), h.Namespace, h.Pod, h.Container, h.Gang)...)
				}
			}
			total, known := g.Values[hardware.MemoryTotal]
			if h.MemoryLimit > 0 {
				total, known = h.MemoryLimit, true
			}
			tell(memoryLimit, total, known)
			tell(coresLimit, cmp.Or(h.CoresLimit, 1), true)
			memory, lately, seen := h.processes(g.Processes, groups)
			switch {
			case seen:
				tell(memoryUsed, memory, true)
				known = lately >= 0
				if !known && of[h.GPU] == 1 {
					lately, known = g.Values[hardware.Utilization]
				}
				tell(utilization, lately, known)
			case of[h.GPU] == 1:
				memory, known = g.Values[hardware.MemoryUsed]
				tell(memoryUsed, memory, known)
				lately, known = g.Values[hardware.Utilization]
				tell(utilization, lately, known)
			}
		}
	}
}

// processes are the sums over the processes of a container: the utilization is negative when none tells its own.
func (h Holder) processes(list []hardware.Process, groups []cgroup.Path) (memory, lately float64, seen bool) {
	lately = -1
	for i, p := range list {
		if !groups[i].InPod(h.UID) || !groups[i].InContainer(h.ContainerID) {
			continue
		}
		memory, seen = memory+float64(p.Memory), true
		if p.Utilization >= 0 {
			lately = max(lately, 0) + p.Utilization
		}
	}
	return memory, lately, seen
}

func (c *Collector) collectPorts(all chan<- prometheus.Metric) {
	ports, err := rdma.Ports(c.Sysfs)
	if err != nil {
		return // a node without RDMA devices has none, and one whose sysfs cannot be read tells nothing
	}
	for _, p := range ports {
		labels := []string{c.Node, p.Device, strconv.Itoa(p.Number)}
		active := 0.0
		if p.Active() {
			active = 1
		}
		all <- prometheus.MustNewConstMetric(portActive, prometheus.GaugeValue, active, labels...)
		for desc, bytes := range map[*prometheus.Desc]*float64{received: p.Received, sent: p.Sent} {
			if bytes != nil {
				all <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, *bytes, labels...)
			}
		}
	}
}
