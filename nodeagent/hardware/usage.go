package hardware

import "context"

// Meter reads how much GPUs are used. A [Source] that can tell is one.
type Meter interface {
	// Usage returns the use of all GPUs that answer, as it is now.
	Usage(ctx context.Context) ([]Usage, error)
}

// Usage is how much one GPU is used.
type Usage struct {
	// GPU is the GPU's identity, as [ID] has it, Index its index.
	GPU   string
	Index int
	// Values are what the GPU tells of itself; one that it does not tell is not there.
	Values map[Quantity]float64
	// Processes are those that compute on the GPU and that this process can see, which takes the PID namespace of the host.
	Processes []Process
}

// Quantity is something that a GPU measures or counts.
type Quantity string

// Quantities and their units. Those from [Energy] on are counters, since the driver was loaded or the GPU was reset.
const (
	// Utilization is the part of the last sample period in which a kernel ran, from 0 to 1.
	Utilization Quantity = "Utilization"
	// MemoryUsed and MemoryTotal are the GPU's memory, in bytes.
	MemoryUsed  Quantity = "MemoryUsed"
	MemoryTotal Quantity = "MemoryTotal"
	// Power is in watts, Temperature in degrees Celsius, Clock that of the multiprocessors in hertz.
	Power       Quantity = "Power"
	Temperature Quantity = "Temperature"
	Clock       Quantity = "Clock"
	// SlowedByPower, SlowedByHeat and SlowedByHardware are 1 while the GPU runs at less than its clock for that
	// reason, else 0: its limit of power, its temperature, or a brake from outside, such as the power supply's.
	SlowedByPower    Quantity = "SlowedByPower"
	SlowedByHeat     Quantity = "SlowedByHeat"
	SlowedByHardware Quantity = "SlowedByHardware"

	// Energy is in joules.
	Energy Quantity = "Energy"
	// ECCCorrected and ECCUncorrected are memory errors.
	ECCCorrected   Quantity = "ECCCorrected"
	ECCUncorrected Quantity = "ECCUncorrected"
	// NVLinkReceived and NVLinkSent are the bytes of payload over all NVLinks.
	NVLinkReceived Quantity = "NVLinkReceived"
	NVLinkSent     Quantity = "NVLinkSent"
)

// Process is a process that computes on a GPU.
type Process struct {
	PID int
	// Memory is the memory of the GPU that it has, in bytes.
	Memory uint64
	// Utilization is the part of the GPU's time that it used lately, from 0 to 1, negative when unknown.
	Utilization float64
}
