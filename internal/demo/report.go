package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

// values is the part of Terraform's JSON output that the demo reads.
type values struct {
	RootModule struct {
		Resources []struct {
			Mode   string          `json:"mode"`
			Type   string          `json:"type"`
			Values json.RawMessage `json:"values"`
		} `json:"resources"`
	} `json:"root_module"`
}

// snapshot is the training jobs of a plan or a state, by name.
type snapshot []job

type job struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Framework string `json:"framework"`
	Mode      string `json:"mode"`
	Status    string `json:"status"`
	// Cluster is the member cluster of a job of a fleet, PlannedCluster the one of its plan.
	Cluster        string   `json:"cluster"`
	PlannedCluster string   `json:"planned_cluster"`
	PoolNames      []string `json:"pool_names"`
	// PlannedLines is the placement as Terraform shows it.
	PlannedLines map[string]string `json:"planned_placement"`
	AsPlanned    *bool             `json:"placement_as_planned"`

	// planned and actual are the same placements, wiring is the link graph of the first pool.
	planned, actual []assignment.Model
	wiring          string
}

// course is what the data source says of a job.
type course struct {
	ID    string            `json:"id"`
	Lines map[string]string `json:"placement"`
}

type pool struct {
	Name     string `json:"name"`
	Capacity struct {
		Wiring string `json:"wiring"`
	} `json:"capacity"`
}

func (v values) snapshot() (snapshot, error) {
	var jobs snapshot
	wirings := map[string]string{}
	actual := map[string][]assignment.Model{}
	for _, r := range v.RootModule.Resources {
		var err error
		switch r.Mode + " " + r.Type {
		case "data gpuplan_training_job":
			var c course
			if err = json.Unmarshal(r.Values, &c); err == nil {
				actual[c.ID], err = assignment.From(c.Lines)
			}
		case "managed gpuplan_node_pool":
			var p pool
			err = json.Unmarshal(r.Values, &p)
			wirings[p.Name] = p.Capacity.Wiring
		case "managed gpuplan_training_job":
			var j job
			if err = json.Unmarshal(r.Values, &j); err == nil {
				j.planned, err = assignment.From(j.PlannedLines)
			}
			inCluster(j.PlannedCluster, j.planned)
			jobs = append(jobs, j)
		}
		if err != nil {
			return nil, fmt.Errorf("read a %s from Terraform's output: %w", r.Type, err)
		}
	}
	for i, j := range jobs {
		jobs[i].actual = actual[j.ID]
		if len(j.PoolNames) > 0 {
			jobs[i].wiring = wirings[j.PoolNames[0]]
		}
	}
	sort.Slice(jobs, func(a, b int) bool { return jobs[a].Name < jobs[b].Name })
	return jobs, nil
}

// inCluster has the nodes of a placement say in which member cluster of a fleet they are, "" for none.
func inCluster(cluster string, placement []assignment.Model) {
	for i := range placement {
		placement[i].Node = path.Join(cluster, placement[i].Node)
	}
}

func reportPlan(w io.Writer, plan snapshot) {
	fmt.Fprintf(w, "\nWhat terraform plan promises\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  JOB\tMEMBER\tNODE\tGPUS\tRING")
	for _, j := range plan {
		for _, m := range j.planned {
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", j.Name, m.Member, m.Node, gpus(m), ring(m))
		}
		if len(j.planned) == 0 {
			fmt.Fprintf(table, "  %s\t\talready running: nothing to plan\t\t\n", j.Name)
		}
	}
	_ = table.Flush() // the same writer as everything else here
	fmt.Fprintln(w)
}

func gpus(m assignment.Model) string {
	if len(m.GPUs) == 0 {
		return "device plugin's choice"
	}
	return assignment.Ranges(m.GPUs)
}

func ring(m assignment.Model) string {
	switch {
	case m.RingGBps == 0:
		return "-"
	case len(m.GPUs) == 0:
		return fmt.Sprintf("%g GB/s guaranteed", m.RingGBps)
	case m.NVLinkRings == 0:
		return fmt.Sprintf("%g GB/s over PCIe", m.RingGBps)
	case m.NVLinkRings == 1:
		return fmt.Sprintf("%g GB/s, 1 NVLink ring", m.RingGBps)
	}
	return fmt.Sprintf("%g GB/s, %d edge-disjoint NVLink rings", m.RingGBps, m.NVLinkRings)
}

