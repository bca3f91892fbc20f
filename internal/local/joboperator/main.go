// Command gpuplan-joboperator runs the Kubeflow training operator's controllers
// for PyTorchJob and MPIJob (v1) against the local platform, one of its own for
// MPIJob v1alpha1, and JobSet's. In place of both for MPIJobs it can run the MPI operator's
// (v2beta1), and it can run Kubeflow Trainer's of TrainJobs. It opens no port, has no webhooks, and stops on SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	trainerv1alpha1 "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllerv1 "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
	"sigs.k8s.io/jobset/pkg/webhooks"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/joboperator/mpialpha"
)

func main() {
	// controller-runtime registers a kubeconfig flag of its own on the default flag set.
	flags := flag.NewFlagSet("gpuplan-joboperator", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of the kubeconfig of the control plane to serve (required)")
	crdDir := flags.String("crd-dir", "", "folder with the CRDs of the jobs; by default crds beside this program")
	mpiOperator := flags.Bool("mpi-operator", false, "run MPIJobs by the MPI operator (v2beta1) in place of the training operator (v1, v1alpha1), which one cluster cannot have both")
	trainer := flags.Bool("trainer", false, "run TrainJobs by Kubeflow Trainer")
	gangScheduler := flags.String("gang-scheduler-name", "", "scheduler that gangs are handed to by PodGroups; empty: gangs are marked by pod labels alone")
	// ExitOnError: Parse does not return an error.
	_ = flags.Parse(os.Args[1:])

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig, *crdDir, *gangScheduler, *mpiOperator, *trainer); err != nil {
		fmt.Fprintln(os.Stderr, "gpuplan-joboperator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, crdDir, gangScheduler string, mpiOperator, trainer bool) error {
	ctrl.SetLogger(zap.New())
	if kubeconfig == "" {
		return fmt.Errorf("--kubeconfig is required")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	cfg.QPS, cfg.Burst = 200, 400

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kubeflowv1.AddToScheme, podgroupv1alpha1.AddToScheme, jobset.AddToScheme, trainerv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("build scheme: %w", err)
		}
	}
	if err := installCRDs(ctx, cfg, scheme, crdDir, mpiOperator, trainer); err != nil {
		return err
	}

	// The operator reads the images of its init containers from a package variable.
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault

	cached := map[client.Object]cache.ByObject{&jobset.JobSet{}: {Transform: complete}}
	if !mpiOperator {
		cached[&kubeflowv1.MPIJob{}] = cache.ByObject{Transform: leaveToAlpha}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  cache.Options{ByObject: cached},
	})
	if err != nil {
		return fmt.Errorf("create controller manager: %w", err)
	}
	gang := common.GenNonGangSchedulerSetupFunc()
	if gangScheduler != "" {
		gang = common.GenSchedulerPluginsSetupFunc(mgr.GetClient(), gangScheduler)
	}
	const workers = 4
	if err := controllerv1.SupportedSchemeReconciler[kubeflowv1.PyTorchJobKind](mgr, gang, workers); err != nil {
		return fmt.Errorf("set up controller of PyTorchJob: %w", err)
	}
	if mpiOperator {
		err = setUpMPIOperator(ctx, mgr, workers)
	} else if err = controllerv1.SupportedSchemeReconciler[kubeflowv1.MPIJobKind](mgr, gang, workers); err == nil {
		err = mpialpha.SetUp(mgr)
	}
	if err != nil {
		return fmt.Errorf("set up controllers of MPIJob: %w", err)
	}
	if err := setUpJobSets(ctx, mgr); err != nil {
		return fmt.Errorf("set up controller of JobSet: %w", err)
	}
	if trainer {
		if err := setUpTrainer(ctx, mgr, workers); err != nil {
			return fmt.Errorf("set up controllers of TrainJob: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run controllers: %w", err)
	}
	return nil
}

// leaveToAlpha shows the training operator an MPIJob of the shape of v1alpha1 as one that
// another controller manages.
func leaveToAlpha(object any) (any, error) {
	if job, ok := object.(*kubeflowv1.MPIJob); ok && len(job.Spec.MPIReplicaSpecs) == 0 {
		job.Spec.RunPolicy.ManagedBy = ptr.To(kubeflowv1.MultiKueueController)
	}
	return object, nil
}

// setUpJobSets adds JobSet's controller to a manager, without the one for pods, which serves exclusive
// placement and needs webhooks.
func setUpJobSets(ctx context.Context, mgr ctrl.Manager) error {
	if err := controllers.SetupJobSetIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return controllers.NewJobSetReconciler(mgr.GetClient(), mgr.GetScheme(), mgr.GetEventRecorderFor("jobset")).SetupWithManager(mgr)
}

// complete shows JobSet's controller a JobSet with the defaults that its webhook writes, without which it
// does not work.
func complete(object any) (any, error) {
	set, ok := object.(*jobset.JobSet)
	if !ok {
		return object, nil
	}
	hook, err := webhooks.NewJobSetWebhook(nil)
	if err != nil {
		return nil, err
	}
	return set, hook.Default(context.Background(), set)
}
