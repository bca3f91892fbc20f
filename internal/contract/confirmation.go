package contract

import (
	"encoding/json"
	"fmt"
)

// ConfirmationVersion is the version of the [Confirmation] that this code writes.
const ConfirmationVersion = 1

// Confirmation is what the node agent writes on a pod about the GPUs that its containers were given, in
// the annotation [ConfirmedAnnotation]: the [Allocation] is what the scheduler decided, this is what happened.
type Confirmation struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	// Containers are those that were started, by name.
	Containers map[string]ConfirmedContainer `json:"containers"`
}

// ConfirmedContainer is what one container was given.
type ConfirmedContainer struct {
	// Way is how the runtime was told: [WayCDI] or [WayNRI].
	Way string `json:"way"`
	// GPUs are the UUIDs of the GPUs that the container sees; of a GPU without one, its index.
	GPUs []string `json:"gpus"`
	// Indexes are the NVML indexes of these GPUs, in the same order, as the records of allocations have them: those of
	// the node's GPUNode, which stay when the driver numbers GPUs again. -1 is a GPU that the node does not list.
	Indexes []int `json:"indexes"`
	// Shares are the parts of them, where they are not the container's alone, in the same order.
	Shares []GPUShare `json:"shares,omitempty"`
	// Unenforced means that nothing keeps the container to its shares.
	Unenforced bool `json:"unenforced,omitempty"`
}

// The ways in which a container runtime learns the GPUs of a container.
const (
	// WayCDI: it has read them from a CDI specification.
	WayCDI = "CDI"
	// WayNRI: it has asked the agent, by NRI.
	WayNRI = "NRI"
)

// Annotation returns the value of [ConfirmedAnnotation].
func (c Confirmation) Annotation() (string, error) {
	c.Version = ConfirmationVersion
	b, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode the confirmation of GPUs: %w", err)
	}
	return string(b), nil
}

// ConfirmationFrom reads the confirmation from a pod's annotations; ok is false when there is none.
func ConfirmationFrom(annotations map[string]string) (c Confirmation, ok bool, err error) {
	if ok, err = readRecord(annotations, ConfirmedAnnotation, "a confirmation of GPUs", &c, &c.Version, ConfirmationVersion); err != nil {
		return Confirmation{}, ok, err
	}
	return c, ok, nil
}