// reportState shows where every member runs, and fails when the scheduler did
// not keep the plan's promise.
func reportState(w io.Writer, state snapshot) error {
	fmt.Fprintf(w, "\nWhere every member runs\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  JOB\tSTATUS\tMEMBER\tNODE\tGPUS\tRING\tAS PLANNED")
	var broken []string
	for _, j := range state {
		asPlanned := "not compared"
		if j.AsPlanned != nil {
			asPlanned = "yes"
			if !*j.AsPlanned {
				asPlanned = "NO"
				broken = append(broken, j.Name)
			}
		}
		for _, m := range j.actual {
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", j.Name, j.Status, m.Member, m.Node, gpus(m), ring(m), asPlanned)
		}
	}
	_ = table.Flush()
	if err := drawJobs(w, state); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("placed differently from the plan: %s; if something else took GPUs between plan and apply, run the demo again, otherwise this is a bug", strings.Join(broken, ", "))
	}
	return nil
}

// platformStatus is what `gpuplan-local status -o json` says.
type platformStatus struct {
	ReadySeconds float64 `json:"readySeconds"`
	MemoryBytes  int64   `json:"memoryBytes"`
	Kubeconfig   string  `json:"kubeconfig"`
}

// reportNumbers prints what the platform costs, and what to try next.
func (d demo) reportNumbers() error {
	raw, err := d.local("status", "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("ask the local platform for its status: %w", err)
	}
	var status platformStatus
	if err := json.Unmarshal(raw, &status); err != nil {
		return fmt.Errorf("read the local platform's status: %w", err)
	}
	fmt.Fprintf(d.out, "\nThe platform was ready in %.1f s and uses %d MiB.\n\nPrograms\n", status.ReadySeconds, status.MemoryBytes>>20)
	for _, name := range d.programs() {
		info, err := os.Stat(filepath.Join(d.root, "bin", name))
		if err != nil {
			return fmt.Errorf("measure bin/%s: %w", name, err)
		}
		fmt.Fprintf(d.out, "  %-28s %4.0f MiB\n", name, float64(info.Size())/(1<<20))
	}
	next := tryNext
	if d.fleet {
		next = tryNextInFleet
	}
	fmt.Fprintf(d.out, next, d.shellFile(), d.dir(), d.target(), d.downCommand())
	return nil
}

const tryNext = `
Try next
  source %[1]s
      sets your shell up for the platform: kubectl and terraform work
  kubectl get gpunodes; kubectl get pods -o wide
      what the node agent published, and where everything runs
  kubectl gpuplan map; kubectl gpuplan gangs; kubectl gpuplan without NODE
      who has which GPU, how every gang stands, and who would lose a place without a node
  cd %[2]s
      the demo's copy of the example, with its state; make %[3]s and make %[3]s-down keep what you change there
  kubectl label node NODE ack.node.gpu.schedule=default --overwrite; terraform plan; terraform apply
      drift of a node: named by the plan, repaired by apply
  sed -i '0,/replicas = 4/s//replicas = 20/' main.tf; terraform plan
      a gang that does not fit: how many do, why, and the nearest fix
  %[4]s
      destroys the example and stops the platform
`

const tryNextInFleet = `
Try next
  source %[1]s
      sets your shell up for the hub: kubectl and terraform work
  kubectl get pytorchjob; kubectl get queueunits -o wide; kubectl describe pytorchjob pytorch-test
      the jobs of the fleet, the queue of the hub, and in the events where the hub has sent a job
  cd %[2]s
      the demo's copy of the example, with its state; make %[3]s and make %[3]s-down keep what you change there
  terraform output; terraform state show gpuplan_training_job.test
      the cluster of each job, its GPUs, and whether they are those of the plan
  sed -i '0,/gpus = 2/s//gpus = 8/' main.tf; terraform plan
      a gang that fits into no cluster: what each of them lacks
  %[4]s
      destroys the example and stops the platform
`
