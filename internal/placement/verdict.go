package placement

import (
	"fmt"
	"strings"
)

// Verdict says whether a gang fits, or why not and what would help.
type Verdict struct {
	Fits bool
	Gang string
	// Asked is the number of members that must run together.
	Asked int
	// Fit is how many of them fit at once, which Partial shows. Of an elastic gang that fits it
	// counts members beyond those as well.
	Fit int
	// Members is how many members an elastic gang that fits has.
	Members int
	// Reasons are the constraints that stop the next member, the most common first.
	Reasons []Reason
	// Next is the first member without a place, and Asks what it asks for in words; ""
	// when only the quota tree stops it.
	Next, Asks string
	// Partial is the best placement of the Fit members.
	Partial []Assignment
	// Fixes are the smallest changes that make the whole gang fit, the nearest first.
	Fixes []Fix
	// ReservedBy is the gang whose reservation keeps this one from a place, "" for none.
	ReservedBy string
	// NotAsPlanned says why the gang cannot have the place of [Gang.Planned], "" when it has it
	// or has none, and for members beyond those that it names, once others run.
	NotAsPlanned string
}

// Code names a constraint.
type Code string

// Codes of reasons.
const (
	NoNodes           Code = "NoNodes"           // no node is left to look at
	NotEnoughGPUs     Code = "NotEnoughGPUs"     // free whole GPUs
	NotEnoughShare    Code = "NotEnoughShare"    // memory or core percentage of one GPU
	SickGPUs          Code = "SickGPUs"          // GPUs that would do if they were healthy, and known
	NotEnoughCPU      Code = "NotEnoughCPU"      // millicores
	NotEnoughMemory   Code = "NotEnoughMemory"   // bytes
	NotEnoughPods     Code = "NotEnoughPods"     // pods per node
	NotEnoughOther    Code = "NotEnoughOther"    // extended resource
	WrongMode         Code = "WrongMode"         // node offers its GPUs in another mode
	SelectorMismatch  Code = "SelectorMismatch"  // node selector, affinity or pool
	Untolerated       Code = "Untolerated"       // taint
	NodeUnschedulable Code = "NodeUnschedulable" // cordoned
	HostPortTaken     Code = "HostPortTaken"     // port used on the node
	HostPortShared    Code = "HostPortShared"    // port used on the node by another member of the gang
	Excluded          Code = "Excluded"          // refused by someone else's filter
	OverQuota         Code = "OverQuota"         // limit in the quota tree
	NoSuchLeaf        Code = "NoSuchLeaf"        // quota leaf does not exist
	Mixed             Code = "Mixed"             // memory-only and memory+core on one node
	PerNodeLimit      Code = "PerNodeLimit"      // members of one role per node (anti-affinity)
	OtherDomain       Code = "OtherDomain"       // outside the network domain with the most room
	KeptApart         Code = "KeptApart"         // a pod in the domain that must not be near (anti-affinity)
	NotNear           Code = "NotNear"           // no pod in the domain that must be near (affinity)
	Uneven            Code = "Uneven"            // more pods in the domain than a topology spread allows
	InvalidRequest    Code = "InvalidRequest"    // a request that no node can serve
)

// Reason is one constraint with the number of nodes that it rules out for the next member.
type Reason struct {
	Code  Code
	Nodes int
	// Quota is the path of the node in the quota tree whose limit it is, and Resource what is
	// limited; "" for any other.
	Quota, Resource string
	// Text is one clause without a full stop: "2 nodes have no free GPU (mode topology)".
	Text string
}

// FixKind is what a fix changes.
type FixKind string

// Kinds of fixes.
const (
	FixPoolSize    FixKind = "pool size"
	FixMembers     FixKind = "members"
	FixGPUs        FixKind = "GPUs per member"
	FixCPU         FixKind = "CPU per member"        // thousandths of a core
	FixMemory      FixKind = "memory per member"     // bytes
	FixGPUMemory   FixKind = "GPU memory per member" // GiB
	FixMode        FixKind = "mode"
	FixQuotaMax    FixKind = "quota max"
	FixToleration  FixKind = "toleration"
	FixSelector    FixKind = "node selector"
	FixPort        FixKind = "host port"
	FixUncordon    FixKind = "uncordon"
	FixPreemptible FixKind = "preemptible"
)

// Fix is a change that makes the gang fit: applying it to the view or the gang
// and planning again succeeds.
type Fix struct {
	Kind FixKind
	// Target is the pool, role, or path in the quota tree, or names nodes, with commas between them.
	Target string
	// Resource is the resource of a quota fix.
	Resource string
	// From and To are the values before and after; numbers in decimal.
	From, To string
	// With are further changes that are needed at the same time.
	With []Fix
	// Text is a sentence fragment for all changes: "pool size 3 (now 2) for pool v100".
	Text string
}

// String says the verdict in words, for an event or a plan diagnostic: how many of how many
// fit, why the next does not, and the nearest fix.
func (v Verdict) String() string {
	if v.Fits && v.Members > v.Asked {
		return fmt.Sprintf("%d of %d members fit, and %s needed.", v.Fit, v.Members, numberIs(v.Asked))
	}
	if v.Fits {
		return fmt.Sprintf("%d of %d members fit.", v.Fit, v.Asked)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d members fit: ", v.Fit, v.Asked)
	for i, r := range v.Reasons {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(r.Text)
	}
	switch {
	case v.Next != "" && len(v.Reasons) == 1:
		fmt.Fprintf(&b, " for %s (each member asks for %s)", v.Next, v.Asks)
	case v.Next != "":
		fmt.Fprintf(&b, "; no node is left for %s (each member asks for %s)", v.Next, v.Asks)
	}
	b.WriteByte('.')
	b.WriteString(v.ReservedText())
	if len(v.Fixes) > 0 {
		fmt.Fprintf(&b, " Nearest fix: %s.", v.Fixes[0].Text)
	}
	return b.String()
}

// numberIs is a number with its verb: "1 is", "2 are".
func numberIs(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// ReservedText says, as a further sentence, whose reservation keeps the gang from a place, ""
// when none does.
func (v Verdict) ReservedText() string {
	if v.ReservedBy == "" {
		return ""
	}
	return fmt.Sprintf(" Held back by the reservation of gang %s.", NameOf(v.ReservedBy))
}

// Rejection says which rule keeps a member from a node; detail is the taint, label or mode concerned.
type Rejection struct {
	Code   Code
	Detail string
}
