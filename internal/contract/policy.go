package contract

// Policies that send objects of a fleet to its member clusters. ACK One's Fleet has Karmada's under a group of its own, with
// fields that Karmada lacks.
const (
	ACKPolicyGroup            = "policy.one.alibabacloud.com"
	KarmadaPolicyGroup        = "policy.karmada.io"
	PropagationPolicyKind     = "PropagationPolicy"
	PropagationPolicyResource = "propagationpolicies"

	ClusterPropagationPolicyResource = "clusterpropagationpolicies"
)
