// Package controlplane runs one Kubernetes control plane inside this process:
// etcd, kube-apiserver, kube-controller-manager and the stock kube-scheduler,
// from Kubernetes' own modules.
//
// A process holds at most one control plane, and starts it at most once: feature
// gates and registries of these components are global to the process.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	kubeversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/version"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/pki"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

// serviceCIDR holds the cluster IPs, apart from those of nodes and pods.
const serviceCIDR = "172.21.0.0/20"

// Options say where a control plane lives.
type Options struct {
	// Name tells control planes apart; it names the context of the kubeconfig.
	Name string
	// Dir holds the certificates and etcd's data, and is kept between runs.
	Dir string
	// Kubeconfig is the file to which the administrator's kubeconfig is written.
	Kubeconfig string
	// EtcdLog is the file for etcd's log.
	EtcdLog string
	// Audit is the file for Kubernetes' audit log, "" for none.
	Audit string
	// Listener is where the API server listens. It is closed with the control plane.
	Listener net.Listener
	// EtcdPort is the loopback port of etcd.
	EtcdPort int
	// EmulatedVersion is the older minor version that the control plane behaves like,
	// "1.34"; "" for its own.
	EmulatedVersion string
	// APIServer is a kube-apiserver program, of an older version of Kubernetes perhaps,
	// that runs in place of the built-in one; "" for none. Processes starts it.
	APIServer string
	Processes *process.Registry
	// Hub has no controllers that make something of templates, which the hub of a fleet keeps for its members.
	Hub bool
}

// ControlPlane is a control plane whose parts are started one by one, in the
// order Etcd, APIServer, then ControllerManager and Scheduler.
type ControlPlane struct {
	options Options
	// Config is the administrator's access, without client-side rate limits.
	Config *rest.Config

	authority *pki.Authority
	server    certificates
	etcd      *embed.Etcd
	api       *component
	clients   []*component
	failures  chan error
}

// certificates are the files that the components share.
type certificates struct {
	serving, signing, etcdServing, etcdClient, admin pki.Pair
	controllerManagerKubeconfig, schedulerKubeconfig string
}

// New makes what a control plane needs on disk: its certificates and kubeconfigs.
func New(options Options) (*ControlPlane, error) {
	authority, err := pki.Open(filepath.Join(options.Dir, "pki"))
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{options: options, authority: authority, failures: make(chan error, 4)}
	if err := c.writeCertificates(); err != nil {
		return nil, err
	}
	c.Config, err = clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig just written: %w", err)
	}
	c.Config.QPS = -1
	return c, nil
}

// URL is the address of the API server.
func (c *ControlPlane) URL() string { return "https://" + c.options.Listener.Addr().String() }

// Failures yields the error of a part that stopped by itself. The control plane
// is of no use then.
func (c *ControlPlane) Failures() <-chan error { return c.failures }

// Stop stops the parts in reverse order, each within the time that ctx leaves.
func (c *ControlPlane) Stop(ctx context.Context) error {
	var errs []error
	for _, client := range c.clients {
		client.cancel()
	}
	for _, client := range c.clients {
		errs = append(errs, client.stop(ctx))
	}
	if c.api != nil {
		errs = append(errs, c.api.stop(ctx))
	}
	if c.etcd != nil {
		c.etcd.Close()
	}
	return errors.Join(errs...)
}

func (c *ControlPlane) writeCertificates() error {
	loopback := net.IPv4(127, 0, 0, 1)
	var err error
	ensure := func(name string, subject pki.Subject) (pair pki.Pair) {
		if err == nil {
			pair, err = c.authority.Ensure(name, subject)
		}
		return pair
	}
	kubeconfig := func(file string, client pki.Pair) string {
		if err == nil {
			var data []byte
			if data, err = c.authority.Kubeconfig("gpuplan-"+c.options.Name, c.URL(), client); err == nil {
				err = os.WriteFile(file, data, 0o600)
			}
		}
		return file
	}
	c.server.serving = ensure("kube-apiserver", pki.Subject{
		CommonName: "kube-apiserver",
		DNSNames:   []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		// The second is the service "kubernetes", the first address of serviceCIDR.
		IPs: []net.IP{loopback, net.IPv4(172, 21, 0, 1)},
	})
	c.server.etcdServing = ensure("etcd", pki.Subject{CommonName: "etcd", DNSNames: []string{"localhost"}, IPs: []net.IP{loopback}})
	c.server.etcdClient = ensure("etcd-client", pki.Subject{CommonName: "kube-apiserver"})
	c.server.admin = ensure("admin", pki.Subject{CommonName: "gpuplan-admin", Organization: "system:masters"})
	controllerManager := ensure("kube-controller-manager", pki.Subject{CommonName: "system:kube-controller-manager"})
	scheduler := ensure("kube-scheduler", pki.Subject{CommonName: "system:kube-scheduler"})
	if err == nil {
		c.server.signing, err = c.authority.EnsureSigningKey()
	}
	kubeconfig(c.options.Kubeconfig, c.server.admin)
	c.server.controllerManagerKubeconfig = kubeconfig(c.path("kube-controller-manager.kubeconfig"), controllerManager)
	c.server.schedulerKubeconfig = kubeconfig(c.path("kube-scheduler.kubeconfig"), scheduler)
	return err
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.options.Dir, name) }

func (c *ControlPlane) client() (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.Config)
}

// component is a part of the control plane that runs until it is stopped.
type component struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// start runs a component in the background. When it ends before it is stopped,
// its error goes to failures.
func (c *ControlPlane) start(name string, run func(ctx context.Context) error) *component {
	ctx, cancel := context.WithCancel(context.Background())
	part := &component{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(part.done)
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it ended without an error")
		}
		part.err = fmt.Errorf("%s stopped: %w", name, err)
		c.failures <- part.err
	}()
	return part
}

func (p *component) stop(ctx context.Context) error {
	p.cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is still stopping: %w", p.name, ctx.Err())
	}
}

// wait polls check until it succeeds, the component ends, or ctx is over. The
// last error of check says what was missing.
func (p *component) wait(ctx context.Context, check func(ctx context.Context) error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.err
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, err)
		case <-ticker.C:
		}
	}
}

// oldestEmulated is the oldest minor version that Kubernetes 1.36 can behave like; gpuplan's scheduler refuses it.
const oldestEmulated = 33

// Emulated are the versions that the control plane can behave like, the newest first.
func Emulated() (versions []string) {
	newest := kubeversion.MustParse(version.DefaultKubeBinaryVersion)
	for minor := newest.Minor(); minor >= oldestEmulated; minor-- {
		versions = append(versions, fmt.Sprintf("%d.%d", newest.Major(), minor))
	}
	return versions
}
