package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// APIServer starts kube-apiserver and waits until it is ready.
func (c *ControlPlane) APIServer(ctx context.Context) error {
	server := options.NewServerRunOptions()
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
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
	}
	if c.options.EmulatedVersion != "" {
		// All parts in this process share the version that they emulate.
		args = append(args, "--emulated-version=kube="+c.options.EmulatedVersion)
	}
	if err := parse(server.Flags(), args); err != nil {
		return err
	}
	server.SecureServing.Listener = c.options.Listener
	if err := server.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed, err := server.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	c.api = c.start("kube-apiserver", func(ctx context.Context) error { return app.Run(ctx, completed) })

	client, err := c.client()
	if err != nil {
		return err
	}
	return c.api.wait(ctx, func(ctx context.Context) error {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil && string(body) != "ok" {
			err = errors.New(string(body))
		}
		return err
	})
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
