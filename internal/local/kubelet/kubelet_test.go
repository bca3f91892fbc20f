package kubelet

import (
	"net/http"
	"net/http/httptest"
	"testing"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

func TestConfigurationIsValid(t *testing.T) {
	server, err := configure(Options{
		Node: "n", Address: "198.18.0.2", Dir: "/d/kubelet", LogDir: "/d/pods", Runtime: "/d/containerd.sock", CgroupRoot: "/gpuplan-1/0",
		Machine: Machine{CPUs: 82, ReservedMilliCPU: 275, Pods: 64},
	})
	require.NoError(t, err)
	require.NoError(t, validation.ValidateKubeletConfiguration(&server.KubeletConfiguration, utilfeature.DefaultFeatureGate))
	assert.Equal(t, "275m", server.KubeReserved["cpu"])
	assert.False(t, server.Authentication.Anonymous.Enabled)
}

type thisMachine struct{ cadvisor.Interface }

func (thisMachine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{NumCores: 2, MemoryCapacity: 1 << 30, MachineID: "id", HugePages: []cadvisorapi.HugePagesInfo{{NumPages: 1}}}, nil
}

func TestMachine(t *testing.T) {
	info, err := machine{thisMachine{}, Machine{CPUs: 82, MemoryBytes: 5 << 30}}.MachineInfo()
	require.NoError(t, err)
	assert.Equal(t, &cadvisorapi.MachineInfo{NumCores: 82, MemoryCapacity: 5 << 30, MachineID: "id"}, info)
}

func TestPodsOfOursAreLeftToTheRunner(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("labelSelector"))
	}))
	defer server.Close()
	client := &http.Client{Transport: othersPods{http.DefaultTransport}}
	for _, path := range []string{"/api/v1/pods?fieldSelector=spec.nodeName%3Dn&watch=true", "/api/v1/nodes"} {
		answer, err := client.Get(server.URL + path)
		require.NoError(t, err)
		answer.Body.Close()
	}
	assert.Equal(t, []string{"app.kubernetes.io/part-of!=gpuplan", ""}, asked)
}

func TestMissingOptions(t *testing.T) {
	require.Error(t, Run(t.Context(), "/no/such/file"))
}
