package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
)

const (
	// members is how many member clusters the fleet has, hubCluster the name of the one that gives work to them.
	members    = 2
	hubCluster = "hub"
	// queueTime is how long the queue may take to see a new job, releaseTime how long a job may take to run once the queue may release it.
	queueTime   = 30 * time.Second
	releaseTime = 2 * time.Minute
	// scheduled is the event of a job that got a cluster.
	scheduled = "ScheduleBindingSucceed"
)

// showFleet shows where the jobs of the fleet run and which wait in the queue of the hub. Then it ends those that run, as their programs
// would on real nodes, and shows how the first of the queue gets its planned place.
func (d demo) showFleet(ctx context.Context, tf terraform) error {
	hub, err := d.connect(hubCluster)
	if err != nil {
		return err
	}
	running, waiting, err := d.reportFleet(ctx, tf, hub)
	if err != nil {
		return err
	}
	var units []contract.QueueUnit
	err = until(ctx, queueTime, func(ctx context.Context) error {
		units, err = hub.units(ctx)
		if err == nil && waiting && firstOf(units) == "" {
			return errors.New("the job that waits is not in the queue: kubectl get queueunits -o yaml")
		}
		return err
	})
	if err != nil {
		return err
	}
	reportQueue(d.out, units)
	next := firstOf(units)
	if next == "" {
		return nil
	}
	for _, j := range running {
		if err := d.end(ctx, j); err != nil {
			return err
		}
	}
	if err := d.waitUntilRunning(ctx, hub, next); err != nil {
		return err
	}
	if err := tf.refresh(ctx); err != nil {
		return err
	}
	if _, _, err := d.reportFleet(ctx, tf, hub); err != nil {
		return err
	}
	if units, err = hub.units(ctx); err != nil {
		return err
	}
	reportQueue(d.out, units)
	return nil
}

// reportFleet shows the jobs that run, by the state and by the pods in their clusters, and what the hub has said of them; and that another
// plan has nothing to do. waiting means that a job has no cluster yet.
func (d demo) reportFleet(ctx context.Context, tf terraform, hub fleetCluster) (running snapshot, waiting bool, err error) {
	if err := tf.unchanged(ctx); err != nil {
		return nil, false, err
	}
	state, err := tf.state(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, j := range state {
		waiting = waiting || j.Cluster == ""
		if j.Status != "Running" {
			continue
		}
		if j.actual, err = d.placementOf(ctx, j); err != nil {
			return nil, false, err
		}
		running = append(running, j)
	}
	if err := reportState(d.out, running); err != nil {
		return nil, false, err
	}
	fmt.Fprintf(d.out, "\nWhat the hub has said of them (kubectl describe pytorchjob)\n\n")
	for _, j := range running {
		object, err := hub.objects.Resource(pytorchJobs).Namespace(metav1.NamespaceDefault).Get(ctx, j.Name, metav1.GetOptions{})
		if err != nil {
			return nil, false, fmt.Errorf("read %s of the hub: %w", j.Name, err)
		}
		events, err := hub.typed.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: fmt.Sprintf("reason=%s,involvedObject.uid=%s", scheduled, object.GetUID())})
		if err != nil {
			return nil, false, fmt.Errorf("read the events of %s: %w", j.Name, err)
		}
		for _, event := range events.Items {
			fmt.Fprintf(d.out, "  %s  %s  %s\n", j.Name, event.Reason, event.Message)
		}
	}
	return running, waiting, nil
}

// placementOf is where the members of a job run in its cluster, by what the scheduler there has recorded.
func (d demo) placementOf(ctx context.Context, j job) (placement []assignment.Model, err error) {
	c, err := d.connect(j.Cluster)
	if err != nil {
		return nil, err
	}
	pods, err := c.podsOf(ctx, j.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.Cluster, err)
	}
	for i, member := range inventory.MemberNames(pods) {
		record, _, err := contract.AllocationFrom(pods[i].Annotations)
		if err != nil {
			return nil, fmt.Errorf("pod %s in %s: %w", pods[i].Name, j.Cluster, err)
		}
		m := assignment.Model{Member: member, Node: pods[i].Spec.NodeName, RingGBps: record.RingGBps, NVLinkRings: int64(record.NVLinkRings)}
		for _, index := range record.GPUs {
			m.GPUs = append(m.GPUs, int64(index))
		}
		placement = append(placement, m)
	}
	inCluster(j.Cluster, placement)
	return placement, nil
}

// reportQueue shows the queue of the hub.
func reportQueue(w io.Writer, units []contract.QueueUnit) {
	fmt.Fprintf(w, "\nThe queue of the hub (kubectl get queueunits -o wide)\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  JOB\tPHASE\tPOSITION\tWHY IT WAITS")
	for _, unit := range units {
		position := ""
		if unit.Status.Position > 0 {
			position = strconv.Itoa(int(unit.Status.Position))
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", fleet.JobOf(unit.Spec.ConsumerRef), unit.Status.Phase, orNone(position), orNone(unit.Status.Message))
	}
	_ = table.Flush() // the same writer as everything else here
	fmt.Fprintln(w)
}

// firstOf is the first job that waits in a queue, "" for none.
func firstOf(units []contract.QueueUnit) string {
	for _, unit := range units {
		if unit.Status.Phase == contract.UnitEnqueued && unit.Status.Position == 1 {
			return fleet.JobOf(unit.Spec.ConsumerRef)
		}
	}
	return ""
}

// end has the pods of a job succeed.
func (d demo) end(ctx context.Context, j job) error {
	fmt.Fprintf(d.out, "==> end %s: its pods in %s get the annotation %s, and succeed\n", j.Name, j.Cluster, contract.RunForAnnotation)
	c, err := d.connect(j.Cluster)
	if err != nil {
		return err
	}
	pods, err := c.podsOf(ctx, j.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", j.Cluster, err)
	}
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "1s"}}}`, contract.RunForAnnotation)
	for _, pod := range pods {
		if _, err := c.typed.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("end pod %s in %s: %w", pod.Name, j.Cluster, err)
		}
	}
	return nil
}

// waitUntilRunning waits for a job that is the first of the queue.
func (d demo) waitUntilRunning(ctx context.Context, hub fleetCluster, job string) error {
	fmt.Fprintf(d.out, "==> wait until %s has left the queue, and runs\n", job)
	begin := time.Now()
	err := until(ctx, releaseTime, func(ctx context.Context) error {
		units, err := hub.units(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(units, func(unit contract.QueueUnit) bool { return fleet.JobOf(unit.Spec.ConsumerRef) == job })
		if i < 0 || units[i].Status.Phase != contract.UnitRunning {
			return fmt.Errorf("job %s does not run: kubectl describe pytorchjob %s says why", job, job)
		}
		return nil
	})
	if err == nil {
		fmt.Fprintf(d.out, "    done in %s\n", round(time.Since(begin)))
	}
	return err
}
