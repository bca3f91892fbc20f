package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/joboperator/mpialpha"
)

// establishedTimeout bounds the wait for the API server to serve the CRDs.
const establishedTimeout = 60 * time.Second

// Folders below that of the CRDs: with the MPI operator's of MPIJob, which has the name of the training operator's,
// and with those of Kubeflow Trainer.
const (
	mpiOperatorCRDs = "mpi-operator"
	trainerCRDs     = "trainer"
)

// installCRDs applies every CRD in dir and waits until the API server serves it. That of MPIJob is the MPI operator's
// or the training operator's with v1alpha1 beside it.
func installCRDs(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, dir string, mpiOperator, trainer bool) error {
	if dir == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own folder: %w", err)
		}
		dir = filepath.Join(filepath.Dir(exe), "crds")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list CRDs in %s: %w", dir, err)
	}
	if len(files) == 0 {
		return fmt.Errorf("no CRDs in %s; run `make build`, or name their folder with --crd-dir", dir)
	}
	if trainer {
		own, err := filepath.Glob(filepath.Join(dir, trainerCRDs, "*.yaml"))
		if err != nil || len(own) == 0 {
			return fmt.Errorf("no CRDs of Kubeflow Trainer in %s; run `make build`", filepath.Join(dir, trainerCRDs))
		}
		files = append(files, own...)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	for _, file := range files {
		if own := filepath.Join(dir, mpiOperatorCRDs, filepath.Base(file)); mpiOperator && exists(own) {
			file = own
		}
		if err := installCRD(ctx, c, file, mpiOperator); err != nil {
			return fmt.Errorf("install CRD %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func installCRD(ctx context.Context, c client.Client, file string, mpiOperator bool) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	if crd.Name == mpialpha.CRDName && !mpiOperator {
		mpialpha.AddTo(crd)
	}
	if err := c.Patch(ctx, crd, client.Apply, client.FieldOwner("gpuplan-joboperator"), client.ForceOwnership); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, establishedTimeout, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return false, err
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}
