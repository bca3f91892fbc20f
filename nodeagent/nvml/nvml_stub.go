//go:build !cgo || !linux

package nvml

import (
	"context"
	"errors"
	"log/slog"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

var errNoNVML = errors.New("this gpuplan-node-agent was built without NVML and can only publish simulated nodes (--hardware-dir); build it on Linux with CGO_ENABLED=1 and a C compiler to read real GPUs")

// Start fails: this build has no NVML.
func Start(context.Context, *slog.Logger, string) (hardware.Source, error) { return nil, errNoNVML }

// Modes has no GPUs: this build has no NVML.
type Modes struct{}

// NewModes returns modes of no GPU.
func NewModes() *Modes { return new(Modes) }

// ComputeMode fails.
func (*Modes) ComputeMode(string) (hardware.ComputeMode, error) { return "", errNoNVML }

// SetComputeMode fails.
func (*Modes) SetComputeMode(string, hardware.ComputeMode) error { return errNoNVML }
