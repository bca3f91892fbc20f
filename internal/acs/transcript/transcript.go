// Package transcript writes down what a client and the Container Service say to each
// other, without anything that tells whose account it is, and holds another service's
// answers against it. It serves tests.
package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Exchange is one request and its answer. Names and IDs are placeholders.
type Exchange struct {
	// Operation is what the client called it, "CreateClusterNodePool".
	Operation string `json:"operation"`
	Method    string `json:"method"`
	// Target is the path with the query.
	Target  string `json:"target"`
	Request any    `json:"request,omitempty"`
	Status  int    `json:"status"`
	Answer  any    `json:"answer,omitempty"`
}

// Transcript is a conversation.
type Transcript struct {
	// Origin says who answered, and when.
	Origin    string     `json:"origin"`
	Exchanges []Exchange `json:"exchanges"`
}

// Write writes the transcript to a file.
func (t Transcript) Write(path string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Read reads a transcript from a file.
func Read(path string) (Transcript, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Transcript{}, err
	}
	var t Transcript
	if err := json.Unmarshal(text, &t); err != nil {
		return Transcript{}, fmt.Errorf("%s is no transcript: %w", path, err)
	}
	return t, nil
}

// decode reads JSON, with numbers as they are written; what is no JSON becomes a text.
func decode(raw []byte) any {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return v
}
