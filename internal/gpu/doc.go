// Package gpu models the GPUs of one machine: the cards, the links between
// them as `nvidia-smi topo -m` prints them, the bandwidth that a collective
// ring gets inside a set of cards, and the best set of k free cards.
//
// The package is pure: no I/O, no clock, no Kubernetes types.
package gpu
