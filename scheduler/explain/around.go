package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Around is what the planner does not look at, and that may keep a gang from starting all
// the same. The zero value knows of nothing.
type Around struct {
	// claims and devices are by "namespace/name", volumes and classes by name; nil when they
	// could not be read.
	claims  map[string]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	devices map[string]*resourcev1.ResourceClaim
	jobs    []heldJob
	// open are the other jobs that are not finished, warnings those about what makes pods; warned means that
	// the user may list them.
	open     []openJob
	warnings []corev1.Event
	warned   bool
	// granted are the places that are kept for gangs to come.
	granted []contract.GangReservation
	// scheduler is whether ours was found to run.
	scheduler presence
	// read is when all this was looked at.
	read time.Time
}

// presence is what is known of a program.
type presence int

const (
	present   presence = iota // it runs, or nobody has looked
	absent                    // it does not run
	forbidden                 // the user may not look
)

// heldJob is a job that has no pods, because it is suspended.
type heldJob struct {
	kind, namespace, name string
	// unit is its place in the job queue, nil when it is in none; queue is the path of that in the quota tree.
	unit  *contract.QueueUnit
	queue string
	// object is the job itself.
	object *unstructured.Unstructured
}

// ReadAround lists what there is around the gangs of a namespace, "" for all. What may not
// be listed counts as unknown. Whether the scheduler runs is [Around.FindScheduler]'s to ask.
func ReadAround(ctx context.Context, client *kube.Client, namespace string) (Around, error) {
	a := Around{read: time.Now()}
	all := metav1.ListOptions{}
	claims, err := client.Typed.CoreV1().PersistentVolumeClaims(namespace).List(ctx, all)
	if readable(&err) {
		a.claims = byKey(claims.Items)
	}
	if err != nil {
		return a, fmt.Errorf("list volume claims: %w", err)
	}
	volumes, err := client.Typed.CoreV1().PersistentVolumes().List(ctx, all)
	if readable(&err) {
		a.volumes = byKey(volumes.Items)
	}
	if err != nil {
		return a, fmt.Errorf("list volumes: %w", err)
	}
	classes, err := client.Typed.StorageV1().StorageClasses().List(ctx, all)
	if readable(&err) {
		a.classes = byKey(classes.Items)
	}
	if err != nil {
		return a, fmt.Errorf("list storage classes: %w", err)
	}
	devices, err := client.Typed.ResourceV1().ResourceClaims(namespace).List(ctx, all)
	if readable(&err) {
		a.devices = byKey(devices.Items)
	}
	if err != nil {
		return a, fmt.Errorf("list resource claims: %w", err)
	}
	if a.jobs, a.open, err = listJobs(ctx, client, namespace); err != nil || len(a.open) == 0 {
		return a, err
	}
	if a.warnings, a.warned, err = listWarnings(ctx, client, namespace); err != nil {
		return a, fmt.Errorf("list events: %w", err)
	}
	return a, nil
}

// FindScheduler looks whether the scheduler runs: for all who ask but itself.
func (a *Around) FindScheduler(ctx context.Context, client *kube.Client) error {
	alive, known, err := client.Alive(ctx, contract.SystemNamespace, contract.SchedulerName)
	switch {
	case err != nil:
		return err
	case !known:
		a.scheduler = forbidden
	case !alive:
		a.scheduler = absent
	}
	return nil
}

// FindGrants looks which places the scheduler keeps for gangs that are still to come: for all who ask but itself.
func (a *Around) FindGrants(ctx context.Context, client *kube.Client) (err error) {
	a.granted, err = clusterlist.GangReservations(ctx, client)
	readable(&err)
	return err
}

// Reserve reserves places, as the scheduler does, in a cluster that was listed
// ([clusterstate.Snapshot.ReserveGranted], [clusterstate.Snapshot.ReserveBlocked]): for gangs that are still to come and were promised
// one, and for those that have waited so long, and that nothing around them keeps from starting. What is fenced does not start.
func (a *Around) Reserve(snapshot *clusterstate.Snapshot, after time.Duration) {
	for _, r := range a.granted {
		pods, err := trainingjob.Expected(&unstructured.Unstructured{Object: r.Spec.Job})
		if err != nil {
			continue
		}
		gangs := clusterstate.NewToCome(pods)
		if kept := r.Status.Phase == contract.PhaseReserved && r.Status.Expires != nil && a.read.Before(r.Status.Expires.Time); kept {
			snapshot.ReserveGranted(gangs, r.Status.Gangs)
		}
		if r.Fences(a.read) {
			for _, key := range gangs.Keys() {
				snapshot.SetFence(key, r.FenceText())
			}
		}
	}
	snapshot.ReserveBlocked(a.read, after, func(state inventory.GangState) (placement.Gang, bool) {
		return a.confine(snapshot, state), len(a.rejections(state)) == 0
	})
}

