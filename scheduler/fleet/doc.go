// Package fleet sends gangs of a fleet to member clusters: it takes the bindings that Karmada makes of jobs whose policy names
// our scheduler, asks the planner about each member cluster, and sends the job, whole, to the one that has the best place for it.
//
// It keeps the state of each member cluster in step by watches, as the scheduler there does, and plans with the same
// code. A place that it has chosen is charged in its own picture of the cluster until the pods of the job are bound there, so
// that the next gang is not sent after it. Nothing is held on the member cluster itself: what others place there in the
// meantime, the gang waits for there, whole.
package fleet
