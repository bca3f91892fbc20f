// Package gpu models the GPUs of one machine: the GPUs, the links between
// them as `nvidia-smi topo -m` prints them, the bandwidth that a collective
// ring gets inside a set of GPUs, and the best set of k free GPUs.
//
// The package is pure: no I/O, no clock, no Kubernetes types.
package gpu
