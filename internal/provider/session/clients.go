package session

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/identity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// loopbackPollInterval is the time between two looks at a task of an API on this
// machine, which has no request limit.
const loopbackPollInterval = 200 * time.Millisecond

func (s Settings) newACS() (*acs.Client, error) {
	if err := s.unknown(Region, ClusterID, Endpoint, AccessKey, SecretKey, SecurityToken, Profile, SharedCredentialsFile,
		CredentialsURI, ECSRoleName, AssumeRole, AssumeRoleWithOIDC, STSEndpoint); err != nil {
		return nil, err
	}
	credentials, err := identity.New(s.Identity)
	if errors.Is(err, identity.ErrNone) {
		return nil, fmt.Errorf("%w: set access_key in the provider block, or the environment variable ALIBABA_CLOUD_ACCESS_KEY_ID, "+
			"or another of the ways to credentials that the provider's page lists", ErrNotConfigured)
	}
	if err != nil {
		return nil, fmt.Errorf("the provider has no credentials for the cloud: %w", err)
	}
	for _, required := range []struct{ value, attribute, variable string }{
		{s.Region, Region, "ALIBABA_CLOUD_REGION"},
		{s.ClusterID, ClusterID, "GPUPLAN_CLUSTER_ID"},
	} {
		if required.value == "" {
			return nil, fmt.Errorf("%w: set %s in the provider block, or the environment variable %s", ErrNotConfigured, required.attribute, required.variable)
		}
	}
	config := acs.Config{Credentials: credentials, Region: s.Region, Endpoint: s.Endpoint, NoHost: s.noRegion(), UserAgent: s.UserAgent}
	if isLoopback(s.Endpoint) {
		config.PollInterval = loopbackPollInterval
	}
	client, err := acs.New(config)
	if err != nil {
		return nil, fmt.Errorf("the provider cannot use the Container Service API: %w", err)
	}
	return client, nil
}

// noRegion says what to do where the region has no endpoint, "" for a region that is known.
func (s Settings) noRegion() string {
	if _, ok := catalog.LookupRegion(s.Region); ok || s.Endpoint != "" {
		return ""
	}
	var names []string
	for _, region := range catalog.Regions() {
		names = append(names, region.Name)
	}
	like := ""
	if near := catalog.Nearest(s.Region, names, 3); len(near) > 0 {
		like = " (but " + strings.Join(near, ", ") + ")"
	}
	return fmt.Sprintf("region %q has no endpoint, and this provider knows no such region%s: set %s in the provider block, or the environment variable ALIBABA_CLOUD_REGION, to the region of the cluster, "+
		"or %s where the API has an address of its own", s.Region, like, Region, Endpoint)
}

func (s Settings) newKube() (*kube.Client, error) {
	if err := s.unknown(Kubeconfig, KubeconfigContent, KubeContext); err != nil {
		return nil, err
	}
	config, err := kube.ConfigFrom(kube.Access{Path: s.Kubeconfig, Content: s.KubeconfigContent, Context: s.KubeContext})
	if errors.Is(err, kube.ErrNoSource) {
		return nil, fmt.Errorf("%w: set kubeconfig or kubeconfig_content in the provider block, or the environment variable KUBECONFIG", ErrNotConfigured)
	}
	if err != nil {
		return nil, fmt.Errorf("the provider's access to the Kubernetes API is wrong: %w", err)
	}
	config.UserAgent = s.UserAgent
	config.WarningHandler = rest.NoWarnings{}
	return kube.New(config)
}

func isLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
