// Package inventory translates Kubernetes objects into the planner's terms: Nodes
// and GPUNodes into nodes with GPUs, bound Pods into consumers, the pods of a job
// into a gang, and an ElasticQuotaTree into a quota tree. It remembers nothing and
// decides nothing: whoever has the same objects gets the same gang.
package inventory
