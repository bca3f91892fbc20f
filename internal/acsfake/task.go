package acsfake

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	taskRunning = "running"
	taskSuccess = "success"
	taskFailed  = "failed"
)

// step is one stage of a task.
type step struct {
	name, message string
	// poolState is the state of the task's pool from the beginning of the step, "" to leave it.
	poolState string
	// faulty marks the step after which a [Fault] of the task takes effect.
	faulty bool
	do     func(ctx context.Context, job *job) error
}

// job is a task in progress.
type job struct {
	id, target  string
	updateNodes bool
	force       bool
	fault       *Fault
}

// startTask puts a task behind those of the same target; the caller holds the lock.
func (s *Server) startTask(t TaskRecord) *TaskRecord {
	t.ID = "T-" + digest(24, s.opts.ClusterID, "task", strconv.Itoa(s.state.NextTask))
	s.state.NextTask++
	t.State, t.Created = taskRunning, s.clock.Now().UTC()
	t.Updated = t.Created
	s.state.Tasks = append(s.state.Tasks, &t)
	s.startNext(t.Target)
	return &t
}

// startNext runs the oldest waiting task of a target unless one is in progress; the
// caller holds the lock.
func (s *Server) startNext(target string) {
	if s.closed || s.active[target] {
		return
	}
	for _, t := range s.state.Tasks {
		if t.Target == target && t.State == taskRunning {
			s.active[target] = true
			t.Stages = nil
			run := job{id: t.ID, target: target, updateNodes: t.UpdateNodes, force: t.Force}
			steps := s.stepsOf(t)
			s.tasks.Go(func() { s.run(run, steps) })
			return
		}
	}
}

func (s *Server) stepsOf(t *TaskRecord) []step {
	switch t.Type {
	case taskCreatePool, taskModifyPool:
		return s.poolSteps(t)
	case taskModifyNodeConfig:
		return []step{{name: "update_node_config", message: "Update the configuration of the nodes.", poolState: poolUpdating, faulty: true, do: nothing}}
	case taskRemoveNodes:
		names := t.Nodes
		return []step{{name: "remove_nodes", message: fmt.Sprintf("Drain and remove %d nodes.", len(names)), poolState: poolRemoving, faulty: true, do: func(ctx context.Context, j *job) error {
			return s.removeNamed(ctx, j, names)
		}}}
	case taskDeletePool:
		return s.deletionSteps(t)
	case taskInstallAddon:
		return s.installSteps()
	case taskUpgradeAddon:
		return s.upgradeSteps()
	default:
		return s.uninstallSteps()
	}
}

// run carries a task out and starts the next one of its target.
func (s *Server) run(j job, steps []step) {
	j.fault = s.nextFault()
	err := s.perform(&j, steps)

	s.mu.Lock()
	s.active[j.target] = false
	if s.ctx.Err() == nil {
		s.finish(s.task(j.id), err, j.fault)
		s.startNext(j.target)
	}
	s.mu.Unlock()
	s.changed()
}

func (s *Server) perform(j *job, steps []step) error {
	for _, st := range steps {
		s.begin(j, st)
		s.changed()
		if err := s.wait((s.opts.TaskDuration + s.extra()) / time.Duration(len(steps))); err != nil {
			return err
		}
		err := st.do(s.ctx, j)
		if err == nil && st.faulty && j.fault != nil && !j.fault.Hidden {
			err = j.fault
		}
		s.end(j, err)
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Fault) Error() string { return f.Code + ": " + f.Message }

func (s *Server) extra() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knobs.ExtraTaskDuration
}

// wait lets time pass, until the server is closed at most.
func (s *Server) wait(d time.Duration) error {
	if d <= 0 {
		return s.ctx.Err()
	}
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-s.clock.After(d):
		return nil
	}
}

func (s *Server) begin(j *job, st step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.task(j.id), s.clock.Now().UTC()
	t.Stages, t.Updated = append(t.Stages, Stage{Name: st.name, State: taskRunning, Message: st.message, Start: now}), now
	if p := s.pool(j.target); p != nil && st.poolState != "" {
		p.State = st.poolState
	}
}

