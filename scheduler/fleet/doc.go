// Package fleet sends gangs of a fleet to member clusters: it takes the bindings that Karmada makes of jobs whose policy names
// our scheduler, asks the planner about each member cluster, and sends the job, whole, to the one that has the best place for it.
//
// It keeps the state of each member cluster in step by watches, as the scheduler there does, and plans with the same
// code. It sends a job in two phases: first the scheduler of the chosen cluster keeps the place (GangReservation), then the
// binding is written. In its own picture of the cluster the place is charged until the pods of the job are bound there, so that
// the next gang is not sent after it. Where nobody keeps places, others may take it in the meantime, and the gang waits for it
// there, whole.
package fleet
