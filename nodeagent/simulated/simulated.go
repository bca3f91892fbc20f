// Package simulated is the hardware of simulated nodes: a folder with one
// description file per node, <node>.json, in the form of [gpu.ParseMachine].
package simulated

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

const extension = ".json"

// Source is the description file of one node.
type Source struct {
	path    string
	changed chan struct{}
}

var _ hardware.Source = (*Source)(nil)

// Read reads the file.
func (s *Source) Read(context.Context) (hardware.Reading, error) {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return hardware.Reading{}, fmt.Errorf("read hardware description: %w", err)
	}
	machine, err := gpu.ParseMachine(data)
	if err != nil {
		return hardware.Reading{}, fmt.Errorf("hardware description %s: %w", s.path, err)
	}
	return hardware.Reading{Machine: machine}, nil
}

// Events returns nothing: a description file has no events.
func (s *Source) Events() []hardware.Signal { return nil }

// Changed receives a value after the file was written.
func (s *Source) Changed() <-chan struct{} { return s.changed }

func (s *Source) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // a change is already waiting to be read
	}
}

// Folder follows the description files of a folder.
type Folder struct {
	// Path is the folder's path.
	Path string
	// Serve is run in a goroutine of its own for each node, until its context ends:
	// when the node's file is removed, or Run's context ends.
	Serve func(ctx context.Context, node string, source hardware.Source)

	nodes   map[string]*served
	running sync.WaitGroup
}

type served struct {
	source *Source
	stop   context.CancelFunc
}

// Run serves the nodes of the folder, present and to come, until ctx ends. It
// returns when all calls of Serve have returned.
func (f *Folder) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch hardware descriptions: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(f.Path); err != nil {
		return fmt.Errorf("watch hardware descriptions in %s (does the folder exist?): %w", f.Path, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer f.running.Wait()
	defer stop()
	f.nodes = map[string]*served{}
	if err := f.scan(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			f.look(ctx, filepath.Base(event.Name))
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch hardware descriptions: %w", err)
			}
			if err := f.scan(ctx); err != nil {
				return err
			}
		}
	}
}

// scan looks at every file of the folder, and at those that were there before.
func (f *Folder) scan(ctx context.Context) error {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return fmt.Errorf("read hardware descriptions: %w", err)
	}
	for _, entry := range entries {
		f.look(ctx, entry.Name())
	}
	for node := range f.nodes {
		f.look(ctx, node+extension)
	}
	return nil
}

// look starts, notifies or stops the node whose file has changed.
func (f *Folder) look(ctx context.Context, name string) {
	node, ok := strings.CutSuffix(name, extension)
	if !ok || strings.HasPrefix(name, ".") {
		return
	}
	path := filepath.Join(f.Path, name)
	_, err := os.Stat(path)
	known := f.nodes[node]
	switch {
	case errors.Is(err, fs.ErrNotExist) && known != nil:
		known.stop()
		delete(f.nodes, node)
	case err == nil && known != nil:
		known.source.notify()
	case err == nil:
		nodeCtx, stop := context.WithCancel(ctx)
		source := &Source{path: path, changed: make(chan struct{}, 1)}
		f.nodes[node] = &served{source: source, stop: stop}
		f.running.Go(func() {
			defer stop()
			f.Serve(nodeCtx, node, source)
		})
	}
}
