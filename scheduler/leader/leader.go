// Package leader lets one of several processes work that do the same.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Identity is one of this process.
func Identity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of the host: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// Lease is the object whose holder leads.
type Lease struct {
	Namespace, Name string
	// Identity is that of this process.
	Identity string
	// Duration is how long the others wait after a leader was heard of last.
	Duration time.Duration
}

// Run runs work while this process is the leader. It returns when ctx ends, when work
// does, or when another process leads; the process is then to end and to start again.
func Run(ctx context.Context, config *rest.Config, lease Lease, work func(context.Context) error) error {
	electing, cancel := context.WithCancel(ctx)
	defer cancel()
	// A client of its own: renewing must not wait behind other requests.
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "leader-election"))
	if err != nil {
		return fmt.Errorf("set up the client: %w", err)
	}
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: lease.Identity},
		},
		LeaseDuration: lease.Duration, RenewDeadline: lease.Duration * 2 / 3, RetryPeriod: lease.Duration / 8,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the election of a leader: %w", err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		elector.Run(electing)
	}()
	select {
	case <-stopped:
		return nil
	case led := <-leading:
		err = work(led)
	}
	cancel()
	<-stopped
	if err == nil && ctx.Err() == nil {
		return errors.New("this process is not the leader any more")
	}
	return err
}
