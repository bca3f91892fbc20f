package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/component-helpers/node/util/sysctl"
)

const (
	// socketWait is how long containerd may take until it listens.
	socketWait = 30 * time.Second
	// steadyAfter is how long a program must run for its end not to be that of the node.
	steadyAfter = 10 * time.Second
	// pluginDir is where device plugins and the kubelet meet; nothing moves it.
	pluginDir = "/var/lib/kubelet/device-plugins"
)

// KubeletCommand is how Boot calls this program as a kubelet; the file with its options follows.
const KubeletCommand = "kubelet"

// kernelSettings are those that a kubelet changes on its machine where they differ.
var kernelSettings = map[string]int{
	sysctl.VMOvercommitMemory: sysctl.VMOvercommitMemoryAlways,
	sysctl.VMPanicOnOOM:       sysctl.VMPanicOnOOMInvokeOOMKiller,
	sysctl.KernelPanic:        sysctl.KernelPanicRebootTimeout,
	sysctl.KernelPanicOnOops:  sysctl.KernelPanicOnOopsAlways,
	sysctl.RootMaxKeys:        sysctl.RootMaxKeysSetting,
	sysctl.RootMaxBytes:       sysctl.RootMaxBytesSetting,
}

// Boot is the first process of a node, in mounts and process numbers of its own, until ctx
// ends: it starts containerd and the kubelet as the files in the directory dir of the node say,
// and starts them again when they end. What it mounts nobody else sees.
func Boot(ctx context.Context, dir string) error {
	if os.Getpid() != 1 {
		return errors.New("this command is for the local platform, which starts it in namespaces of its own")
	}
	node := Node{Dir: dir}
	if err := mountAll(node); err != nil {
		return err
	}
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		return err
	}
	programs := []*program{
		{name: "containerd", path: containerd, args: []string{"--config", node.containerdConfig()}},
		// By this path the program is found wherever it lies; it may be in a folder that is hidden here.
		{name: KubeletCommand, path: "/proc/self/exe", args: []string{KubeletCommand, node.kubeletOptions()}},
	}
	if err := programs[0].start(); err != nil {
		return err
	}
	if err := waitForSocket(ctx, node.containerdSocket()); err != nil {
		return err
	}
	if err := programs[1].start(); err != nil {
		return err
	}
	return supervise(ctx, programs)
}

// program is one that Boot keeps running.
type program struct {
	name, path string
	args       []string
	pid        int
	started    time.Time
}

func (p *program) start() error {
	cmd := &exec.Cmd{Path: p.path, Args: append([]string{p.name}, p.args...), Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.pid, p.started = cmd.Process.Pid, time.Now()
	return nil
}

// supervise collects every process that ends, as the first process has to, and starts
// programs again that were killed or have run for a while.
func supervise(ctx context.Context, programs []*program) error {
	ended := make(chan error, 1)
	go func() {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, 0, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				ended <- fmt.Errorf("wait for processes: %w", err)
				return
			}
			for _, p := range programs {
				if p.pid != pid {
					continue
				}
				if !status.Signaled() && time.Since(p.started) < steadyAfter {
					ended <- fmt.Errorf("%s ended with code %d", p.name, status.ExitStatus())
					return
				}
				fmt.Fprintf(os.Stderr, "%s ended (%v); it starts again\n", p.name, status)
				if err := p.start(); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// waitForSocket waits until a program listens on the socket.
func waitForSocket(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, socketWait)
	defer cancel()
	for {
		connection, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd does not listen: %w", err)
		case <-time.After(20 * time.Millisecond): // it tells nobody when it does
		}
	}
}

// mountAll gives the node what it has in the place of this machine's: process numbers, empty
// folders /run and /var/lib, in which kubelet, containerd and runc have fixed places, and the
// settings of the kernel that a kubelet wants, so that it changes none.
func mountAll(node Node) error {
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("separate the mounts of the node: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// The data directory may lie in one of the folders that are hidden.
	platform := filepath.Dir(filepath.Dir(node.Dir))
	keep, err := os.Open(platform)
	if err != nil {
		return err
	}
	defer keep.Close()
	for _, folder := range []string{"/run", "/var/lib"} {
		if err := syscall.Mount("tmpfs", folder, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("hide %s: %w", folder, err)
		}
		if strings.HasPrefix(platform, folder+"/") {
			if err := bind(fmt.Sprintf("/proc/self/fd/%d", keep.Fd()), platform, true); err != nil {
				return err
			}
		}
	}
	if err := bind(node.DevicePlugins(), pluginDir, true); err != nil {
		return err
	}
	settings := "/run/sysctl"
	for name, value := range kernelSettings {
		file := filepath.Join(settings, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(value)+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(file, filepath.Join("/proc/sys", name), false); err != nil {
			return err
		}
	}
	// Volumes that the kubelet mounts have to show in containers.
	if err := syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts of the node with its containers: %w", err)
	}
	return nil
}

// bind mounts one directory or file at the place of another.
func bind(from, at string, makePlace bool) error {
	if makePlace {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount(from, at, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, at, err)
	}
	return nil
}
