package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/ports"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/simulate"
)

func (s *server) startSimulation(context.Context) error {
	client, err := kubernetes.NewForConfig(s.plane.Config)
	if err != nil {
		return err
	}
	port, err := s.startKubelet(client)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.Dir.Log("kwok"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.onStop(func(context.Context) { cancel() })
	if err := simulate.StartVolumes(ctx, client, log); err != nil {
		return err
	}
	return simulate.Start(ctx, s.plane.Config, port, log)
}

// startKubelet serves the logs of simulated pods.
func (s *server) startKubelet(client kubernetes.Interface) (port int, err error) {
	config, err := s.plane.KubeletTLS()
	if err != nil {
		return 0, err
	}
	listener, err := s.listen("kubelet", 0)
	if err != nil {
		return 0, err
	}
	kubelet := &http.Server{Handler: simulate.Kubelet(client, filepath.Dir(s.Dir.Log(""))), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := kubelet.Serve(tls.NewListener(listener, config)); !errors.Is(err, http.ErrServerClosed) {
			klog.Errorf("serve the logs of simulated pods: %v", err)
		}
	}()
	s.onStop(func(context.Context) { _ = kubelet.Close() })
	return ports.Of(listener), nil
}
