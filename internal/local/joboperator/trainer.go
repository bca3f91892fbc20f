package main

import (
	"context"
	"fmt"

	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
)

// setUpTrainer adds Kubeflow Trainer's controllers of TrainJobs and their runtimes to a manager.
func setUpTrainer(ctx context.Context, mgr ctrl.Manager, workers int) error {
	runtimes, err := core.New(ctx, mgr.GetClient(), mgr.GetFieldIndexer())
	if err != nil {
		return err
	}
	if kind, err := controller.SetupControllers(mgr, runtimes, ctrlcontroller.Options{MaxConcurrentReconciles: workers}); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}
