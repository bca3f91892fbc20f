// Package explain answers what people ask about gangs and GPUs: why a gang waits and
// what would make it fit ([Why]), which gangs there are ([Gangs]), where everything is
// ([GPUs]), and what would lose its place without some nodes ([Without]).
//
// Every answer is made from a snapshot of the cluster ([clusterstate.Snapshot]) and decides
// nothing: verdicts, places, domain capacities and fixes come from the planner that also runs at
// `terraform plan` and in the scheduler, and in its words. An answer is data that can
// be encoded as JSON; it can print itself for people, and the map of GPUs can be drawn.
//
// Package explain/endpoint serves the answers from a running scheduler, and command
// explain/kubectl-gpuplan gives them from the API server alone.
package explain