// readable reports whether there is a list, and forgets that the user may not read it, or
// that the cluster does not serve it.
func readable(err *error) bool {
	ok := *err == nil
	if apierrors.IsForbidden(*err) || apierrors.IsNotFound(*err) {
		*err = nil
	}
	return ok
}

// byKey indexes objects by "namespace/name", or by name.
func byKey[T any, P interface {
	*T
	metav1.Object
}](items []T) map[string]P {
	out := map[string]P{}
	for i := range items {
		object := P(&items[i])
		key := object.GetName()
		if object.GetNamespace() != "" {
			key = object.GetNamespace() + "/" + key
		}
		out[key] = object
	}
	return out
}

// jobKinds are the kinds of jobs that may be held, with the path of their field suspend.
var jobKinds = []struct {
	group, kind string
	suspend     []string
}{
	{"batch", "Job", []string{"spec", "suspend"}},
	{contract.KubeflowGroup, contract.PyTorchJobKind, []string{"spec", "runPolicy", "suspend"}},
	{contract.KubeflowGroup, contract.MPIJobKind, []string{"spec", "runPolicy", "suspend"}},
	{contract.JobSetGroup, contract.JobSetKind, []string{"spec", "suspend"}},
	{contract.TrainerGroup, contract.TrainJobKind, []string{"spec", "suspend"}},
}

// listJobs lists the jobs that are suspended, with their place in the job queue, and the others that are
// not finished.
func listJobs(ctx context.Context, client *kube.Client, namespace string) (held []heldJob, open []openJob, err error) {
	queued, err := readQueue(ctx, client, namespace)
	if err != nil {
		return nil, nil, err
	}
	var parts []unstructured.Unstructured
	for _, kind := range jobKinds {
		jobs, err := listServed(ctx, client, kind.group, kind.kind, namespace)
		if err != nil {
			return nil, nil, err
		}
		for _, job := range jobs {
			described := setOf(&job, parts)
			suspended, _, _ := unstructured.NestedBool(job.Object, kind.suspend...)
			if trainingjob.PartOf(&job) != nil {
				parts = append(parts, job)
			} else if suspended || trainingjob.Alpha(&job) && trainingjob.Held(&job) {
				unit, queue := queued.place(kind.kind, &job)
				held = append(held, heldJob{kind: kind.kind, namespace: job.GetNamespace(), name: job.GetName(), unit: unit, queue: queue, object: described})
			} else if of, ok := openJobOf(described, parts); ok { // Jobs and JobSets, of which some are parts, come first
				if described != &job {
					of.kind, of.makers = kind.kind, append(of.makers, job.GetUID())
				}
				open = append(open, of)
			}
		}
	}
	return held, open, nil
}

// setOf is the JobSet that a TrainJob has become, which says what its pods are, and any other job itself.
func setOf(job *unstructured.Unstructured, parts []unstructured.Unstructured) *unstructured.Unstructured {
	at := slices.IndexFunc(parts, func(part unstructured.Unstructured) bool {
		return part.GetKind() == contract.JobSetKind && trainingjob.PartOf(&part).UID == job.GetUID()
	})
	if at < 0 {
		return job
	}
	return &parts[at]
}

// queue is the job queue: its units, by what they are for, and the paths in the quota tree of its queues, by name.
type queue struct {
	units map[string]*contract.QueueUnit
	paths map[string]string
	// unlisted means that the user may not list the units.
	unlisted bool
}

