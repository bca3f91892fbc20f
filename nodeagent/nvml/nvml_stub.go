//go:build !cgo || !linux

package nvml

import (
	"context"
	"errors"
	"log/slog"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// Start fails: this build has no NVML.
func Start(context.Context, *slog.Logger) (hardware.Source, error) {
	return nil, errors.New("this gpuplan-node-agent was built without NVML and can only publish simulated nodes (--hardware-dir); build it on Linux with CGO_ENABLED=1 and a C compiler to read real GPUs")
}
