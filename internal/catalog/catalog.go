// Package catalog knows the GPU instance types of Alibaba Cloud, the wirings of
// their machines, the modes in which a node offers its GPUs, regions, and the
// versions that features need.
//
// The facts are data: JSON files embedded into the program, one fact per row with
// the source and the date it was taken. The package does no I/O and knows neither
// Kubernetes nor the cloud's API; the tables are parsed once, on first use, and
// never change afterwards.
package catalog

import (
	"embed"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

//go:embed data/*.json wirings/*.json
var files embed.FS

// InstanceType is one ECS instance type with GPUs.
type InstanceType struct {
	// Name is the full name, "ecs.gn6v-c10g1.20xlarge"; Family the instance family, "ecs.gn6v".
	Name   string `json:"name"`
	Family string `json:"family"`
	// VCPU counts virtual CPUs, MemoryGiB is main memory in GiB.
	VCPU      int     `json:"vcpu"`
	MemoryGiB float64 `json:"memory_gib"`
	// GPUs counts the GPUs.
	GPUs int `json:"gpus"`
	// GPUModel is the product name of the GPUs, GPUMemoryGiB their size as the vendor
	// sells it, GPUMemoryMiB the total that the driver reports.
	GPUModel     string `json:"-"`
	GPUMemoryGiB int    `json:"-"`
	GPUMemoryMiB int64  `json:"-"`
	// Wiring is the link graph of the machine for [Wiring]: the name of a wiring, or for
	// a slice of a machine "name:GPU,GPU,…".
	Wiring string `json:"wiring"`
	// PCIeGeneration replaces the generation of the wiring when it is not 0.
	PCIeGeneration int `json:"pcie_generation"`
	// NetworkGbps is the base network bandwidth in Gbit/s, 0 when not documented.
	NetworkGbps float64 `json:"network_gbps"`
	// ERDMADevices counts eRDMA devices, ERDMAGbps their bandwidth in Gbit/s, 0 when not documented.
	ERDMADevices int     `json:"erdma_devices"`
	ERDMAGbps    float64 `json:"erdma_gbps"`
	// Source and Date say where and when the row was taken, Note what is inferred in it.
	Source string `json:"source"`
	Date   string `json:"date"`
	Note   string `json:"note"`

	// NoMIG means that the GPUs are known to have no MIG: they are of an architecture, or a
	// model, that NVIDIA's MIG User Guide does not list ("Supported GPUs").
	NoMIG bool `json:"-"`
	// GPU is the key of the row in gpus.json.
	GPU string `json:"gpu"`
}

type gpuSpec struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	MemoryGiB int    `json:"memory_gib"`
	MemoryMiB int64  `json:"memory_mib"`
	NoMIG     bool   `json:"no_mig"`
	Source    string `json:"source"`
	Date      string `json:"date"`
}

type tables struct {
	types      map[string]InstanceType
	typeNames  []string
	incomplete []string
	wirings    map[string]gpu.Machine
	modes      []Mode
	regions    []Region
	gates      []Gate
}

// load parses the embedded files. They are part of the program and covered by its
// tests, so that a fault in them is a fault of the build, not of the caller.
var load = sync.OnceValue(func() *tables {
	t, err := parse()
	if err != nil {
		panic("catalog: " + err.Error())
	}
	return t
})

func parse() (*tables, error) {
	var data struct {
		InstanceTypes      []InstanceType `json:"instance_types"`
		IncompleteFamilies []string       `json:"incomplete_families"`
		GPUs               []gpuSpec      `json:"gpus"`
		Modes              []Mode         `json:"modes"`
		Regions            []Region       `json:"regions"`
		Gates              []Gate         `json:"gates"`
	}
	for _, name := range []string{"instance_types", "gpus", "modes", "regions", "gates"} {
		raw, err := files.ReadFile("data/" + name + ".json")
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &data); err != nil {
			return nil, fmt.Errorf("%s.json: %w", name, err)
		}
	}
	t := &tables{
		types:      map[string]InstanceType{},
		incomplete: data.IncompleteFamilies,
		modes:      data.Modes,
		regions:    data.Regions,
		gates:      data.Gates,
	}
	gpus := map[string]gpuSpec{}
	for _, c := range data.GPUs {
		gpus[c.ID] = c
	}
	for _, it := range data.InstanceTypes {
		c, ok := gpus[it.GPU]
		if !ok {
			return nil, fmt.Errorf("instance type %s names the unknown GPU %q", it.Name, it.GPU)
		}
		it.GPUModel, it.GPUMemoryGiB, it.GPUMemoryMiB, it.NoMIG = c.Name, c.MemoryGiB, c.MemoryMiB, c.NoMIG
		t.types[it.Name] = it
		t.typeNames = append(t.typeNames, it.Name)
	}
	sort.Strings(t.typeNames)
	var err error
	t.wirings, err = parseWirings()
	return t, err
}

// MaxPoolSize is the largest number of nodes of one node pool.
const MaxPoolSize = 2000

// Lookup returns an instance type by its full name.
func Lookup(name string) (InstanceType, bool) {
	it, ok := load().types[name]
	return it, ok
}

// InstanceTypes returns all instance types, sorted by name.
func InstanceTypes() []InstanceType {
	t := load()
	all := make([]InstanceType, len(t.typeNames))
	for i, name := range t.typeNames {
		all[i] = t.types[name]
	}
	return all
}

// Incomplete reports whether the name belongs to a family of GPU instances that
// exists, but whose sizes are not in the catalogue: the type is unknown here, not wrong.
func Incomplete(name string) bool {
	for _, family := range load().incomplete {
		if strings.HasPrefix(name, family+".") || strings.HasPrefix(name, family+"-") {
			return true
		}
	}
	return false
}