func readQueue(ctx context.Context, client *kube.Client, namespace string) (q queue, err error) {
	list, err := clusterlist.QueueUnits(ctx, client, namespace)
	q.unlisted = apierrors.IsForbidden(err)
	if readable(&err); err != nil {
		return q, err
	}
	q.units = map[string]*contract.QueueUnit{}
	for i := range list {
		ref := list[i].Spec.ConsumerRef
		q.units[ref.Kind+" "+list[i].Namespace+"/"+ref.Name] = &list[i]
	}
	q.paths, err = queuePaths(ctx, client)
	return q, err
}

// place is where an object stands in the queue, and the path of that, nil and "" for nowhere.
func (q queue) place(kind string, object metav1.Object) (unit *contract.QueueUnit, path string) {
	if unit = q.units[kind+" "+object.GetNamespace()+"/"+object.GetName()]; unit != nil {
		path = cmp.Or(q.paths[unit.Spec.Queue], unit.Spec.Queue)
	}
	return unit, path
}

// queuePaths are the paths in the quota tree, by which users know them, of the queues by name.
func queuePaths(ctx context.Context, client *kube.Client) (map[string]string, error) {
	list, err := clusterlist.Queues(ctx, client)
	if readable(&err); err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for i := range list {
		paths[list[i].Name] = list[i].Annotations[contract.QueuePathAnnotation]
	}
	return paths, nil
}

// listServed lists the objects of a kind, none where the cluster does not serve it or the
// user may not list it.
func listServed(ctx context.Context, client *kube.Client, group, kind, namespace string) ([]unstructured.Unstructured, error) {
	version, served, err := client.Served(ctx, group, kind)
	if err != nil || !served {
		return nil, err
	}
	list, err := client.List(ctx, schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, namespace, "")
	readable(&err)
	return list, err
}

// find returns the answers about held jobs of a name.
func (a Around) find(snapshot *clusterstate.Snapshot, namespace, name string) (answers []Answer) {
	for _, job := range a.jobs {
		if job.namespace == namespace && job.name == name {
			answer := job.answer()
			answer.Fixes, _ = job.fixes(snapshot)
			answers = append(answers, answer)
		}
	}
	return answers
}

// fixes make the job fit, were it not held; fits means that it does.
func (j heldJob) fixes(snapshot *clusterstate.Snapshot) (found []Fix, fits bool) {
	if j.object == nil {
		return nil, false
	}
	pods, err := trainingjob.Expected(j.object)
	if err != nil || len(pods) == 0 {
		return nil, false
	}
	gang := j.gang(pods, snapshot.View.Quota())
	verdict := planner.Plan(snapshot.View, gang).Verdict
	list := verdict.Fixes
	if _, labeled := inventory.GangKey(pods[0]); !labeled || !one(pods) {
		list = slices.DeleteFunc(list, func(f placement.Fix) bool { return f.Kind == placement.FixMembers }) // it has no minimum
	}
	return fixes(list), verdict.Fits
}

// gang is the job as one gang, also where it is several, or pods on their own: all of them must fit.
func (j heldJob) gang(pods []*corev1.Pod, tree *quota.Tree) placement.Gang {
	gang, _ := inventory.GangAmid(pods, nil, tree, nil)
	gang.ID = j.namespace + "/" + j.name // without gang labels it would be the first pod's
	if !one(pods) {
		gang.Minimum, gang.Subgroups = 0, nil
	}
	return gang
}

// one reports whether pods are one gang, or one pod.
func one(pods []*corev1.Pod) bool { return len(clusterstate.NewToCome(pods)) == 1 }

// answer says where a held job stands.
func (j heldJob) answer() Answer {
	a := Answer{Gang: j.namespace + "/" + j.name, Job: j.kind, State: Suspended}
	switch unit := j.unit; {
	case unit == nil:
		a.Rejections = []string{"it is suspended, and in no queue: it starts when someone resumes it"}
	case unit.Status.Phase == contract.UnitBackoff:
		a.State, a.Rejections = Queued, []string{"the queue has sent it back: " + unit.Status.Message}
	case unit.Status.Position == 0:
		a.State, a.Rejections = Queued, []string{"it is queued, and not in line yet: " + unit.Status.Message}
	default:
		a.State = Queued
		a.Rejections = []string{fmt.Sprintf("position %d in queue %s: %s", unit.Status.Position, j.queue, unit.Status.Message)}
	}
	if j.unit != nil {
		a.Since = j.unit.CreationTimestamp.Time
	}
	return a
}

// sorted makes texts unique and orders them.
func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
