package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// patience is how long a job of which no pod can be created is waited for: what its pods
// lack may come with another resource of the apply.
const patience = time.Minute

// errRefused means that none of a job's pods can be created.
var errRefused = errors.New("none of its pods can be created")

// refusalFollower watches the warnings about a job while someone waits for it, because
// only they say why its operator cannot create pods.
type refusalFollower struct {
	client *kube.Client
	spec   job.Spec
	uid    k8stypes.UID
	// giveUp ends the wait.
	giveUp context.CancelCauseFunc

	mu      sync.Mutex
	last    string
	limit   *time.Timer
	created bool
}

func (f *refusalFollower) run(ctx context.Context) {
	changes, err := f.client.Typed.CoreV1().Events(f.spec.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(f.uid), "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return // the wait goes on without the operator's reasons
	}
	each(ctx, changes, f.take)
}

func (f *refusalFollower) take(ctx context.Context, event *corev1.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if event.InvolvedObject.UID != f.uid || event.Type != corev1.EventTypeWarning || event.Message == f.last {
		return
	}
	f.last = event.Message
	tflog.Info(ctx, "the job's operator warns", map[string]any{"job": f.spec.ID(), "reason": event.Reason, "message": event.Message})
	if f.limit == nil && !f.created && event.Reason == reasonFailedCreate && !strings.Contains(event.Message, "exceeded quota") {
		f.limit = time.AfterFunc(patience, f.end)
	}
}

// reasonFailedCreate is the reason of the operator's event about a pod that it cannot create.
const reasonFailedCreate = "FailedCreatePod"

// end ends the wait, unless a pod was created meanwhile.
func (f *refusalFollower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.created {
		f.giveUp(fmt.Errorf("%w within %s", errRefused, patience))
	}
}

// pod notes that the operator can create pods.
func (f *refusalFollower) pod() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created, f.last = true, ""
}

// refused reports whether the operator has tried to create a pod and no pod was created.
func (f *refusalFollower) refused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limit != nil && !f.created
}

func (f *refusalFollower) reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
