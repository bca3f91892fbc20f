package trainingjob

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// find returns a job's object in whichever version has it; one that describes no pods in
// any as it is. The error is that of [kube.Client.Get].
func find(ctx context.Context, client *kube.Client, framework job.Framework, namespace, name string) (found *unstructured.Unstructured, err error) {
	for _, kind := range framework.Kinds() {
		obj, err := client.Get(ctx, kind, namespace, name)
		switch {
		case notServed(err):
			continue
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

// inVersion returns the job in the version of its kind in which it is to be created. The
// training operator's is the rule. A job for arena is an MPIJob v1alpha1, the only version that
// arena knows, when the cluster serves that and it can say all that the job asks for; so is
// every MPI job of a cluster that serves no other. forArena means that the cluster serves it.
func inVersion(client *kube.Client, spec job.Spec) (versioned job.Spec, forArena bool, err error) {
	kinds := spec.Framework.Kinds()
	if len(kinds) == 1 {
		return spec, false, nil
	}
	first, err := client.Serves(kinds[0])
	if err != nil || first && !spec.Arena {
		return spec, false, err
	}
	forArena, err = client.Serves(kinds[1])
	spec.Alpha = forArena && (!first || len(spec.AlphaFaults()) == 0)
	return spec, forArena, err
}

// faults says what the version of a job's kind cannot express of it, nil when there is nothing.
func faults(spec job.Spec) error {
	if !spec.Alpha {
		return nil
	}
	list := spec.AlphaFaults()
	if len(list) == 0 {
		return nil
	}
	texts := make([]string, len(list))
	for i, fault := range list {
		texts[i] = fault.Text
	}
	return fmt.Errorf("an MPIJob %s cannot say all of job %s: %s", spec.GVK().Version, spec.ID(), strings.Join(texts, "; "))
}
