package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	clientset "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	mpicontroller "github.com/kubeflow/mpi-operator/pkg/controller"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// setUpMPIOperator adds the MPI operator's controller of MPIJob v2beta1 to a manager. It has clients and caches of
// its own, and makes no PodGroups.
func setUpMPIOperator(ctx context.Context, mgr ctrl.Manager, workers int) error {
	kube, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	jobs, err := clientset.NewForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	const resync = 10 * time.Hour
	core, own := informers.NewSharedInformerFactory(kube, resync), mpiinformers.NewSharedInformerFactory(jobs, resync)
	controller, err := mpicontroller.NewMPIJobController(ctx, kube, jobs, nil, nil,
		core.Core().V1().ConfigMaps(), core.Core().V1().Secrets(), core.Core().V1().Services(), core.Batch().V1().Jobs(),
		core.Core().V1().Pods(), core.Scheduling().V1().PriorityClasses(), own.Kubeflow().V2beta1().MPIJobs(), &options.ServerOption{ControllerRateLimit: 10, ControllerBurst: 100})
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		core.Start(ctx.Done())
		own.Start(ctx.Done())
		if err := controller.Run(workers, ctx.Done()); err != nil {
			return fmt.Errorf("run controller of MPIJob v2beta1: %w", err)
		}
		return nil
	}))
}
