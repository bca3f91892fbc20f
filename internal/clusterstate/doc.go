// Package clusterstate adds up what a cluster has, one object at a time: it keeps the planner's
// view, the pods of every gang, what gangs need at least, and whom the quota tree holds back.
// The scheduler's live cache and the one list of a cluster that a plan is made from share it, so
// that the same objects make the same view. It has no locks and decides nothing.
package clusterstate
