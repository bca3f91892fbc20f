package server

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/registry"
)

// startRealNodes starts the nodes that were real, and the registry of their images, where
// there are such nodes or may be.
func (s *server) startRealNodes(ctx context.Context) error {
	there, err := realnode.List(s.Dir)
	if err != nil || s.RealNodes == 0 && len(there) == 0 {
		return err
	}
	return s.report.Do("real nodes", s.Dir.Log("server"), func() error {
		images, err := registry.New(filepath.Join(s.Programs, registry.Program))
		if err != nil {
			return err
		}
		listener, err := s.listen("images", 0)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: images, ReadHeaderTimeout: 10 * time.Second}
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				klog.Errorf("serve images: %v", err)
			}
		}()
		s.onStop(func(context.Context) { _ = server.Close() })
		s.real, err = realnode.Start(ctx, realnode.Options{
			Dir: s.Dir, Limit: s.RealNodes, Plane: s.plane, Processes: s.processes, Registry: listener.Addr().String(),
		})
		if err != nil {
			return err
		}
		s.onStop(func(context.Context) {
			if err := s.real.Stop(); err != nil {
				klog.Errorf("stop the real nodes: %v", err)
			}
		})
		return nil
	})
}
