package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/pki"
)

// namespace holds the pods of a run.
const namespace = "bench"

// cluster is a fresh control plane: etcd and kube-apiserver as processes of their own.
type cluster struct {
	bin, dir   string
	kubeconfig string
	client     *kube.Client
	// typed speaks protobuf, which costs the API server less than JSON.
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	etcd, api *process.Process
	// apart means that API server and etcd have one core for themselves, and this program
	// and what it starts another.
	apart bool
}

// startCluster starts a control plane in an empty folder.
func startCluster(ctx context.Context, bin, dir string, apart bool) (*cluster, error) {
	c := &cluster{bin: bin, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), apart: apart}
	var err error
	if apart {
		err = pin("0")
	}
	if err == nil {
		err = c.start(ctx)
	}
	if err == nil && apart {
		err = pin("1")
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	store, peer, serve := ports[0], ports[1], ports[2]
	c.etcd, err = startProcess(c.bin, c.dir, "etcd", "--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls="+loopback("http", store), "--advertise-client-urls="+loopback("http", store),
		"--listen-peer-urls="+loopback("http", peer), "--initial-advertise-peer-urls="+loopback("http", peer),
		"--initial-cluster=default="+loopback("http", peer),
		"--unsafe-no-fsync", "--quota-backend-bytes=4294967296", "--log-level=error")
	if err != nil {
		return err
	}
	args, err := c.credentials(loopback("https", serve))
	if err != nil {
		return err
	}
	c.api, err = startProcess(c.bin, c.dir, "kube-apiserver", append(args,
		"--etcd-servers="+loopback("http", store), "--secure-port="+strconv.Itoa(serve),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/16", "--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=AlwaysAllow", "--anonymous-auth=false",
		// Without controllers nobody makes service accounts or lifts the taint of new nodes.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--enable-priority-and-fairness=false", "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
		"--feature-gates=GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true",
		"--runtime-config=scheduling.k8s.io/v1alpha2=true")...)
	if err != nil {
		return err
	}
	return c.connect(ctx)
}

// credentials makes the certificates and the kubeconfig, and returns the API server's flags for them.
func (c *cluster) credentials(url string) ([]string, error) {
	authority, err := pki.Open(filepath.Join(c.dir, "pki"))
	if err != nil {
		return nil, err
	}
	serving, err1 := authority.Ensure("kube-apiserver", pki.Subject{CommonName: "kube-apiserver", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	admin, err2 := authority.Ensure("admin", pki.Subject{CommonName: "admin", Organization: "system:masters"})
	signing, err3 := authority.EnsureSigningKey()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	kubeconfig, err := authority.Kubeconfig("bench", url, admin)
	if err != nil {
		return nil, err
	}
	return []string{
		"--cert-dir=" + c.dir, "--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--client-ca-file=" + authority.CAFile(),
		"--service-account-key-file=" + signing.CertFile, "--service-account-signing-key-file=" + signing.KeyFile,
	}, os.WriteFile(c.kubeconfig, kubeconfig, 0o600)
}

// connect waits until the API server is ready.
func (c *cluster) connect(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	if c.typed, err = kube.Protobuf(config); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = poll(ctx, 50*time.Millisecond, func() error {
		_, err := c.typed.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}, c.etcd, c.api)
	if err != nil {
		return err
	}
	if c.client, err = kube.New(config); err != nil {
		return err
	}
	_, err = c.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return err
}

// define installs custom resources, and lists each once: the API server makes a
// client that is the first to read a new resource wait for a second.
func (c *cluster) define(ctx context.Context, crds []*unstructured.Unstructured) error {
	if err := c.client.ApplyAll(ctx, crds, nil); err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	for _, object := range crds {
		var crd apiextensions.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &crd); err != nil {
			return err
		}
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			resources := c.dynamic.Resource(schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural})
			tasks.Go(func() error {
				_, err := resources.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
				return err
			})
		}
	}
	return tasks.Wait()
}

// stop ends the control plane and removes its data.
func (c *cluster) stop() {
	for _, p := range []*process.Process{c.api, c.etcd} {
		if p != nil {
			p.Kill() // nothing of it is kept
		}
	}
	if c.apart {
		_ = pin(fmt.Sprintf("0-%d", goruntime.NumCPU()-1)) // it has worked before
	}
	_ = os.RemoveAll(filepath.Join(c.dir, "etcd")) // the folder of the run is removed later anyway
}

// poll calls check until it succeeds, a process ends, or ctx is over.
func poll(ctx context.Context, pause time.Duration, check func() error, processes ...*process.Process) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		for _, p := range processes {
			if failure := p.Failure(); failure != nil {
				return failure
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// startProcess starts a program of the folder bin.
func startProcess(bin, dir, name string, args ...string) (*process.Process, error) {
	p, err := process.Start(filepath.Join(bin, name), dir, args...)
	if err != nil {
		return nil, fmt.Errorf("%w (make -C bench/schedulers programs builds it)", err)
	}
	return p, nil
}

func loopback(scheme string, port int) string {
	return scheme + "://127.0.0.1:" + strconv.Itoa(port)
}

// freePorts finds loopback ports that nobody uses now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // only its number is wanted
		if address, ok := l.Addr().(*net.TCPAddr); ok {
			ports = append(ports, address.Port)
		}
	}
	return ports, nil
}
