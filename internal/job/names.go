package job

import "github.com/gpuplan/terraform-provider-gpuplan/internal/contract"

// objectName is the name of what is made for a replica of a job, or of the Job that is made for a role of a JobSet.
func objectName(job, role string, index int) string { return job + "-" + MemberName(role, index) }

// Object is an object of the job's namespace.
type Object struct{ Kind, Name string }

// Needs lists the objects of which two jobs may need one under the same name though they have names of their own: the
// Job that a job is or that is made for its roles, the Services of its replicas, and its unit in the job queue. An operator
// that finds such an object of another job makes none, and goes no further with the job (training operator v1.9.3
// pkg/controller.v1/common/service.go; mpi-operator v0.2.3 pkg/controllers/v1alpha1 and v0.6.0 pkg/controller; jobset v0.7.3
// pkg/controllers/jobset_controller.go); nor does the queue.
func (s Spec) Needs() (objects []Object) {
	if s.Queue {
		objects = append(objects, Object{contract.QueueUnitKind, s.QueueUnitName()})
	}
	return append(objects, s.operatorNeeds()...)
}

// QueueUnitName is the name of the job's unit in the job queue.
func (s Spec) QueueUnitName() string { return contract.QueueUnitName(s.Framework.GVK().Kind, s.Name) }

func (s Spec) operatorNeeds() (objects []Object) {
	switch {
	case s.Framework == Batch:
		return []Object{{contract.BatchJobKind, s.Name}}
	case s.Framework.AsJobSet():
		for _, name := range s.Children() {
			objects = append(objects, Object{contract.BatchJobKind, name})
		}
		if s.Framework == TrainJob {
			objects = append(objects, Object{contract.JobSetKind, s.Name}, Object{contract.TrainingRuntimeKind, s.Name})
		}
		return append(objects, Object{"Service", s.Name})
	case s.Version == contract.MPIAlphaVersion:
		return []Object{{contract.BatchJobKind, s.Launcher()}}
	case s.Version == contract.MPIOperatorVersion:
		return []Object{{contract.BatchJobKind, s.Launcher()}, {"Service", s.Name}}
	case s.Framework == PyTorch:
		for _, role := range s.RoleNames() {
			for i := range int(s.Roles[role].Replicas) {
				objects = append(objects, Object{"Service", objectName(s.Name, role, i)})
			}
		}
	}
	return objects
}
