package fleet

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

// without is an API server that does not serve a group, as one of an older version.
type without struct {
	http.RoundTripper
	group string
}

func (w without) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/apis/"+w.group+"/") {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
	}
	return w.RoundTripper.RoundTrip(r)
}

// A member cluster of before Kubernetes 1.34, which serves no classes of devices, is followed as any other.
func TestAMemberWithoutClassesOfDevices(t *testing.T) {
	w := newHubWorld(t, "{}")
	server := kubetest.Start(t)
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return without{next, "resource.k8s.io"} })
	assert.False(t, followsDevices(w.clusters["m"]))
	w.setCluster(t.Context(), object(t, strings.Replace(clusterText, "apiEnablements: [", "apiEnablements: [{groupVersion: resource.k8s.io/v1, resources: [{kind: DeviceClass}]}, ", 1)))
	assert.True(t, followsDevices(w.clusters["m"]))
	m, err := followMember(t.Context(), "hub", "m", "access", config, false, func() {}, func(string) {})
	require.NoError(t, err)
	require.Eventually(t, m.synced.Load, time.Minute, 10*time.Millisecond)
}
