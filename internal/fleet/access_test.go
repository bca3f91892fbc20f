package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// A member cluster is reached as its hub reaches it, or it is said what is missing for that.
func TestAccess(t *testing.T) {
	secret := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "karmada-cluster", Name: name}, Data: data}
	}
	hub := &kube.Client{Typed: fake.NewClientset(
		secret("m", map[string][]byte{"token": []byte("t"), "caBundle": []byte("ca")}),
		secret("empty", map[string][]byte{"caBundle": []byte("ca")}),
	)}
	const reached = `apiEndpoint: "https://m:6443", secretRef: {namespace: karmada-cluster, name: m}`
	trusted := rest.TLSClientConfig{CAData: []byte("ca")}
	for name, test := range map[string]struct {
		spec, says string
		tls        rest.TLSClientConfig
	}{
		"mode Push":     {spec: reached, tls: trusted},
		"mode Pull":     {spec: reached + ", syncMode: Pull", tls: trusted},
		"unverified":    {spec: reached + ", insecureSkipTLSVerification: true", tls: rest.TLSClientConfig{Insecure: true}},
		"no address":    {spec: "secretRef: {namespace: karmada-cluster, name: m}", says: "its Cluster needs an apiEndpoint and a secretRef"},
		"no Secret":     {spec: `apiEndpoint: "https://m:6443"`, says: "its Cluster needs an apiEndpoint and a secretRef"},
		"by a proxy":    {spec: reached + `, proxyURL: "http://p"`, says: "reached without proxyURL"},
		"no token":      {spec: `apiEndpoint: "https://m:6443", secretRef: {namespace: karmada-cluster, name: empty}`, says: "the Secret karmada-cluster/empty of the hub, by which it is reached, has no token: join it again"},
		"a Secret less": {spec: `apiEndpoint: "https://m:6443", secretRef: {namespace: karmada-cluster, name: other}`, says: "read the credentials of the hub"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := fleet.Access(t.Context(), hub, cluster(t, "{metadata: {name: m}, spec: {"+test.spec+"}}"))
			if test.says != "" {
				assert.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, &rest.Config{Host: "https://m:6443", BearerToken: "t", TLSClientConfig: test.tls}, config)
		})
	}
}
