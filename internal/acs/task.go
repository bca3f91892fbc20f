package acs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Task is a change that the service carries out in the background.
type Task struct {
	ID   string `json:"task_id"`
	Type string `json:"task_type"`
	// State is "running", "success", "failed" (also spelt "fail"), "paused", "canceled".
	State        string      `json:"state"`
	CurrentStage string      `json:"current_stage"`
	Stages       []TaskStage `json:"stages"`
	Target       TaskTarget  `json:"target"`
	// Error is set on failure.
	Error *TaskFault `json:"error"`
	// Results are per object, such as each add-on of an installation. A task can
	// succeed as a whole with a failed result.
	Results []TaskResult `json:"task_result"`
}

// TaskStage is one step of a task.
type TaskStage struct {
	State   string `json:"state"`
	Message string `json:"message"`
}

// TaskTarget is what the task changes.
type TaskTarget struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// TaskFault is why a task failed.
type TaskFault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// TaskResult is the outcome for one object.
type TaskResult struct {
	Data   json.RawMessage `json:"data"`
	Status string          `json:"status"`
}

// Message is the text of the latest stage that has one.
func (t Task) Message() string {
	for i := len(t.Stages) - 1; i >= 0; i-- {
		if t.Stages[i].Message != "" {
			return t.Stages[i].Message
		}
	}
	return ""
}

// TaskError is a task that did not succeed.
type TaskError struct {
	Task Task
	// Code and Message are the service's.
	Code, Message string
}

func (e *TaskError) Error() string {
	text := fmt.Sprintf("task %s (%s) ended as %q", e.Task.ID, e.Task.Type, e.Task.State)
	if e.Task.CurrentStage != "" {
		text += " in stage " + e.Task.CurrentStage
	}
	if e.Code != "" {
		text += ": " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if hint := taskHint(e.Code); hint != "" {
		text += "; " + hint
	}
	return text
}

func taskHint(code string) string {
	switch {
	case code == "InstanceTypeNoStock":
		return "choose another instance type or a vSwitch of another zone"
	case strings.HasPrefix(code, "QuotaExceed"):
		return "raise the account's quota for the instance family"
	case code == "InvalidVSwitchId.IpNotEnough":
		return "add a vSwitch with free addresses"
	}
	return ""
}

// Progress is what a wait reports each time something changed.
type Progress struct {
	// TaskID is "" for a wait that has no task.
	TaskID string
	// State is the state of the task, pool or add-on, Stage the task's current stage.
	State, Stage string
	// Message is the service's text, or the count of nodes.
	Message string
}

// String is one line for a log.
func (p Progress) String() string {
	var parts []string
	if p.TaskID != "" {
		parts = append(parts, "task "+p.TaskID)
	}
	for _, part := range []string{p.State, p.Stage, p.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// GetTask returns a task.
func (c *Client) GetTask(ctx context.Context, taskID string) (Task, error) {
	var task Task
	err := c.do(ctx, call{"DescribeTaskInfo", http.MethodGet, "/tasks/" + taskID, nil, nil}, &task)
	return task, err
}

// WaitTask waits until a task has succeeded, calling progress, if not nil, whenever its
// stage or message changed. A task that failed or was cancelled is a [*TaskError].
// States that the service does not document count as running.
func (c *Client) WaitTask(ctx context.Context, taskID string, progress func(Progress)) (Task, error) {
	var task Task
	err := c.poll(ctx, progress, func() (Progress, bool, error) {
		var err error
		if task, err = c.GetTask(ctx, taskID); err != nil {
			return Progress{TaskID: taskID}, false, err
		}
		now := Progress{taskID, task.State, task.CurrentStage, task.Message()}
		switch strings.ToLower(task.State) {
		case "success":
			return now, true, failedResult(task)
		case "fail", "failed", "canceled", "cancelled":
			return now, true, taskFailure(task)
		}
		return now, false, nil
	})
	return task, err
}

func taskFailure(task Task) error {
	e := &TaskError{Task: task, Message: task.Message()}
	if task.Error != nil {
		e.Code, e.Message = task.Error.Code, task.Error.Message
	}
	return e
}

// failedResult finds an object that failed within a task that succeeded.
func failedResult(task Task) error {
	for _, r := range task.Results {
		if s := strings.ToLower(r.Status); s == "fail" || s == "failed" {
			return &TaskError{Task: task, Message: "failed for " + string(r.Data)}
		}
	}
	return nil
}
