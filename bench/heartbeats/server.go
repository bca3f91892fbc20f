package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/controlplane"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/ports"
)

// serveCommand is the argument with which the program is an API server with etcd, in the folder that follows.
const serveCommand = "serve"

// kubeconfigFile is the administrator's, in the folder of the API server.
const kubeconfigFile = "kubeconfig"

// serving is what the server prints once it does.
const serving = "serving"

// serve runs the API server until ctx ends.
func serve(ctx context.Context, args []string, out, _ io.Writer) error {
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
		fmt.Fprintln(out, serving)
		select {
		case <-ctx.Done():
		case err = <-plane.Failures():
		}
	}
	stopping, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(err, plane.Stop(stopping))
}

// server is the process of the API server.
type server struct {
	command *exec.Cmd
	log     string
}

// startServer starts this program as the API server, and waits until it serves.
func startServer(ctx context.Context, dir string) (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{command: exec.Command(program, serveCommand, dir), log: filepath.Join(dir, "apiserver.log")}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.command.Stderr = log
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	told, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	line := make(chan string, 1)
	go func() {
		first, _ := bufio.NewReader(told).ReadString('\n') // without one it has ended
		line <- strings.TrimSpace(first)
	}()
	select {
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.stop())
	case text := <-line:
		if text != serving {
			said, _ := os.ReadFile(s.log)
			return nil, errors.Join(fmt.Errorf("the API server does not start:\n%s", said[max(0, len(said)-2000):]), s.stop())
		}
	}
	return s, nil
}

func (s *server) stop() error {
	_ = s.command.Process.Signal(syscall.SIGTERM) // it may have ended
	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("the API server ended: %w", err)
	}
	return nil
}

// tick is the unit of CPU time in /proc: USER_HZ is 100 on every Linux that Go supports.
const tick = 10 * time.Millisecond

// cpu is the time that the process has used, user and system.
func (s *server) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.command.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("the API server has ended: %w", err)
	}
	// Field 2 is the program's name in brackets and may hold spaces; 14 and 15 are utime and stime.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// memoryMiB is the resident memory of the process.
func (s *server) memoryMiB() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.command.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("the API server has ended: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("the API server has no resident memory")
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib / 1024, err
}
