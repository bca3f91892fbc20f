package sibling

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// notes are what the processes that a command has ended leave to those that it starts after them, in a file of
// words each.
type notes struct {
	mu sync.Mutex
	// mine is this process's, nil before it writes, read are those of the others.
	mine   *os.File
	failed bool
	read   []string
}

// notesExtension is that of the files.
const notesExtension = ".notes"

// prefix begins the names of the files of a command, whose processes are unlike those of any command before it.
func (g *Group) prefix() (string, error) {
	command, err := g.command()
	return filepath.Join(g.folder, "gpuplan-"+command.name()+"-"), err
}

// Note leaves words, which have no spaces, to the processes that the command starts when this one has ended. What cannot be
// written is not left.
func (g *Group) Note(words []string) {
	if g == nil {
		return
	}
	g.notes.mu.Lock()
	defer g.notes.mu.Unlock()
	if g.notes.mine == nil && !g.notes.failed {
		file, err := g.createNotes()
		g.notes.mine, g.notes.failed = file, err != nil
	}
	if !g.notes.failed {
		_, err := fmt.Fprintln(g.notes.mine, strings.Join(words, " "))
		g.notes.failed = err != nil
	}
}

func (g *Group) createNotes() (*os.File, error) {
	prefix, err := g.prefix()
	if err != nil {
		return nil, err
	}
	self, _, err := g.processes()
	if err == nil && self == "" {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return os.OpenFile(prefix+self+notesExtension, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Noted returns what the processes of the command that have ended have left.
func (g *Group) Noted() (words []string) {
	if g == nil {
		return nil
	}
	prefix, err := g.prefix()
	if err != nil {
		return nil
	}
	self, others, err := g.processes()
	if err != nil {
		return nil
	}
	files, err := filepath.Glob(prefix + "*" + notesExtension)
	if err != nil {
		return nil
	}
	for _, name := range files {
		if slices.Contains(append(others, self), strings.TrimSuffix(strings.TrimPrefix(name, prefix), notesExtension)) {
			continue
		}
		if text, err := os.ReadFile(name); err == nil {
			words = append(words, strings.Fields(string(text))...)
			g.notes.mu.Lock()
			g.notes.read = append(g.notes.read, name)
			g.notes.mu.Unlock()
		}
	}
	return words
}

// removeRead removes the files that were read: the command makes no other walk.
func (n *notes) removeRead() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range n.read {
		_ = os.Remove(name) // it is a leftover at worst
	}
}
