package placement

// Role is a group of members with the same shape.
type Role struct {
	// Name is the role, "master", "worker", "launcher".
	Name string
	// Members are the names of the members in order, unique within the gang.
	Members []string
	Request Request
	// Late marks members that are created after the others run (an MPI launcher):
	// they are no part of the gang's minimum and are not planned.
	Late         bool
	NodeSelector map[string]string
	// Affinity are alternatives: a node must meet all requirements of one of them. nil allows all.
	Affinity [][]Requirement
	// Volumes is what a node must meet to reach the volumes that members have, as Affinity.
	Volumes [][]Requirement
	// Devices is what a node must meet to reach the devices that members' resource claims have been given, as Affinity.
	Devices [][]Requirement
	// Mounts is what filters of others look at beside what is said here: kinds of volumes and of
	// resource claims, and features of kubelets. What such a filter says of one member holds for those with the same.
	Mounts      []string
	Tolerations []Toleration
	// Pools restricts the nodes to these pools; nil allows all.
	Pools []string
	// MaxPerNode is the most members of this role that one node may run, running ones
	// included; 1 keeps them apart (anti-affinity by host name), 0 sets no limit.
	MaxPerNode int
	// Apart keeps members apart whatever their role: a node runs one member at most of
	// all the roles with one value of it (anti-affinity by host name that selects several
	// roles); "" for none.
	Apart string
	// NodeLimits are the most members of this role that the planner may put on a node, beside
	// those that run there: what filters of others let it take, 0 for a node that is refused.
	NodeLimits map[string]int
	// LimitedOnly refuses the nodes that NodeLimits does not name.
	LimitedOnly bool
	// Labels are what selectors of [Selector] find the members by.
	Labels map[string]string
	// Neighbors and Spreads are rules about the pods beside which the members run.
	Neighbors []Neighbor
	Spreads   []TopologySpread
	// Preferred are wishes for nodes. They go before fewer nodes and faster rings.
	Preferred []Preference
}

// Domain is a network domain that node labels describe: nodes with one value of
// Label are close to each other.
type Domain struct {
	// Label is a node label such as "topology.kubernetes.io/zone"; "kubernetes.io/hostname"
	// makes each node a domain.
	Label string
	// Required means that all members must be in one domain; otherwise it is preferred.
	Required bool
}
