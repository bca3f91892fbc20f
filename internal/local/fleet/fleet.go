// Package fleet makes a hub of a platform, and member clusters of others: it gives each the programs that it needs, and joins these to the hub.
package fleet

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	agent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// manager is who writes what this package applies.
const manager = "gpuplan-local"

var (
	crdKind        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
)

// Equip gives a member cluster the scheduler and the node agent, unless it has a scheduler, and waits until that runs.
// The platform's runner takes the programs beside its own, whatever the images are.
func Equip(ctx context.Context, member *kube.Client) error {
	_, err := member.Get(ctx, deploymentKind, contract.SystemNamespace, contract.SchedulerName)
	if err != nil && !kube.IsNotFound(err) {
		return err
	}
	if kube.IsNotFound(err) {
		programs, err := scheduler.Objects(scheduler.Options{Image: "gpuplan-scheduler:local", Replicas: 1})
		if err != nil {
			return err
		}
		agents, err := agent.Objects(agent.Options{Image: "gpuplan-node-agent:local"})
		if err != nil {
			return err
		}
		// The scheduler comes last: without it the next start tries again.
		if err := member.ApplyAll(ctx, slices.Concat(agents, programs), nil); err != nil {
			return err
		}
	}
	_, err = member.WaitFor(ctx, deploymentKind, contract.SystemNamespace, contract.SchedulerName, func(object *unstructured.Unstructured) (bool, string, error) {
		available, _, err := unstructured.NestedInt64(object.Object, "status", "availableReplicas")
		return available > 0, "", err
	}, nil)
	if err != nil {
		return fmt.Errorf("wait for the scheduler: %w", err)
	}
	return nil
}

// jobGroups are the API groups of jobs.
var jobGroups = []string{contract.KubeflowGroup, contract.JobSetGroup, contract.TrainerGroup}

// ServeJobs has the hub serve the kinds of jobs that a member cluster serves. Nothing runs them there.
func ServeJobs(ctx context.Context, hub, member *kube.Client) error {
	crds, err := member.List(ctx, crdKind, "", "")
	if err != nil {
		return err
	}
	crds = slices.DeleteFunc(crds, func(crd unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		return !slices.Contains(jobGroups, group)
	})
	if len(crds) == 0 {
		return errors.New("the member cluster serves no kind of job")
	}
	for _, crd := range crds {
		spec, _, err := unstructured.NestedMap(crd.Object, "spec")
		if err != nil {
			return err
		}
		copied := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		copied.SetGroupVersionKind(crdKind)
		copied.SetName(crd.GetName())
		if _, err := hub.ApplyAs(ctx, manager, copied); err != nil {
			return err
		}
	}
	return nil
}

// ServePrograms gives the hub the kinds of the job queue and of the quota tree, and its programs their accounts and rights.
func ServePrograms(ctx context.Context, hub *kube.Client) error {
	objects, err := scheduler.HubObjects()
	if err != nil {
		return err
	}
	return hub.ApplyAll(ctx, slices.Insert(objects, 0, object("v1", "Namespace", "", contract.ClusterSecretsNamespace, nil)), nil)
}

// Kubeconfig is one of the hub with the account of one of its programs, which [ServePrograms] has made.
func Kubeconfig(ctx context.Context, hub *kube.Client, program string) ([]byte, error) {
	encodedToken, encodedAuthority, err := tokenOf(ctx, hub, contract.SystemNamespace, program)
	if err != nil {
		return nil, err
	}
	token, err1 := base64.StdEncoding.DecodeString(encodedToken)
	authority, err2 := base64.StdEncoding.DecodeString(encodedAuthority)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("decode the token of %s: %w", program, err)
	}
	config := api.NewConfig()
	config.Clusters[program] = &api.Cluster{Server: hub.Config.Host, CertificateAuthorityData: authority}
	config.AuthInfos[program] = &api.AuthInfo{Token: string(token)}
	config.Contexts[program] = &api.Context{Cluster: program, AuthInfo: program}
	config.CurrentContext = program
	return clientcmd.Write(*config)
}
