// A comparison with a peer that the project does not depend on.
module github.com/gpuplan/terraform-provider-gpuplan/bench/gpusets

go 1.26.0

require github.com/NVIDIA/go-gpuallocator v0.6.0

require (
	github.com/NVIDIA/go-nvlib v0.7.3 // indirect
	github.com/NVIDIA/go-nvml v0.12.9-0 // indirect
	github.com/google/uuid v1.6.0 // indirect
)
