package explain

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/explanation"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// State is how far a gang is.
type State string

// States of a gang.
const (
	Running    State = "Running"    // as many members run as it needs
	Fits       State = "Fits"       // it has a place and is about to get it
	Rejected   State = "Rejected"   // there is room for it, but something else keeps it from starting
	Preempting State = "Preempting" // there is room for it once others have left
	Waiting    State = "Waiting"    // it does not fit
	Queued     State = "Queued"     // it is a job that the job queue holds
	Suspended  State = "Suspended"  // it is a job that is suspended, and in no queue
	Incomplete State = "Incomplete" // members have not appeared
	Unknown    State = "Unknown"    // it is a job in a cluster of a fleet that could not be read
)

// Answer is what there is to say about one gang.
type Answer struct {
	// Gang is "namespace/name"; Pod means that it is a pod on its own. Job is the kind of a job
	// that has no pods, because it is held, or because none have been made.
	Gang string `json:"gang"`
	// Cluster is the cluster of a fleet where it is, "" for a job of a fleet that is in none, and where there is no fleet.
	Cluster string `json:"cluster,omitempty"`
	// onHub means that the hub of a fleet says this, and not a cluster.
	onHub bool
	Pod   bool   `json:"pod,omitempty"`
	Job   string `json:"job,omitempty"`
	// Owner is "namespace/name" of what made a pod on its own, such as a Job, "" for nothing.
	Owner string `json:"owner,omitempty"`
	State State  `json:"state"`
	// Rejections are what keeps it from starting wherever there is room.
	Rejections []string `json:"rejections,omitempty"`
	// Unallocated are the resource claims of its members that are allocated when these are placed.
	Unallocated []string `json:"unallocated,omitempty"`
	// Awaits are the gangs that leave, have to leave, or have to end, before it gets the place or
	// the quota that is to be its.
	Awaits string `json:"awaits,omitempty"`
	// ReservedBy is the gang whose reservation keeps it from a place, or from more members.
	ReservedBy string `json:"reservedBy,omitempty"`
	// Scheduler is set when the gang is another scheduler's: then nothing here is its word.
	Scheduler string `json:"scheduler,omitempty"`
	// Needed is how many members must run together, Running how many do, Missing how
	// many must still appear, Fit how many fit at once, running ones included, and Surplus how
	// many there are beyond those that run or must.
	Needed  int `json:"needed"`
	Running int `json:"running"`
	Missing int `json:"missing"`
	Fit     int `json:"fit"`
	Surplus int `json:"surplus,omitempty"`
	// Barred is what is wrong with the quota tree that governs the gang, "" for nothing.
	Barred string `json:"barred,omitempty"`
	// Roles say what the members ask for.
	Roles    []Role `json:"roles"`
	Priority int32  `json:"priority"`
	// Quota is what the gang's quota leaf limits, and uses.
	Quota []Limit `json:"quota,omitempty"`
	// Verdict is the planner's verdict in one text, as the pods carry it; "" unless it waits.
	Verdict string   `json:"verdict,omitempty"`
	Reasons []Reason `json:"reasons,omitempty"`
	// Domains say for each domain or pool how many of the members fit there.
	Domains []Domain `json:"domains,omitempty"`
	// Places are where its members run; of a gang that fits, where they will; of a gang
	// that waits, also the best places for as many as fit.
	Places []Place `json:"places,omitempty"`
	// SickGPUs are those that its members run on although they must not be used.
	SickGPUs []SickGPU `json:"sickGPUs,omitempty"`
	// Fixes are changes that make the gang fit, the nearest first. Each was planned.
	Fixes []Fix `json:"fixes,omitempty"`
	// Late is set while those wait that start once the members run, though these do: a launcher.
	Late *Late `json:"late,omitempty"`
	// Said is what the scheduler last wrote on the pods, and since when.
	Said  string    `json:"said,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Odd are oddities in the gang's description.
	Odd []string `json:"odd,omitempty"`
}

// Role is members of a gang that ask for the same.
type Role struct {
	Name    string `json:"name"`
	Members int    `json:"members"`
	// Minimum is how many of the role must run, 0 where only the gang as a whole says.
	Minimum int    `json:"minimum,omitempty"`
	Asks    string `json:"asks"`
	// Late members start once the others run.
	Late bool `json:"late,omitempty"`
}

// Limit is one resource of a quota leaf; Min and Max are nil where the tree sets none.
type Limit struct {
	Leaf     string `json:"leaf"`
	Resource string `json:"resource"`
	Used     int64  `json:"used"`
	Min      *int64 `json:"min,omitempty"`
	Max      *int64 `json:"max,omitempty"`
}

// Reason is one constraint with the number of nodes that it rules out.
type Reason struct {
	Code  string `json:"code"`
	Nodes int    `json:"nodes,omitempty"`
	Text  string `json:"text"`
}

// Domain is what one part of the cluster could take of the gang.
type Domain struct {
	Where string `json:"where"`
	Nodes int    `json:"nodes"`
	// FreeGPUs are whole GPUs, FreeGiB is memory of GPUs that are given away in parts.
	FreeGPUs int      `json:"freeGPUs"`
	FreeGiB  int64    `json:"freeGiB,omitempty"`
	Fit      int      `json:"fit"`
	Reasons  []Reason `json:"reasons,omitempty"`
}

// Place is where one member runs or could run.
type Place struct {
	Member string `json:"member"`
	Node   string `json:"node"`
	Runs   bool   `json:"runs"`
	// GPUs are NVML indexes of whole GPUs; empty in mode default, where the device
	// plugin picks.
	GPUs   []int   `json:"gpus,omitempty"`
	Shares []Share `json:"shares,omitempty"`
	// RingGBps is the best ring among the gang's GPUs on the node, in GB/s.
	RingGBps    float64 `json:"ringGBps,omitempty"`
	NVLinkRings int     `json:"nvlinkRings,omitempty"`
}

// Share is a part of one GPU, by NVML index.
type Share struct {
	GPU         int   `json:"gpu"`
	MemoryGiB   int64 `json:"memoryGiB"`
	CorePercent int64 `json:"corePercent,omitempty"`
}

// Fix is a change that makes the gang fit, in a cluster of a fleet if it names one.
type Fix struct {
	Cluster  string `json:"cluster,omitempty"`
	Kind     string `json:"kind"`
	Target   string `json:"target"`
	Resource string `json:"resource,omitempty"`
	From     string `json:"from,omitempty"`
	To       string `json:"to"`
	With     []Fix  `json:"with,omitempty"`
	Text     string `json:"text"`
}

// Find answers for what a name stands for in a namespace: gangs, a pod, or a job, held jobs
// and those without pods included.
func Find(snapshot *clusterstate.Snapshot, around Around, namespace, name string) (answers []Answer) {
	for _, key := range snapshot.Find(namespace, name) {
		if answer, ok := Why(snapshot, around, key); ok {
			answers = append(answers, answer)
		}
	}
	if answers = append(answers, around.find(snapshot, namespace, name)...); len(answers) > 0 {
		return answers
	}
	return around.withoutPods(namespace, name)
}

// Why answers for a gang by its key ([inventory.PlanKey]); ok is false when there is none.
func Why(snapshot *clusterstate.Snapshot, around Around, key string) (answer Answer, ok bool) {
	state, ok := snapshot.Gang(key)
	if !ok || len(state.Pods) == 0 {
		return Answer{}, false
	}
	a := describe(state, key, around)
	a.Quota, a.SickGPUs = limits(snapshot.View.Quota(), state.Gang.Leaf), sickGPUs(snapshot, state.Gang.Running)
	for _, assignment := range state.Gang.Running {
		a.Places = append(a.Places, place(snapshot, assignment, true))
	}
	if a.State == Waiting || a.State == Running && a.Running < members(state.Gang) {
		a.Rejections, a.Unallocated = around.rejections(state), around.unallocated(state)
		a.plan(snapshot, around.confine(snapshot, state))
	}
	if a.Late != nil {
		a.Late.plan(snapshot, around.confine(snapshot, state))
	}
	a.judge()
	return a, true
}

// judge takes back that a gang fits when something else refuses it, or the scheduler says why
// it waits.
func (a *Answer) judge() {
	if a.State == Fits && (len(a.Rejections) > 0 || a.Said != "") {
		a.State = Rejected
	}
}

// plan adds what the planner says about members that do not run.
func (a *Answer) plan(snapshot *clusterstate.Snapshot, g placement.Gang) {
	result := preemption.Plan(snapshot.View, g)
	a.ReservedBy = placement.NameOf(result.Verdict.ReservedBy)
	planned := result.Verdict.Partial
	if result.Placement != nil {
		planned = result.Placement.Assignments
		a.Fit = a.Running + len(planned)
		switch {
		case a.State != Waiting && result.Reservation != nil:
			a.Awaits = await(snapshot, result.Reservation)
		case a.State != Waiting:
		case result.Reservation != nil:
			a.State, a.Awaits = Preempting, await(snapshot, result.Reservation)
		default:
			a.State = Fits
		}
	} else {
		a.Fit = result.Verdict.Fit
	}
	for _, assignment := range planned {
		a.Places = append(a.Places, place(snapshot, assignment, false))
	}
	if a.State == Running && len(planned) == 0 {
		g.Minimum = a.Running + 1
		a.Reasons = reasons(planner.Plan(snapshot.View, g).Verdict.Reasons)
	}
	if a.State != Waiting {
		return
	}
	if r, held := snapshot.View.Reservation(g.ID); held {
		a.Awaits = await(snapshot, &r)
	}
	a.Verdict, a.Reasons = result.Verdict.String(), reasons(result.Verdict.Reasons)
	a.Fixes = fixes(result.Verdict.Fixes)
	for _, r := range explanation.DomainCapacities(snapshot.View, g) {
		a.Domains = append(a.Domains, Domain{Where: r.Where, Nodes: r.Nodes, FreeGPUs: r.GPUs, FreeGiB: r.GiB, Fit: r.Fit, Reasons: reasons(r.Reasons)})
	}
}

// describe says what the gang is and asks for, before anything is planned.
func describe(state inventory.GangState, key string, around Around) Answer {
	g := state.Gang
	a := Answer{Gang: placement.NameOf(g.ID), Pod: strings.Count(key, "/") == 2, Needed: g.Minimum, Running: state.Running, Missing: state.Missing, Priority: g.Priority}
	a.Needed = cmp.Or(a.Needed, members(g))
	a.Surplus = max(members(g)-max(a.Running, a.Needed), 0)
	for _, role := range g.Roles {
		a.Roles = append(a.Roles, Role{Name: role.Name, Members: len(role.Members), Minimum: minimumOf(g, role.Name), Asks: explanation.Words(&role.Request), Late: role.Late})
		for _, name := range role.Members {
			pod := state.Pods[name]
			if pod.Spec.SchedulerName != contract.SchedulerName {
				a.Scheduler = pod.Spec.SchedulerName
			}
			if job := inventory.JobName(pod); a.Pod && job != pod.Name {
				a.Owner = pod.Namespace + "/" + job
			}
			if !role.Late {
				a.listen(pod)
			}
		}
	}
	a.Fit, a.Barred = a.Running, state.Barred
	switch {
	case state.MissingText != "":
		a.State = Incomplete
	case g.Missing() == 0:
		a.State, a.Late = Running, around.late(state)
	default:
		a.State = Waiting
	}
	for _, problem := range state.Problems {
		a.Odd = append(a.Odd, problem.Text)
	}
	return a
}

// minimumOf is how many members of a role must run, with those of its other shapes, 0 for any
// number.
func minimumOf(g placement.Gang, role string) int {
	for _, s := range g.Subgroups {
		if slices.Contains(s.Roles, role) {
			return s.Minimum
		}
	}
	return 0
}

// listen takes in what stands on a pod: the latest words, and since when it waits.
func (a *Answer) listen(pod *corev1.Pod) {
	said, latest, since := saidOn(pod)
	if said == "" {
		return
	}
	if a.Said == "" || latest {
		a.Said = said
	}
	if a.Since.IsZero() || since.Before(a.Since) {
		a.Since = since
	}
}

// saidOn is what the scheduler has written on a pod that waits, whether that has the latest numbers, and since
// when the pod waits; "" when it has written nothing.
func saidOn(pod *corev1.Pod) (said string, latest bool, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			text, others, _ := strings.Cut(c.Message, contract.LatestNumbers)
			return text, others == "", c.LastTransitionTime.Time
		}
	}
	return "", false, time.Time{}
}

// members counts the members that are not late.
func members(g placement.Gang) int {
	n := 0
	for _, role := range g.Roles {
		if !role.Late {
			n += len(role.Members)
		}
	}
	return n
}

// limits reads what a quota leaf limits, nothing when there is no such leaf.
func limits(tree *quota.Tree, leaf string) []Limit {
	if tree == nil || !tree.HasLeaf(leaf) {
		return nil
	}
	used, least, most := tree.Used(leaf), tree.Min(leaf), tree.Max(leaf)
	names := map[string]bool{}
	for name := range least {
		names[name] = true
	}
	for name := range most {
		names[name] = true
	}
	var list []Limit
	for _, name := range slices.Sorted(maps.Keys(names)) {
		l := Limit{Leaf: tree.Path(leaf), Resource: name, Used: used[name]}
		if amount, ok := least[name]; ok {
			l.Min = &amount
		}
		if amount, ok := most[name]; ok {
			l.Max = &amount
		}
		list = append(list, l)
	}
	if running, most := tree.JobsOf(leaf); most > 0 {
		list = append(list, Limit{Leaf: tree.Path(leaf), Resource: quota.Jobs, Used: running, Max: &most})
	}
	return list
}

func place(snapshot *clusterstate.Snapshot, a placement.Assignment, runs bool) Place {
	node, _ := snapshot.View.Node(a.Node)
	p := Place{
		Member: a.Member, Node: a.Node, Runs: runs, GPUs: inventory.Indexes(a.Own, node.GPUs),
		RingGBps: a.Ring.GBps, NVLinkRings: a.Ring.NVLinkRings,
	}
	for _, share := range a.Shares {
		p.Shares = append(p.Shares, Share{GPU: gpuIndex(node, share.GPU), MemoryGiB: share.MemoryGiB, CorePercent: share.CorePercent})
	}
	return p
}

func reasons(in []placement.Reason) []Reason {
	var out []Reason
	for _, r := range in {
		out = append(out, Reason{Code: string(r.Code), Nodes: r.Nodes, Text: r.Text})
	}
	return out
}

func fixes(in []placement.Fix) []Fix {
	var out []Fix
	for _, f := range in {
		out = append(out, Fix{Kind: string(f.Kind), Target: f.Target, Resource: f.Resource, From: f.From, To: f.To, With: fixes(f.With), Text: f.Text})
	}
	return out
}

// Gangs answers for all gangs in short, those that wait first, then by priority and
// name, and held jobs. It says whether each has room, not why not: that takes longer, and the
// scheduler's own words are on the pods.
func Gangs(snapshot *clusterstate.Snapshot, around Around) []Answer {
	var all []Answer
	for _, key := range snapshot.Keys() {
		state, ok := snapshot.Gang(key)
		if !ok || len(state.Pods) == 0 {
			continue
		}
		a := describe(state, key, around)
		a.SickGPUs = sickGPUs(snapshot, state.Gang.Running)
		if a.State == Waiting && planner.Place(snapshot.View, around.confine(snapshot, state)) != nil {
			a.State = Fits
		}
		if a.State != Running {
			a.Rejections = around.rejections(state)
		}
		a.judge()
		all = append(all, a)
	}
	for _, job := range around.jobs {
		all = append(all, job.answer())
	}
	Sort(all)
	return all
}

// Sort puts those first that wait, then by priority, name and cluster.
func Sort(answers []Answer) {
	slices.SortStableFunc(answers, func(a, b Answer) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), -cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Gang, b.Gang), cmp.Compare(a.Cluster, b.Cluster))
	})
}

// rank orders answers by how much there is to ask about them; of those that run, ones that wait for their
// launcher come first.
func (a Answer) rank() int {
	states := []State{Waiting, Preempting, Rejected, Fits, Incomplete, Unknown, Queued, Suspended, Running}
	if a.State == Running && a.Late == nil {
		return len(states)
	}
	return slices.Index(states, a.State)
}
