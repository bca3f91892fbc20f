package contract

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The job queue, as ack-kube-queue and its successor koord-queue have it.
const (
	// QueueControllerName is the name of the queue controller's Deployment and of its objects.
	QueueControllerName = "gpuplan-queue"
	// QueueNamespace holds the Queues.
	QueueNamespace = "kube-queue"

	QueueGroup        = "scheduling.x-k8s.io"
	QueueVersion      = "v1alpha1"
	QueueKind         = "Queue"
	QueueResource     = "queues"
	QueueUnitKind     = "QueueUnit"
	QueueUnitResource = "queueunits"

	// QueuePathAnnotation on a Queue is the path of its node of the quota tree,
	// "root/child-2". Queues are found by it and never by name, whose end is random.
	QueuePathAnnotation = "kube-queue/quota-fullname"
	// QueueCreatedLabel with QueueCreatedValue marks the Queues that belong to the tree.
	QueueCreatedLabel = "create-by-kubequeue"
	QueueCreatedValue = "true"

	// QueueAnnotation on a job is "true" for a job that is to be queued wherever it is,
	// and "false" for one that is suspended but not to be queued.
	QueueAnnotation = "gpuplan.dev/queue"

	// KueueQueueLabel on a job names the queue of Kueue that suspends it and lets it start.
	KueueQueueLabel = "kueue.x-k8s.io/queue-name"
	// ArrivalAnnotation on a QueueUnit orders jobs that were created in one second: the
	// resource version with which the job was created, as the controller saw it arrive,
	// or that of the ledger when the controller began and found the job there.
	ArrivalAnnotation = "gpuplan.dev/arrival"
	// ClassPriorityAnnotation on a QueueUnit is the priority that the controller gave it, by the
	// PriorityClass of the job's pods. One that differs is an edit by someone, and stays.
	ClassPriorityAnnotation = "gpuplan.dev/class-priority"
)

// QueueUnitName is the name of the unit of a job, as in koord-queue where that has the kind.
func QueueUnitName(kind, job string) string {
	switch kind {
	case PyTorchJobKind:
		return job + "-py-qu"
	case MPIJobKind:
		return job + "-mpi-qu"
	case JobSetKind:
		return job + "-js-qu"
	case TrainJobKind:
		return job + "-tj-qu"
	}
	return job
}

// QueuePolicy is the order in which the jobs of a queue start.
type QueuePolicy string

// Policies of queues.
const (
	// PolicyPriority starts by priority, then arrival, and passes over what must wait.
	PolicyPriority QueuePolicy = "Priority"
	// PolicyBlock starts in the same order, and nothing passes the first that must wait.
	PolicyBlock QueuePolicy = "Block"
)

// Queue belongs to one node of the quota tree.
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              QueueSpec   `json:"spec,omitempty"`
	Status            QueueStatus `json:"status,omitzero"`
}

// QueueSpec is for users to edit.
type QueueSpec struct {
	QueuePolicy QueuePolicy `json:"queuePolicy,omitempty"`
	// Priority orders queues that compete for the same limit, highest first.
	Priority *int32 `json:"priority,omitempty"`
}

// QueueStatus is what waits in a queue.
type QueueStatus struct {
	// Pending and Active count the jobs that wait, and those that have been released
	// and not finished, of a leaf or of all leaves below.
	Pending int32 `json:"pending"`
	Active  int32 `json:"active"`
	// QueueItemDetails lists the first of those that wait, under the key "active", as
	// far as they are in line, and "backoff".
	QueueItemDetails map[string][]QueueItemDetail `json:"queueItemDetails,omitempty"`
}

// QueueItemDetail is one unit in line.
type QueueItemDetail struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Priority  int32  `json:"priority"`
	Position  int32  `json:"position"`
}

// QueueUnit is one queued job.
type QueueUnit struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              QueueUnitSpec   `json:"spec,omitempty"`
	Status            QueueUnitStatus `json:"status,omitzero"`
}

// QueueUnitSpec describes the job.
type QueueUnitSpec struct {
	ConsumerRef corev1.ObjectReference `json:"consumerRef"`
	// Queue is the name of the Queue, "" as long as the job belongs to no leaf.
	Queue string `json:"queue,omitempty"`
	// Priority may be edited while the unit waits.
	Priority          *int32 `json:"priority,omitempty"`
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Resource is what all pods of the job request together.
	Resource corev1.ResourceList `json:"resource,omitempty"`
}

// QueueUnitPhase is where a unit stands.
type QueueUnitPhase string

// Phases of a unit.
const (
	UnitEnqueued QueueUnitPhase = "Enqueued"       // waits; its job is suspended
	UnitDequeued QueueUnitPhase = "Dequeued"       // released; its pods do not all run yet
	UnitRunning  QueueUnitPhase = "Running"        // its pods run
	UnitBackoff  QueueUnitPhase = "TimeoutBackoff" // its pods did not come to run; suspended again for a time
	UnitSucceed  QueueUnitPhase = "Succeed"
	UnitFailed   QueueUnitPhase = "Failed"
)

// QueueUnitStatus is where a unit stands.
type QueueUnitStatus struct {
	Phase QueueUnitPhase `json:"phase"`
	// Position in the queue counts from 1; 0 while the unit is not in line.
	Position int32 `json:"position,omitempty"`
	// Message says why the unit waits.
	Message string `json:"message,omitempty"`
	// Attempts counts how often the job was released.
	Attempts int64 `json:"attempts,omitempty"`
	// LastAllocateTime is when it was released last.
	LastAllocateTime *metav1.Time `json:"lastAllocateTime,omitempty"`
	// LastUpdateTime is when the phase changed last; of a job whose pods may not start, none.
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// RequeueState is set once the unit had to go back.
	RequeueState *RequeueState `json:"requeueState,omitempty"`
}

// RequeueState tells how often a unit went back, and when it is in line again.
type RequeueState struct {
	Count     int32        `json:"count,omitempty"`
	RequeueAt *metav1.Time `json:"requeueAt,omitempty"`
}
