// Package kubelet runs the kubelet of a real node, from Kubernetes' own module, in this
// process. The machine that it reports is one of the catalogue's, not this one: a node of
// 80 virtual CPUs offers these wherever it runs.
package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Port is where a kubelet serves the API server, on the address of its node.
const Port = 10250

// statusInterval is short, so that what device plugins offer shows at once.
const statusInterval = time.Second

// Machine is what the kubelet reports of its machine.
type Machine struct {
	CPUs                  int   `json:"cpus"`
	MemoryBytes           int64 `json:"memoryBytes"`
	EphemeralStorageBytes int64 `json:"ephemeralStorageBytes"`
	Pods                  int64 `json:"pods"`
	// ReservedMilliCPU is what pods do not get of the CPUs, in thousandths of one.
	ReservedMilliCPU int64 `json:"reservedMilliCPU"`
}

// Options say which node the kubelet serves.
type Options struct {
	Node    string  `json:"node"`
	Machine Machine `json:"machine"`
	// Address is the node's, an address of this machine.
	Address string `json:"address"`
	// Dir is the kubelet's root directory, LogDir the one for the logs of pods.
	Dir    string `json:"dir"`
	LogDir string `json:"logDir"`
	// Runtime is the path of containerd's socket.
	Runtime string `json:"runtime"`
	// CgroupRoot is the cgroup, which exists, below which those of pods are.
	CgroupRoot string `json:"cgroupRoot"`
	// Kubeconfig identifies the node to the API server. CertFile and KeyFile are what it serves
	// with, ClientCAFile is the authority of those whom it serves.
	Kubeconfig   string `json:"kubeconfig"`
	CertFile     string `json:"certFile"`
	KeyFile      string `json:"keyFile"`
	ClientCAFile string `json:"clientCAFile"`
}

// Run is the kubelet with the [Options] in a JSON file until ctx ends. A process runs at most one.
func Run(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var o Options
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	server, err := configure(o)
	if err != nil {
		return err
	}
	dependencies, err := app.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return fmt.Errorf("prepare the kubelet: %w", err)
	}
	config, err := access(o.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	dependencies.KubeClient, dependencies.EventClient, dependencies.HeartbeatClient = client, client.CoreV1(), client
	advisor, err := cadvisor.New(klog.FromContext(ctx), cadvisor.NewImageFsInfoProvider(server.ContainerRuntimeEndpoint), o.Dir,
		[]string{cm.NodeAllocatableRoot(o.CgroupRoot, server.CgroupsPerQOS, server.CgroupDriver)}, false, true)
	if err != nil {
		return fmt.Errorf("read the machine: %w", err)
	}
	dependencies.CAdvisorInterface = machine{Interface: advisor, Machine: o.Machine}
	return app.Run(ctx, server, dependencies, utilfeature.DefaultFeatureGate)
}

// configure is the kubelet's configuration where it is not Kubernetes' default.
func configure(o Options) (*options.KubeletServer, error) {
	flags := options.NewKubeletFlags()
	flags.KubeConfig = o.Kubeconfig
	flags.HostnameOverride = o.Node
	flags.NodeIP = o.Address
	flags.RootDirectory = o.Dir
	flags.CertDirectory = filepath.Join(o.Dir, "pki")
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	config.Address = o.Address
	config.Port = Port
	config.ReadOnlyPort, config.HealthzPort = 0, 0
	config.TLSCertFile, config.TLSPrivateKeyFile = o.CertFile, o.KeyFile
	config.Authentication.X509.ClientCAFile = o.ClientCAFile
	config.Authentication.Anonymous.Enabled = false
	config.ContainerRuntimeEndpoint = "unix://" + o.Runtime
	config.CgroupDriver, config.CgroupRoot = "cgroupfs", o.CgroupRoot
	config.FailCgroupV1 = false
	config.FailSwapOn = false
	config.MaxPods = int32(o.Machine.Pods)
	config.KubeReserved = map[string]string{"cpu": strconv.FormatInt(o.Machine.ReservedMilliCPU, 10) + "m"}
	config.PodLogsDir = o.LogDir
	config.VolumePluginDir = filepath.Join(o.Dir, "volume-plugins")
	config.SerializeImagePulls = false
	config.NodeStatusUpdateFrequency = metav1.Duration{Duration: statusInterval}
	// Pods have no DNS, and this machine's firewall is left alone.
	config.ResolverConfig = ""
	config.MakeIPTablesUtilChains = false
	// This machine's disk and memory are not those that the node reports.
	config.EvictionHard = map[string]string{}
	config.ImageGCHighThresholdPercent = 100
	return &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}, nil
}

// access is the node's access to the API server.
func access(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the node's access to the cluster: %w", err)
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return othersPods{next} })
	return config, nil
}

// othersPods lets the kubelet see all pods but those of gpuplan, whose programs the
// platform's runner starts.
type othersPods struct{ http.RoundTripper }

// RoundTrip adds a label selector to lists and watches of pods.
func (t othersPods) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && request.URL.Path == "/api/v1/pods" {
		request = request.Clone(request.Context())
		query := request.URL.Query()
		query.Set("labelSelector", contract.PartOfLabel+"!="+contract.PartOfValue)
		request.URL.RawQuery = query.Encode()
	}
	return t.RoundTripper.RoundTrip(request)
}

// machine is this machine with the size of another.
type machine struct {
	cadvisor.Interface
	Machine
}

// MachineInfo has the number of CPUs and the memory of the other machine.
func (m machine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	info, err := m.Interface.MachineInfo()
	if err != nil {
		return nil, err
	}
	other := *info
	other.NumCores, other.MemoryCapacity = m.CPUs, uint64(m.MemoryBytes)
	other.HugePages = nil
	return &other, nil
}

// RootFsInfo has the disk size of the other machine.
func (m machine) RootFsInfo() (cadvisorapiv2.FsInfo, error) {
	info, err := m.Interface.RootFsInfo()
	info.Capacity = uint64(m.EphemeralStorageBytes)
	return info, err
}
