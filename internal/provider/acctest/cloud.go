// Package acctest runs acceptance tests of the provider through the real terraform
// binary, against an emulated cloud and a small Kubernetes API server in the test's
// own process, or against a whole local platform.
package acctest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
)

// What the emulated cloud is called and signed with.
const (
	ClusterID = "c-acctest"
	Region    = "cn-hangzhou"
	accessKey = "LTAIacctest"
	secretKey = "secret-of-acctest"
	// UserToken is the secret in the kubeconfig that the emulated cloud gives to users.
	UserToken = "token-of-acctest"
)

// Providers are the provider under test, for [resource.TestCase].
func Providers() map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"gpuplan": func() (tfprotov6.ProviderServer, error) { //nolint:unparam // the type is terraform-plugin-testing's
			return server.New(provider.New("test", provider.Command{})(), server.Command{}), nil
		},
	}
}

// Cloud is an emulated cloud whose nodes appear in a Kubernetes API server.
type Cloud struct {
	ACS *acsfake.Server
	// Endpoint is the URL of the emulated Container Service API.
	Endpoint string
	// API is the Kubernetes API server, Kube a client of it, Kubeconfig the path of its kubeconfig.
	API        *kubetest.Server
	Kube       *kube.Client
	Kubeconfig string
}

// StartCloud starts a cloud that ends with the test, and puts the provider's access
// to it into the environment.
func StartCloud(t testing.TB, options ...func(*acsfake.Options)) *Cloud {
	t.Helper()
	ClearEnv(t)
	c := &Cloud{API: kubetest.Start(t)}
	opts := acsfake.Options{
		ClusterID: ClusterID, Region: Region, KubernetesVersion: "1.36.3",
		Kubeconfig:  kubeconfigOf(t, c.API.Config().Host, UserToken),
		AccessKeyID: accessKey, AccessKeySecret: secretKey,
		Backend: &nodes{api: c.API},
	}
	for _, option := range options {
		option(&opts)
	}
	var err error
	c.ACS, err = acsfake.New(opts)
	require.NoError(t, err)
	server := httptest.NewServer(c.ACS)
	t.Cleanup(func() {
		server.Close()
		c.ACS.Close()
	})
	c.Endpoint = server.URL
	c.Kube, err = kube.New(c.API.Config())
	require.NoError(t, err)
	c.Kubeconfig = t.TempDir() + "/kubeconfig"
	WriteKubeconfig(t, c.Kubeconfig, c.API.Config().Host)

	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", accessKey)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", secretKey)
	t.Setenv("ALIBABA_CLOUD_REGION_ID", Region)
	t.Setenv("GPUPLAN_CLUSTER_ID", ClusterID)
	t.Setenv("GPUPLAN_CS_ENDPOINT", c.Endpoint)
	t.Setenv("KUBECONFIG", c.Kubeconfig)
	return c
}

// Credentials are those of the emulated service.
func (c *Cloud) Credentials() acs.Credentials {
	return acs.Credentials{AccessKeyID: accessKey, AccessKeySecret: secretKey}
}

// configures are the names of what the provider and terraform read, which those of this project's tests are not.
var configures = regexp.MustCompile(`^((ALICLOUD|ALIBABA_?CLOUD)_.*|(GPUPLAN_)?(CS|STS)_ENDPOINT|GPUPLAN_(CLUSTER_ID|KUBE_CONTEXT|OWNER|PLACEMENT_CHECK)|KUBECONFIG|KUBERNETES_SERVICE_HOST|TF_CLI_CONFIG_FILE)$`)

// ClearEnv takes what the provider and terraform read from the environment out of it. Where the tests run with
// OpenTofu, it tells [resource.TestCase], which takes every terraform for HashiCorp's.
func ClearEnv(t testing.TB) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); configures.MatchString(name) {
			t.Setenv(name, "")
		}
	}
	t.Setenv("ALIBABA_CLOUD_CLI_PROFILE_DISABLED", "true")
	if path := binary(t); strings.HasPrefix(filepath.Base(path), "tofu") {
		host, _, _ := strings.Cut(openTofu, "/")
		t.Setenv("TF_ACC_TERRAFORM_PATH", path)
		t.Setenv("TF_ACC_PROVIDER_HOST", host)
		t.Setenv("TF_ACC_PROVIDER_NAMESPACE", "hashicorp")
	}
}

// WriteKubeconfig writes a kubeconfig for a server without authentication.
func WriteKubeconfig(t testing.TB, path, host string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(kubeconfigOf(t, host, "")), 0o600))
}

// Intercept has the provider's requests to the API server come to answers first, which reports whether it has answered one.
func (c *Cloud) Intercept(t testing.TB, answers func(w http.ResponseWriter, r *http.Request) bool) {
	t.Helper()
	target, err := url.Parse(c.API.Config().Host)
	require.NoError(t, err)
	next := httputil.NewSingleHostReverseProxy(target)
	before := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers(w, r) {
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(before.Close)
	WriteKubeconfig(t, c.Kubeconfig, before.URL)
}

// kubeconfigOf is a kubeconfig for a server, for a user with a token, "" for none.
func kubeconfigOf(t testing.TB, host, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: host}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return string(text)
}

// nodes turns the cloud's nodes into ready nodes of the API server.
type nodes struct{ api *kubetest.Server }

func (b *nodes) EnsureNode(_ context.Context, n acsfake.Node) error {
	object, err := Node(n)
	if err != nil {
		return err
	}
	b.api.Put(object)
	return nil
}

func (b *nodes) UpdateNode(ctx context.Context, _, n acsfake.Node) error { return b.EnsureNode(ctx, n) }

func (b *nodes) DeleteNode(_ context.Context, n acsfake.Node) error {
	b.api.Remove(corev1.SchemeGroupVersion.WithKind("Node"), "", n.Name)
	return nil
}

// Node is a ready Kubernetes node as the catalogue describes it.
func Node(n acsfake.Node) (*unstructured.Unstructured, error) {
	labels := map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelHostname: n.Name}
	for key, value := range n.Labels {
		labels[key] = value
	}
	node := corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels, CreationTimestamp: metav1.NewTime(n.Created)},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, t := range n.Taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	if it, ok := catalog.Lookup(n.InstanceType); ok {
		q, err := catalog.Allocatable(it, n.Mode, catalog.Setup{})
		if err != nil {
			return nil, err
		}
		node.Status.Allocatable[corev1.ResourceCPU] = *resource.NewMilliQuantity(q.MilliCPU, resource.DecimalSI)
		node.Status.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(q.MemoryBytes, resource.BinarySI)
		node.Status.Allocatable[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(q.EphemeralStorageBytes, resource.BinarySI)
		node.Status.Allocatable[corev1.ResourcePods] = *resource.NewQuantity(q.Pods, resource.DecimalSI)
		for name, count := range q.Extended {
			node.Status.Allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&node)
	return &unstructured.Unstructured{Object: content}, err
}