// say changes the message of the stage in progress.
func (s *Server) say(j *job, message string) {
	s.mu.Lock()
	t := s.task(j.id)
	t.Stages[len(t.Stages)-1].Message, t.Updated = message, s.clock.Now().UTC()
	s.mu.Unlock()
	s.changed()
}

func (s *Server) end(j *job, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.task(j.id), s.clock.Now().UTC()
	last := &t.Stages[len(t.Stages)-1]
	last.State, last.End, t.Updated = taskSuccess, now, now
	if err != nil {
		last.State, last.Message = taskFailed, err.Error()
	}
}

// finish records the end of a task; the caller holds the lock.
func (s *Server) finish(t *TaskRecord, err error, fault *Fault) {
	t.State, t.Updated = taskSuccess, s.clock.Now().UTC()
	if fault != nil && fault.Hidden {
		t.Fault = fault
	}
	if err != nil {
		t.State = taskFailed
		t.Fault = &Fault{Code: "TaskFailed", Message: err.Error()}
		if errors.As(err, &fault) {
			t.Fault = fault
		}
		if t.Fault.State != "" {
			t.State = t.Fault.State
		}
	}
	if p := s.pool(t.Target); p != nil {
		p.settle(t.Type, t.Fault, t.Updated)
	}
	finished := 0
	for _, other := range slices.Backward(s.state.Tasks) {
		if other.State != taskRunning {
			finished++
		}
		if finished > keptTasks {
			s.state.Tasks = slices.DeleteFunc(s.state.Tasks, func(x *TaskRecord) bool { return x == other })
			break
		}
	}
}

// describeTask is DescribeTaskInfo.
func (s *Server) describeTask(r *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.task(r.PathValue("task"))
	if t == nil {
		return nil, refuse(assumeNotFoundStatus, "ErrorTaskNotFound", "The task %s does not exist.", r.PathValue("task"))
	}
	stages, current := []map[string]any{}, ""
	for _, st := range t.Stages {
		stage := map[string]any{"state": st.State, "start_time": st.Start.Format(time.RFC3339), "message": st.Message, "outputs": []any{}}
		if !st.End.IsZero() {
			stage["end_time"] = st.End.Format(time.RFC3339)
		}
		stages, current = append(stages, stage), st.Name
	}
	answer := map[string]any{
		"task_id": t.ID, "cluster_id": s.opts.ClusterID, "task_type": t.Type, "state": t.State,
		"created": t.Created.Format(time.RFC3339), "updated": t.Updated.Format(time.RFC3339),
		"current_stage": current, "stages": stages, "events": []any{},
		"target":      map[string]any{"id": t.Target, "type": targetType(t.Type)},
		"task_result": t.results(),
		"parameters":  map[string]any{},
	}
	if t.Fault != nil && !t.Fault.Hidden {
		answer["error"] = map[string]any{"code": t.Fault.Code, "message": t.Fault.Message}
	}
	return answer, nil
}

func targetType(taskType string) string {
	if slices.Contains([]string{taskInstallAddon, taskUpgradeAddon, taskUninstallAddon}, taskType) {
		return "addon"
	}
	return "nodepool"
}

// results is the task_result: an array with one entry per object, also when only one
// object is concerned.
func (t *TaskRecord) results() []any {
	if t.State == taskRunning {
		return []any{}
	}
	status, data := "Success", map[string]any{"name": t.Target}
	if t.Fault != nil {
		status, data["message"] = "Failed", t.Fault.Code+": "+t.Fault.Message
	}
	return []any{map[string]any{"data": data, "status": status}}
}

// accepted is the answer to a request that started a task.
func accepted(r *request, t *TaskRecord) map[string]any {
	answer := map[string]any{"request_id": r.id, "task_id": t.ID}
	if targetType(t.Type) == "nodepool" {
		answer["nodepool_id"] = t.Target
	}
	return answer
}

var errPoolGone = refuse(http.StatusNotFound, "ErrorNodePoolNotFound", "the node pool is gone")
