// Package queue is the controller of the job queue: what ack-kube-queue does, for the
// quota tree of a cluster. It runs as "gpuplan-scheduler queue".
//
// Every node of the ElasticQuotaTree has a Queue in namespace kube-queue, found by its
// annotation. A queued job has a QueueUnit beside it, and is held by its own field
// suspend until the limits of its leaf, max-jobs among them, release it (package
// admit decides). When its pods do not run in time the job goes back, for a while that
// doubles each time.
//
// Queued are PyTorchJobs, MPIJobs, batch Jobs, JobSets and TrainJobs that
//   - were made suspended, in a namespace of a leaf, or naming a leaf by the pods'
//     quota label; or
//   - carry the annotation scheduling.x-k8s.io/suspend=true, as arena --queue writes
//     it, suspended or not; or
//   - carry gpuplan.dev/queue=true and have not started.
//
// A job with gpuplan.dev/queue=false is left alone. Jobs that run without having been
// queued count like those that were released: there is one account.
//
// How it works. The informers keep a state up to date (state.go). After every change
// one pass looks at everything, makes a plan (plan.go, look.go and admission.go, a pure
// function of the state and the time) and carries it out (apply.go, reports.go, events.go). What the API server answers
// goes into the state at once, so the next plan never falls behind the last one's
// writes. There is no polling; the one timer waits for the end of a unit's time.
//
// All state is in the API server: the suspend fields, the units' status, and the
// release log (releaselog.go), a ConfigMap that names the units that are being released. It is
// written before any of their jobs, on condition that nobody else wrote it. A
// controller that was killed at any point, or that has been replaced without noticing,
// therefore never releases more than the limits allow.
package queue
