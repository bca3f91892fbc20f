// Package mpialpha serves MPIJob kubeflow.org/v1alpha1, the version that arena writes and
// reads and that the training operator does not know. It does what the MPI operator 0.2.3
// did (pkg/controllers/v1alpha1): a ConfigMap with the hosts, rights for the launcher, a
// StatefulSet of workers, and once these are ready a Job with the launcher. As ACK's
// operator does, it makes no pods while the annotation scheduling.x-k8s.io/suspend is
// "true", by which a queue holds the job, and keeps or removes the workers of a finished
// job as cleanPodPolicy says.
package mpialpha
