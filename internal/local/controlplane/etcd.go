package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// Etcd starts etcd and waits until it answers. It listens on loopback for clients
// with a certificate, and has no peers. Data survives the end of this process at
// any point; it is not synced to disk, so it may not survive a power failure.
func (c *ControlPlane) Etcd(ctx context.Context) error {
	config := embed.NewConfig()
	config.Name = "gpuplan-" + c.options.Name
	config.Dir = c.path("etcd")
	client := url.URL{Scheme: "https", Host: "127.0.0.1:" + strconv.Itoa(c.options.EtcdPort)}
	config.ListenClientUrls = []url.URL{client}
	config.AdvertiseClientUrls = []url.URL{client}
	config.ListenPeerUrls = nil
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ClientTLSInfo = transport.TLSInfo{
		CertFile: c.server.etcdServing.CertFile, KeyFile: c.server.etcdServing.KeyFile,
		TrustedCAFile: c.authority.CAFile(), ClientCertAuth: true,
	}
	config.UnsafeNoFsync = true
	config.EnableGRPCGateway = false
	config.QuotaBackendBytes = 4 << 30
	config.AutoCompactionMode = embed.CompactorModePeriodic
	config.AutoCompactionRetention = "10m"
	// One member elects itself: no need to wait a second for others.
	config.ElectionMs = 5 * config.TickMs
	config.LogLevel = "error"
	config.LogOutputs = []string{c.options.EtcdLog}

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	c.etcd = etcd
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("not ready after a minute; see %s", c.options.EtcdLog)
	case <-ctx.Done():
		return ctx.Err()
	}
	go func() {
		if err, open := <-etcd.Err(); open && err != nil {
			c.failures <- fmt.Errorf("etcd stopped: %w", err)
		}
	}()
	return nil
}
