// Package sibling tells the processes of this provider that one Terraform command runs of each
// other: Terraform starts one for each provider configuration (an alias), and tells none of the
// others. Each writes down what it is for, in a file in the folder for temporary files.
package sibling

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// patience is how long a sibling that has been started may take to be configured, again how long to
// wait between two looks.
const patience, again = 2 * time.Second, 20 * time.Millisecond

// Group is the processes of this provider that one command runs, as one of them sees it. A nil one
// has no others.
type Group struct {
	folder string
	parent int
	// processes names this process, "" where it cannot be told, and those that are its siblings now.
	processes func() (self string, others []string, err error)
	// command is the parent.
	command func() (process, error)
	// file is what this process has written down, "" for nothing.
	file  string
	notes notes
}

// New returns the group of this process. Where the processes of the machine cannot be listed, on
// Windows, it has no others.
func New() *Group {
	parent, self := os.Getppid(), os.Getpid()
	return &Group{
		folder: os.TempDir(), parent: parent,
		processes: func() (string, []string, error) { return siblings(parent, self) },
		command:   func() (process, error) { return processOf(parent) },
	}
}

// Meet writes down what this process is for, waits until its siblings have done so, and reports
// whether one of them is for the same cluster. A sibling that comes later meets this one.
func (g *Group) Meet(ctx context.Context, s Scope) (shared bool, err error) {
	if g == nil {
		return false, nil
	}
	self, _, err := g.processes()
	if err == nil && self != "" {
		err = g.write(self, s)
	}
	if err != nil {
		return false, fmt.Errorf("tell other provider configurations of this one: %w", err)
	}
	for begin := time.Now(); ; {
		_, others, err := g.processes()
		if err != nil {
			return false, fmt.Errorf("look for other provider configurations: %w", err)
		}
		waiting := false
		for _, process := range others {
			other, told := g.read(process)
			if told && s.overlaps(other) {
				return true, nil
			}
			waiting = waiting || !told
		}
		if !waiting || time.Since(begin) > patience {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(again):
		}
	}
}

// Leave removes what this process has written down.
func (g *Group) Leave() {
	if g != nil && g.file != "" {
		_ = os.Remove(g.file) // it is a leftover at worst, and named by a process that never comes again
	}
	if g != nil {
		g.notes.removeRead()
	}
}

func (g *Group) name(process string) string {
	return filepath.Join(g.folder, fmt.Sprintf("gpuplan-%d-%s.json", g.parent, process))
}

// write makes the file of this process at once: nobody reads a part of it.
func (g *Group) write(self string, s Scope) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(g.folder, "gpuplan-*.tmp")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), g.name(self))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the error says more
		return err
	}
	g.file = g.name(self)
	return nil
}

// read returns what another process has written down, if it has.
func (g *Group) read(process string) (s Scope, told bool) {
	text, err := os.ReadFile(g.name(process))
	return s, err == nil && json.Unmarshal(text, &s) == nil
}
