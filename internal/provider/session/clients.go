package session

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// loopbackPollInterval is the time between two looks at a task of an API on this
// machine, which has no request limit.
const loopbackPollInterval = 200 * time.Millisecond

func (s *Session) newACS() (*acs.Client, error) {
	if err := s.unknown(Region, ClusterID, AccessKey, SecretKey, SecurityToken, Endpoint); err != nil {
		return nil, err
	}
	for _, required := range []struct{ value, attribute, variables string }{
		{s.AccessKey, AccessKey, "ALIBABA_CLOUD_ACCESS_KEY_ID"},
		{s.SecretKey, SecretKey, "ALIBABA_CLOUD_ACCESS_KEY_SECRET"},
		{s.Region, Region, "ALIBABA_CLOUD_REGION_ID"},
		{s.ClusterID, ClusterID, "GPUPLAN_CLUSTER_ID"},
	} {
		if required.value == "" {
			return nil, fmt.Errorf("the provider has no %s: set it in the provider block or in the environment variable %s", required.attribute, required.variables)
		}
	}
	config := acs.Config{
		Credentials: acs.Credentials{AccessKeyID: s.AccessKey, AccessKeySecret: s.SecretKey, SecurityToken: s.SecurityToken},
		Region:      s.Region,
		Endpoint:    s.Endpoint,
		UserAgent:   s.UserAgent,
	}
	if isLoopback(s.Endpoint) {
		config.PollInterval = loopbackPollInterval
	}
	client, err := acs.New(config)
	if err != nil {
		return nil, fmt.Errorf("the provider cannot use the Container Service API: %w", err)
	}
	return client, nil
}

func (s *Session) newKube() (*kube.Client, error) {
	if err := s.unknown(Kubeconfig, KubeconfigContent, KubeContext); err != nil {
		return nil, err
	}
	config, err := kube.ConfigFrom(kube.Access{Path: s.Kubeconfig, Content: s.KubeconfigContent, Context: s.KubeContext})
	if err != nil {
		return nil, fmt.Errorf("the provider cannot use the Kubernetes API: %w. "+
			"Set kubeconfig, kubeconfig_content or kube_context in the provider block, or the environment variable KUBECONFIG", err)
	}
	config.UserAgent = s.UserAgent
	config.WarningHandler = rest.NoWarnings{}
	return kube.New(config)
}

// Unavailable reports whether err says that nothing could be asked yet, because the
// provider's configuration is unknown until apply or the cluster does not answer.
// A plan goes on without the check then, and says so.
func Unavailable(err error) bool {
	var unreachable *kube.UnreachableError
	return errors.Is(err, ErrUnknown) || errors.As(err, &unreachable)
}

func isLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
