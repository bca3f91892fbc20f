package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// errTakenOver means that another controller is at work.
var errTakenOver = errors.New("another queue controller has taken over")

// Keys of the release log.
const (
	logHolder    = "holder"
	logReleasing = "releasing"
)

// releaseLog is the one object through which every release goes: a ConfigMap with the
// units that are being released. It is written, on condition that nobody else wrote it,
// before any of their jobs is touched. So a controller that takes over knows what its
// predecessor was about to release, and a predecessor that is late releases nothing more.
type releaseLog struct {
	client typedcorev1.ConfigMapInterface
	holder string
	object *corev1.ConfigMap
	// releasing are units by incarnation, with the attempt.
	releasing map[string]int64
}

// takeReleaseLog takes the release log over; whoever held it before cannot write it any more.
func takeReleaseLog(ctx context.Context, client typedcorev1.ConfigMapInterface, holder string) (*releaseLog, error) {
	for {
		l, err := tryReleaseLog(ctx, client, holder)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return l, err
		}
		// The one who had it wrote once more.
	}
}

func tryReleaseLog(ctx context.Context, client typedcorev1.ConfigMapInterface, holder string) (*releaseLog, error) {
	l := &releaseLog{client: client, holder: holder}
	object, err := client.Get(ctx, contract.QueueControllerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: contract.QueueControllerName, Labels: map[string]string{contract.PartOfLabel: contract.PartOfValue},
		}}, metav1.CreateOptions{FieldManager: contract.QueueControllerName})
	}
	if err != nil {
		return nil, fmt.Errorf("read the release log: %w", err)
	}
	l.object = object
	if err := l.read(); err != nil {
		return nil, err
	}
	if err := l.put(ctx, l.releasing); err != nil {
		return nil, fmt.Errorf("take over the release log: %w", err)
	}
	return l, nil
}

func (l *releaseLog) read() error {
	l.releasing = map[string]int64{}
	text := l.object.Data[logReleasing]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &l.releasing); err != nil {
		return fmt.Errorf("read the release log, ConfigMap %s: %w; delete the ConfigMap when no job is being released", l.object.Name, err)
	}
	return nil
}

// write replaces the list of units that are being released. The error is errTakenOver
// when another controller wrote since.
func (l *releaseLog) write(ctx context.Context, releasing map[string]int64) error {
	if err := l.put(ctx, releasing); err != nil {
		return l.recover(ctx, err)
	}
	return nil
}

func (l *releaseLog) put(ctx context.Context, releasing map[string]int64) error {
	text, err := json.Marshal(releasing)
	if err != nil {
		return err
	}
	next := l.object.DeepCopy()
	next.Data = map[string]string{logHolder: l.holder, logReleasing: string(text)}
	object, err := l.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: contract.QueueControllerName})
	if err != nil {
		return err
	}
	l.object, l.releasing = object, releasing
	return nil
}

// recover finds out whether a write that failed was made all the same, or whether
// someone else has the release log.
func (l *releaseLog) recover(ctx context.Context, failure error) error {
	object, err := l.client.Get(ctx, contract.QueueControllerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && object.UID != l.object.UID:
		return fmt.Errorf("%w: its release log is another one", errTakenOver)
	case err != nil:
		return errors.Join(fmt.Errorf("write the release log: %w", failure), err)
	case object.Data[logHolder] != l.holder && object.ResourceVersion != l.object.ResourceVersion:
		return fmt.Errorf("%w: %s", errTakenOver, object.Data[logHolder])
	}
	l.object = object
	return errors.Join(fmt.Errorf("write the release log: %w", failure), l.read())
}
