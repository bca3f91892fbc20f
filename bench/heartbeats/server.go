package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/controlplane"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/ports"
)

// serveCommand is the argument with which the program is an API server with etcd, in the folder that follows.
const serveCommand = "serve"

// In the folder of the API server kubeconfigFile is the administrator's, and readyFile there once it serves.
const kubeconfigFile, readyFile = "kubeconfig", "ready"

// serve runs the API server until ctx ends.
func serve(ctx context.Context, args []string, _, _ io.Writer) error {
	dir := args[1]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	forEtcd, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	etcdPort := ports.Of(forEtcd)
	if err := forEtcd.Close(); err != nil {
		return err
	}
	plane, err := controlplane.New(controlplane.Options{
		Name: "heartbeats", Dir: dir, Kubeconfig: filepath.Join(dir, kubeconfigFile), EtcdLog: filepath.Join(dir, "etcd.log"),
		Listener: listener, EtcdPort: etcdPort,
	})
	if err != nil {
		return err
	}
	err = plane.Etcd(ctx)
	if err == nil {
		_, err = plane.APIServer(ctx)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, readyFile), nil, 0o600)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-plane.Failures():
		}
	}
	stopping, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(err, plane.Stop(stopping))
}

// startServer starts this program as the API server, and waits until it serves.
func startServer(ctx context.Context, dir string) (*process.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server, err := process.Start(program, dir, serveCommand, dir)
	if err != nil {
		return nil, err
	}
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, readyFile)); missing == nil {
			return server, nil
		}
		if err = server.Failure(); err == nil {
			err = pause(ctx, 100*time.Millisecond)
		}
	}
	server.Stop()
	return nil, err
}
