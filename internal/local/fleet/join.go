package fleet

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// account is what the hub is on a member cluster, in accountNamespace.
const account, accountNamespace = "gpuplan-hub", "kube-system"

var (
	clusterKind = schema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Kind: contract.KarmadaClusterKind}
	secretKind  = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
)

// Member is a cluster that joins.
type Member struct {
	Name string
	// URL is its API server's.
	URL string
	// Region is where it is.
	Region string
	Client *kube.Client
}

// Join registers a member cluster on the hub, which has Karmada's kinds, and returns once Karmada says that it reaches it.
func Join(ctx context.Context, hub *kube.Client, member Member) error {
	token, authority, err := credentials(ctx, member.Client)
	if err != nil {
		return fmt.Errorf("make an account for the hub: %w", err)
	}
	if err := forget(ctx, hub, member.Name); err != nil {
		return err
	}
	for _, object := range []*unstructured.Unstructured{
		object("v1", "Secret", contract.ClusterSecretsNamespace, member.Name, map[string]any{
			"data": map[string]any{"token": token, "caBundle": authority},
		}),
		cluster(member.Name, map[string]any{
			"spec": map[string]any{
				"syncMode": "Push", "apiEndpoint": member.URL, "region": member.Region,
				"secretRef": map[string]any{"namespace": contract.ClusterSecretsNamespace, "name": member.Name},
			},
		}),
	} {
		if _, err := hub.ApplyAs(ctx, manager, object); err != nil {
			return err
		}
	}
	last := ""
	_, err = hub.WaitFor(ctx, clusterKind, "", member.Name, func(cluster *unstructured.Unstructured) (bool, string, error) {
		ready, message := readiness(cluster)
		return ready, message, nil
	}, func(status string) { last = status })
	if err != nil {
		return fmt.Errorf("the hub does not reach it (%s): %w", last, err)
	}
	return nil
}

// forget takes back what Karmada said of a cluster when the platform ran before.
func forget(ctx context.Context, hub *kube.Client, name string) error {
	_, err := hub.Get(ctx, clusterKind, "", name)
	if kube.IsNotFound(err) {
		return nil
	}
	if err == nil {
		_, err = hub.ApplyAs(ctx, manager, cluster(name, map[string]any{"status": map[string]any{"conditions": []any{}}}), "status")
	}
	return err
}

// readiness tells whether Karmada reaches a cluster, and what it says if not.
func readiness(object *unstructured.Unstructured) (ready bool, message string) {
	cluster, err := contract.FleetClusterOf(object)
	if err != nil {
		return false, err.Error()
	}
	condition := cluster.Ready()
	if condition == nil {
		return false, "not looked at yet"
	}
	return condition.Status == metav1.ConditionTrue, cmp.Or(condition.Message, "no reason is given")
}

// Joined are the clusters that the hub of a fleet has, by name, each with what keeps Karmada from reaching it, "" for nothing.
func Joined(ctx context.Context, kubeconfig string) (map[string]string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	hub, err := kube.New(config)
	if err != nil {
		return nil, err
	}
	clusters, err := hub.List(ctx, clusterKind, "", "")
	if err != nil {
		return nil, err
	}
	joined := map[string]string{}
	for _, cluster := range clusters {
		ready, message := readiness(&cluster)
		if ready {
			message = ""
		}
		joined[cluster.GetName()] = message
	}
	return joined, nil
}

// credentials give the hub all rights on a member cluster, as Karmada needs them to propagate any object; in base64.
func credentials(ctx context.Context, member *kube.Client) (token, authority string, err error) {
	for _, object := range []*unstructured.Unstructured{
		object("v1", "ServiceAccount", accountNamespace, account, nil),
		object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", account, map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": account, "namespace": accountNamespace}},
		}),
		object("v1", "Secret", accountNamespace, account, map[string]any{"type": "kubernetes.io/service-account-token"}),
	} {
		if object.GetKind() == secretKind.Kind {
			object.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": account})
		}
		if _, err := member.ApplyAs(ctx, manager, object); err != nil {
			return "", "", err
		}
	}
	return tokenOf(ctx, member, accountNamespace, account)
}

// tokenOf waits for the token in a Secret of a service account, and returns it and the authority of the API server, in base64.
func tokenOf(ctx context.Context, client *kube.Client, namespace, name string) (token, authority string, err error) {
	_, err = client.WaitFor(ctx, secretKind, namespace, name, func(secret *unstructured.Unstructured) (bool, string, error) {
		data, _, err := unstructured.NestedStringMap(secret.Object, "data")
		token, authority = data["token"], data["ca.crt"]
		return token != "" && authority != "", "", err
	}, nil)
	if err != nil {
		return "", "", fmt.Errorf("wait for the token of %s: %w", name, err)
	}
	return token, authority, nil
}

func cluster(name string, fields map[string]any) *unstructured.Unstructured {
	return object(clusterKind.GroupVersion().String(), clusterKind.Kind, "", name, fields)
}

// object makes an object with the fields beside its name.
func object(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range fields {
		o.Object[field] = value
	}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}
