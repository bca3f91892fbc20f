package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
)

// stopTimeout is how long the server may take to stop before it is killed.
const stopTimeout = 40 * time.Second

// down stops the platform and returns when none of its processes is left.
func down(ctx context.Context, w io.Writer, dir datadir.Dir, purge bool) error {
	if _, err := os.Stat(string(dir)); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(w, "The platform is not running: there is no %s.\n", dir)
		return nil
	}
	begin := time.Now()
	stopped, err := stopServer(ctx, w, dir)
	if err != nil {
		return err
	}
	reaped, err := reap(dir)
	if err != nil {
		return err
	}
	if err := realnode.Clean(dir); err != nil {
		return err
	}
	switch {
	case stopped:
		fmt.Fprintf(w, "The platform is down (%.1f s).", time.Since(begin).Seconds())
	case len(reaped) > 0:
		fmt.Fprintf(w, "The platform was dead already; ended what it left behind: %v.", reaped)
	default:
		fmt.Fprint(w, "The platform is not running.")
	}
	if !purge {
		fmt.Fprintf(w, " Its data stays in %s.\n", dir)
		return nil
	}
	if err := dir.Purge(); err != nil {
		return err
	}
	fmt.Fprintf(w, " %s is deleted.\n", dir)
	return nil
}

// stopServer ends the process that holds the data directory; false when there is none.
func stopServer(ctx context.Context, w io.Writer, dir datadir.Dir) (bool, error) {
	holder, err := dir.Holder()
	if err != nil || holder == 0 {
		return false, err
	}
	server, err := process.Identify(holder)
	if err != nil {
		return true, nil // it has just ended
	}
	if err := server.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("stop the server (process %d): %w", holder, err)
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	for server.Alive() {
		select {
		case <-ticker.C:
		case <-timeout.C:
			fmt.Fprintf(w, "The server did not stop within %s and is killed.\n", stopTimeout)
			if err := server.Kill(); err != nil {
				return false, fmt.Errorf("kill the server (process %d): %w", holder, err)
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

// reap ends processes that a killed server left behind, first its own, of which some start those of member clusters.
func reap(dir datadir.Dir) (reaped []string, err error) {
	dirs := []datadir.Dir{dir}
	for _, name := range dir.Members() {
		dirs = append(dirs, dir.Member(name))
	}
	for _, dir := range dirs {
		registry, err := process.Open(filepath.Join(dir.Run(), "processes"))
		if err != nil {
			return nil, err
		}
		ended, err := registry.Reap()
		if err != nil {
			return nil, err
		}
		reaped = append(reaped, ended...)
	}
	return reaped, nil
}
