package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// find returns a job's object in whichever version has it; one that describes no pods in
// any as it is. A JobSet that a TrainJob has become is no job. The error is that of [kube.Client.Get].
func find(ctx context.Context, client *kube.Client, framework job.Framework, namespace, name string) (found *unstructured.Unstructured, err error) {
	for _, kind := range framework.Kinds() {
		obj, err := client.Get(ctx, kind, namespace, name)
		if err == nil {
			err = join(ctx, client, obj)
		}
		switch {
		case notServed(err):
			continue
		case err == nil && framework == job.JobSet && job.PartOf(obj) != nil:
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: contract.JobSetResource}, name)
		case err != nil || job.Whole(obj):
			return obj, err
		}
		found = obj
	}
	if found == nil {
		return nil, kube.ErrNotServed
	}
	return found, nil
}

// inVersion returns the job in the version of its kind in which it is to be created: the training operator's where the
// cluster serves that, else the MPI operator's, else the oldest. A job for arena is an MPIJob v1alpha1, the only version
// that arena knows, when the cluster serves that and it can say all that the job asks for. forArena means that the cluster
// serves it. Of a cluster that serves none the job asks for one that can say all of it.
func inVersion(client *kube.Client, spec job.Spec) (versioned job.Spec, forArena bool, err error) {
	if spec.Framework != job.MPI {
		return spec, false, nil
	}
	if spec.Arena {
		spec.Version = contract.MPIAlphaVersion
		if forArena, err = client.Serves(spec.GVK()); err != nil || forArena && len(spec.VersionFaults()) == 0 {
			return spec, forArena, err
		}
	}
	versions := []string{"", contract.MPIOperatorVersion, contract.MPIAlphaVersion}
	for _, spec.Version = range versions {
		if served, err := client.Serves(spec.GVK()); err != nil || served {
			return spec, forArena, err
		}
	}
	can := slices.IndexFunc(versions, func(version string) bool {
		spec.Version = version
		return len(spec.VersionFaults()) == 0
	})
	spec.Version = versions[max(0, can)]
	return spec, false, nil
}

// elsewhere names the operator of a version that can say all of a job, "" where none can.
func elsewhere(spec job.Spec) string {
	for _, other := range []struct{ version, operator string }{{"", "the Kubeflow training operator 1.9"}, {contract.MPIOperatorVersion, "the MPI operator"}} {
		if spec.Version = other.version; len(spec.VersionFaults()) == 0 {
			return ", or use a cluster with " + other.operator
		}
	}
	return ""
}

// faults says what the version of a job's kind cannot express of it, nil when there is nothing.
func faults(spec job.Spec) error {
	list := spec.VersionFaults()
	if len(list) == 0 {
		return nil
	}
	texts := make([]string, len(list))
	for i, fault := range list {
		texts[i] = fault.Text
	}
	return fmt.Errorf("an MPIJob %s cannot say all of job %s: %s", spec.GVK().Version, spec.ID(), strings.Join(texts, "; "))
}
