package fleet

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Access is how a hub says that a member cluster is reached: by its address, with the token in a Secret of the hub.
func Access(ctx context.Context, hub *kube.Client, cluster *contract.FleetCluster) (*rest.Config, error) {
	ref := cluster.Spec.SecretRef
	switch {
	case cluster.Spec.APIEndpoint == "" || ref == nil:
		return nil, errors.New("the hub does not say how it is reached: its Cluster needs an apiEndpoint and a secretRef, as those of mode Push have them")
	case cluster.Spec.ProxyURL != "":
		return nil, errors.New("the hub reaches it by a proxy, which gpuplan does not know: its Cluster needs an apiEndpoint that is reached without proxyURL")
	}
	secret, err := hub.Typed.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the hub: %w", err)
	}
	if len(secret.Data["token"]) == 0 {
		return nil, fmt.Errorf("the Secret %s/%s of the hub, by which it is reached, has no token: join it again", ref.Namespace, ref.Name)
	}
	config := &rest.Config{Host: cluster.Spec.APIEndpoint, BearerToken: string(secret.Data["token"]), TLSClientConfig: rest.TLSClientConfig{
		CAData: secret.Data["caBundle"], Insecure: cluster.Spec.InsecureSkipTLSVerification,
	}}
	if config.Insecure {
		config.CAData = nil
	}
	return config, nil
}
