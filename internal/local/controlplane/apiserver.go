package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/ports"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

// auditPolicy is what the audit log has of each request.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// apiServerGrace is how long a kube-apiserver that is a program of its own may take to end.
const apiServerGrace = 10 * time.Second

// APIServer starts kube-apiserver, waits until it is ready, and returns its version, as in "v1.36.3".
func (c *ControlPlane) APIServer(ctx context.Context) (version string, err error) {
	args := []string{
		"--etcd-servers=https://127.0.0.1:" + strconv.Itoa(c.options.EtcdPort),
		"--etcd-cafile=" + c.authority.CAFile(),
		"--etcd-certfile=" + c.server.etcdClient.CertFile,
		"--etcd-keyfile=" + c.server.etcdClient.KeyFile,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// The endpoints of the service "kubernetes" may not be loopback addresses.
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + c.path("pki"),
		"--tls-cert-file=" + c.server.serving.CertFile,
		"--tls-private-key-file=" + c.server.serving.KeyFile,
		"--client-ca-file=" + c.authority.CAFile(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.server.signing.CertFile,
		"--service-account-signing-key-file=" + c.server.signing.KeyFile,
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC",
		"--anonymous-auth=false",
		"--allow-privileged=true",
		// Every simulated node's kubelet is on this machine, whatever the node's addresses. Real
		// nodes have no name, but an address.
		"--kubelet-preferred-address-types=InternalDNS,InternalIP",
		"--kubelet-certificate-authority=" + c.authority.CAFile(),
		"--kubelet-client-certificate=" + c.server.etcdClient.CertFile,
		"--kubelet-client-key=" + c.server.etcdClient.KeyFile,
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
	}
	if c.options.Audit != "" {
		policy := c.path("audit-policy.yaml")
		if err := os.WriteFile(policy, auditPolicy, 0o600); err != nil {
			return "", err
		}
		args = append(args, "--audit-log-path="+c.options.Audit, "--audit-policy-file="+policy)
	}
	run, err := c.apiServer(ctx, args)
	if err != nil {
		return "", err
	}
	c.api = c.start("kube-apiserver", run)

	client, err := c.client()
	if err != nil {
		return "", err
	}
	err = c.api.wait(ctx, func(ctx context.Context) error {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil && string(body) != "ok" {
			err = errors.New(string(body))
		}
		return err
	})
	if err != nil {
		return "", err
	}
	have, err := client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return have.GitVersion, nil
}

// KubeletTLS is how the kubelet of simulated nodes serves the API server, and nobody else.
func (c *ControlPlane) KubeletTLS() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.server.serving.CertFile, c.server.serving.KeyFile)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.authority.CAFile())
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}, nil
}

// apiServer prepares the API server to run with the arguments.
func (c *ControlPlane) apiServer(ctx context.Context, args []string) (run func(context.Context) error, err error) {
	if c.options.EmulatedVersion != "" {
		// All parts in this process share the version that they emulate.
		args = append(args, "--emulated-version=kube="+c.options.EmulatedVersion)
	}
	if c.options.APIServer != "" {
		return c.otherAPIServer(args)
	}
	server := options.NewServerRunOptions()
	if err := parse(server.Flags(), args); err != nil {
		return nil, err
	}
	server.SecureServing.Listener = c.options.Listener
	if err := server.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := server.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return func(ctx context.Context) error { return app.Run(ctx, completed) }, nil
}

// otherAPIServer prepares another kube-apiserver, which opens its port itself.
func (c *ControlPlane) otherAPIServer(args []string) (run func(context.Context) error, err error) {
	args = append(args, "--secure-port="+strconv.Itoa(ports.Of(c.options.Listener)))
	path, err := filepath.Abs(c.options.APIServer)
	if err != nil {
		return nil, err
	}
	if err := c.options.Listener.Close(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		server, err := c.options.Processes.Start(process.Spec{
			Name: "kube-apiserver", Path: path, Args: args, Dir: c.options.Dir, Output: os.Stderr,
		})
		if err != nil {
			return err
		}
		select {
		case <-server.Done():
			return fmt.Errorf("%s exited with code %d", path, server.ExitCode())
		case <-ctx.Done():
			server.Stop(apiServerGrace)
			return nil
		}
	}, nil
}

// parse applies arguments to the flags of a component.
func parse(sets cliflag.NamedFlagSets, args []string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}
