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

// errTakenOver tells that another controller is at work.
var errTakenOver = errors.New("another queue controller has taken over")

// Keys of the ledger.
const (
	ledgerHolder    = "holder"
	ledgerReleasing = "releasing"
)

// ledger is the one object through which every release goes: a ConfigMap with the
// units that are being let out. It is written, on condition that nobody else wrote it,
// before any of their jobs is touched. So a controller that takes over knows what its
// predecessor was about to let out, and a predecessor that is late lets out nothing more.
type ledger struct {
	client typedcorev1.ConfigMapInterface
	holder string
	object *corev1.ConfigMap
	// releasing are units by incarnation, with the attempt.
	releasing map[string]int64
}

// takeLedger takes the ledger over; whoever held it before cannot write it any more.
func takeLedger(ctx context.Context, client typedcorev1.ConfigMapInterface, holder string) (*ledger, error) {
	for {
		l, err := tryLedger(ctx, client, holder)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return l, err
		}
		// The one who had it wrote once more.
	}
}

func tryLedger(ctx context.Context, client typedcorev1.ConfigMapInterface, holder string) (*ledger, error) {
	l := &ledger{client: client, holder: holder}
	object, err := client.Get(ctx, contract.QueueControllerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: contract.QueueControllerName, Labels: map[string]string{contract.PartOfLabel: contract.PartOfValue},
		}}, metav1.CreateOptions{FieldManager: contract.QueueControllerName})
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger of releases: %w", err)
	}
	l.object = object
	if err := l.read(); err != nil {
		return nil, err
	}
	if err := l.put(ctx, l.releasing); err != nil {
		return nil, fmt.Errorf("take over the ledger of releases: %w", err)
	}
	return l, nil
}

func (l *ledger) read() error {
	l.releasing = map[string]int64{}
	text := l.object.Data[ledgerReleasing]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &l.releasing); err != nil {
		return fmt.Errorf("read the ledger of releases, ConfigMap %s: %w; delete the ConfigMap when no job is being released", l.object.Name, err)
	}
	return nil
}

// write replaces the list of units that are being let out. The error is errTakenOver
// when another controller wrote since.
func (l *ledger) write(ctx context.Context, releasing map[string]int64) error {
	if err := l.put(ctx, releasing); err != nil {
		return l.recover(ctx, err)
	}
	return nil
}

func (l *ledger) put(ctx context.Context, releasing map[string]int64) error {
	text, err := json.Marshal(releasing)
	if err != nil {
		return err
	}
	next := l.object.DeepCopy()
	next.Data = map[string]string{ledgerHolder: l.holder, ledgerReleasing: string(text)}
	object, err := l.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: contract.QueueControllerName})
	if err != nil {
		return err
	}
	l.object, l.releasing = object, releasing
	return nil
}

// recover finds out whether a write that failed was made all the same, or whether
// somebody else has the ledger.
func (l *ledger) recover(ctx context.Context, failure error) error {
	object, err := l.client.Get(ctx, contract.QueueControllerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && object.UID != l.object.UID:
		return fmt.Errorf("%w: its ledger is another one", errTakenOver)
	case err != nil:
		return errors.Join(fmt.Errorf("write the ledger of releases: %w", failure), err)
	case object.Data[ledgerHolder] != l.holder && object.ResourceVersion != l.object.ResourceVersion:
		return fmt.Errorf("%w: %s", errTakenOver, object.Data[ledgerHolder])
	}
	l.object = object
	return errors.Join(fmt.Errorf("write the ledger of releases: %w", failure), l.read())
}
