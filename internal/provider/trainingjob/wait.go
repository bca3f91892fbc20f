package trainingjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// wait waits until the job has come as far as goal says, and returns it as it was
// last seen: running means with as many members as placed, if some are enough. The error of
// a wait that took too long says what the scheduler waits for.
func (r *trainingJob) wait(ctx context.Context, client *kube.Client, spec job.Spec, goal string, placed int) (*unstructured.Unstructured, error) {
	live, err := client.Get(ctx, spec.GVK(), spec.Namespace, spec.Name)
	if err == nil {
		err = join(ctx, client, live)
	}
	if err != nil || goal == waitNone {
		return live, err
	}
	goal = cmp.Or(goal, waitRunning)
	if spec.Suspend {
		goal = waitSuspended
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	followed, stop := context.WithCancel(ctx)
	refusals := refusalsOf(client, spec, live, giveUp)
	pods := &podFollower{client: client, spec: spec, seen: refusals.pod}
	unit := &unitFollower{client: client, spec: spec}
	var done sync.WaitGroup
	done.Go(func() { pods.run(followed) })
	done.Go(func() { refusals.run(followed) })
	if spec.Queue {
		done.Go(func() { unit.run(followed) })
	}
	defer done.Wait()
	defer stop()

	runtime, _ := job.Split(live)
	obj, err := client.WaitFor(ctx, spec.GVK(), spec.Namespace, spec.Name,
		func(obj *unstructured.Unstructured) (bool, string, error) {
			job.Join(obj, runtime)
			return reached(obj, goal, placed)
		},
		func(status string) {
			tflog.Info(ctx, "waiting for the job", map[string]any{"job": spec.ID(), "status": status})
		})
	if err == nil {
		return obj, nil
	}
	if errors.Is(err, context.DeadlineExceeded) && refusals.refused() {
		err = fmt.Errorf("%w; %w", err, errRefused)
	}
	reasons := []said{{"the job's operator says", refusals.reason()}, {"the scheduler says", pods.reason()}, {"the job queue says", unit.position()}}
	if pods.ignored() {
		reasons = append(reasons, r.unheard(context.WithoutCancel(ctx), spec))
	}
	if errors.Is(err, context.DeadlineExceeded) && refusals.silent() && pending(obj) {
		reasons = append(reasons, said{"no pod of it was made, and its operator does not say why", "does that run, and what does its log say?"})
	}
	err = because(err, reasons)
	if errors.Is(err, errFailed) {
		if words := lastWords(context.WithoutCancel(ctx), client, spec, live.GetCreationTimestamp()); words != "" {
			err = fmt.Errorf("%w\n\n%s", err, words)
		}
	}
	return obj, err
}

// pending reports whether a job waits for its pods, and for nobody to let it start.
func pending(obj *unstructured.Unstructured) bool {
	if obj == nil {
		return false
	}
	status, err := job.StatusOf(obj)
	return err == nil && status.Phase == job.Pending
}

// unheard is why no scheduler has said anything of a job's pods: ours says nothing at first of a gang
// that is not whole.
func (r *trainingJob) unheard(ctx context.Context, spec job.Spec) said {
	if spec.Gang && spec.SchedulerName == contract.SchedulerName {
		if snapshot, err := r.Session.Snapshot(ctx); err == nil && !snapshot.NoScheduler {
			if missing := snapshot.Missing(spec.ID()); missing != "" {
				return said{"the scheduler waits", missing}
			}
		}
	}
	return said{"no scheduler has looked at its pods, which ask for " + spec.SchedulerName, "is that one installed, and does it run?"}
}

// said is what someone says about a job.
type said struct{ who, what string }

// because adds to an error what is said about it: nothing twice, since one repeats another.
func because(err error, reasons []said) error {
	for i, r := range reasons {
		repeated := slices.ContainsFunc(reasons[i+1:], func(other said) bool { return strings.Contains(other.what, r.what) })
		if text := strings.TrimSuffix(r.what, "."); text != "" && !repeated && !strings.Contains(err.Error(), text) {
			err = fmt.Errorf("%w; %s: %s", err, r.who, text)
		}
	}
	return err
}

// errFailed means that the job has ended without success.
var errFailed = errors.New("the job has failed")

// reached is the condition of the wait.
func reached(obj *unstructured.Unstructured, goal string, placed int) (done bool, status string, err error) {
	s, err := job.StatusOf(obj)
	if err != nil {
		return false, "", err
	}
	status = fmt.Sprintf("%s, %d of %d replicas run", s.Phase, s.Active, s.Wanted)
	switch {
	case s.Phase == job.Failed:
		return false, status, fmt.Errorf("%w: %s", errFailed, s.Message)
	case s.Phase == job.Succeeded:
		return true, status, nil
	case goal == waitRunning:
		return s.Runs(int32(placed)), status, nil
	case goal == waitSuspended:
		return s.Phase == job.Suspended && s.Active == 0, status, nil
	}
	return false, status, nil
}

// podFollower watches the job's pods while someone waits for the job, because only
// they say what the scheduler waits for.
type podFollower struct {
	client *kube.Client
	spec   job.Spec
	// seen is told that there are pods.
	seen func()

	mu   sync.Mutex
	last string
	// waiting means that there are pods that have no node, looked that a scheduler has
	// written about one of them.
	waiting, looked bool
}

func (f *podFollower) run(ctx context.Context) {
	changes, err := f.client.Typed.CoreV1().Pods(f.spec.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: podLabels(f.spec).String()})
	if err != nil {
		return // the wait goes on without the scheduler's reasons
	}
	each(ctx, changes, f.take)
}

// each hands the objects of a watch to take until the watch or ctx ends.
func each[T runtime.Object](ctx context.Context, changes watch.Interface, take func(context.Context, T)) {
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-changes.ResultChan():
			if !open {
				return
			}
			if object, ok := event.Object.(T); ok {
				take(ctx, object)
			}
		}
	}
}

// ignored reports whether there are pods, and no scheduler has looked at any of them.
func (f *podFollower) ignored() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting && !f.looked
}

// take notes why a pod is not scheduled, and forgets it once one of them is: the
// members of a gang are scheduled together.
func (f *podFollower) take(ctx context.Context, pod *corev1.Pod) {
	f.seen()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = f.waiting || pod.Spec.NodeName == ""
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled {
			continue
		}
		f.looked = true
		if c.Status == corev1.ConditionTrue {
			f.last = ""
			return
		}
		if c.Message != "" && c.Message != f.last {
			f.last = c.Message
			tflog.Info(ctx, "the scheduler waits", map[string]any{"job": f.spec.ID(), "pod": pod.Name, "reason": c.Message})
		}
	}
}

func (f *podFollower) reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// podLabels are the labels of the pods of a job, and of no others. Those of a Job or a JobSet have them whoever
// has made it.
func podLabels(spec job.Spec) labels.Selector {
	switch spec.Framework {
	case job.Batch:
		return labels.SelectorFromSet(labels.Set{batchv1.JobNameLabel: spec.Name})
	case job.JobSet, job.TrainJob:
		return labels.SelectorFromSet(labels.Set{contract.JobSetNameLabel: spec.Name})
	}
	return ownLabels(spec)
}

// ownLabels are those labels of the pods of a job that the provider or the operator gives them.
func ownLabels(spec job.Spec) labels.Selector {
	operators, err := labels.NewRequirement(contract.JobOperatorNameLabel, selection.In, spec.Framework.Operators())
	utilruntime.Must(err) // they are constants
	return labels.SelectorFromSet(labels.Set{contract.JobNameLabel: spec.Name}).Add(*operators)
}
