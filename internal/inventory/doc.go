// Package inventory translates Kubernetes objects into the planner's terms: Nodes
// and GPUNodes into nodes with GPUs, bound Pods into consumers, the pods of a job
// into a gang, and an ElasticQuotaTree into a quota tree. It decides nothing: the
// scheduler, which follows a cluster with [Cache], and the provider, which takes a
// [Snapshot], get the same gang from the same pods.
package inventory
