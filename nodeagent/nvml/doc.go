// Package nvml is the hardware of a real node, read through NVIDIA's management
// library. The library is loaded at run time, so that the agent builds and starts
// without a driver. Without cgo, or on another system than Linux, the package is
// there, and says that it cannot read anything.
package nvml
