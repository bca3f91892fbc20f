// Package hardware is what the node agent knows about the cards of a machine,
// whoever reads them: NVML on a real node, a description file on a simulated one.
package hardware

import (
	"context"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// Source reads the cards of one machine. Its methods may be called from different goroutines.
type Source interface {
	// Read returns the cards as they are now. A card that cannot be read is in the
	// reading with its reason; an error means that the machine as a whole cannot be read.
	Read(ctx context.Context) (Reading, error)
	// Changed receives a value after something has happened that a new Read may
	// show. It never closes.
	Changed() <-chan struct{}
}

// Reading is one look at a machine.
type Reading struct {
	// Machine is the hardware. A card's Unhealthy is what the source is certain
	// of; what follows from signals is for the health package to say.
	Machine gpu.Machine
	// DriverVersion is the version of the NVIDIA driver, "" when simulated.
	DriverVersion string
	// Signals are what the cards reported: events since the last reading, and
	// conditions that hold now.
	Signals []Signal
}

// Signal is one thing that a card reported.
type Signal struct {
	// Card is the NVML index.
	Card int
	Kind Kind
	// Number is the XID of [XID], the increase of the counter of [UncorrectableECC],
	// and 0 for the others.
	Number uint64
}

// Kind is what a signal is about.
type Kind string

// Kinds of signals. XID and UncorrectableECC are events: they are reported once.
// The others are conditions: each reading reports them for as long as they hold.
const (
	// XID is a critical error event of the driver, numbered as in NVIDIA's "XID Errors".
	XID Kind = "XID"
	// UncorrectableECC is an increase of the count of uncorrectable memory errors.
	UncorrectableECC Kind = "UncorrectableECC"
	// RowRemapFailed: a faulty memory row could not be replaced by a spare one.
	RowRemapFailed Kind = "RowRemapFailed"
	// ResetRequired: the driver asks for a reset of the card or a reboot of the node.
	ResetRequired Kind = "ResetRequired"
)
