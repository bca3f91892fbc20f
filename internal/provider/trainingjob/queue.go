package trainingjob

import (
	"context"
	"fmt"
	"sync"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// unitFollower watches the unit of a queued job while someone waits for the job,
// because only the unit says what the queue waits for.
type unitFollower struct {
	client *kube.Client
	spec   job.Spec

	mu   sync.Mutex
	last string
}

func (f *unitFollower) run(ctx context.Context) {
	units := schema.GroupVersionResource{Group: contract.QueueGroup, Version: contract.QueueVersion, Resource: contract.QueueUnitResource}
	changes, err := f.client.Dynamic.Resource(units).Namespace(f.spec.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.spec.QueueUnitName()).String(),
	})
	if err != nil {
		return // the wait goes on without the queue's reasons
	}
	each(ctx, changes, f.take)
}

func (f *unitFollower) take(ctx context.Context, object *unstructured.Unstructured) {
	var unit contract.QueueUnit
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &unit); err != nil {
		return // written by another queue than ours
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if text := queuePosition(unit); text != f.last {
		f.last = text
		tflog.Info(ctx, "the job queue", map[string]any{"job": f.spec.ID(), "standing": text})
	}
}

func (f *unitFollower) position() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// queuePosition says where a unit stands that is not released, "" for any other.
func queuePosition(unit contract.QueueUnit) string {
	switch {
	case unit.Status.Phase == contract.UnitBackoff:
		return unit.Status.Message
	case unit.Status.Phase != contract.UnitEnqueued:
		return ""
	case unit.Status.Position == 0:
		return "suspended, in no queue: " + unit.Status.Message
	}
	return fmt.Sprintf("suspended, position %d in queue %s: %s", unit.Status.Position, unit.Spec.Queue, unit.Status.Message)
}
