package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/steps"
)

func TestQuote(t *testing.T) {
	for _, word := range []string{"plain", "with space", "it's", "$HOME `x` \"y\" \\"} {
		output, err := exec.Command("/bin/sh", "-c", "printf %s "+quote(word)).Output()
		require.NoError(t, err)
		assert.Equal(t, word, string(output))
	}
}

func TestProgressShowsTheFirstFailure(t *testing.T) {
	log := filepath.Join(t.TempDir(), "etcd.log")
	require.NoError(t, os.WriteFile(log, []byte("one\ntwo\n"), 0o600))
	var shown bytes.Buffer
	p := newProgress(&shown)
	for _, event := range []steps.Event{
		{Step: "certificates"}, {Step: "certificates", Done: true, Seconds: 0.25},
		{Note: "port 1 is taken"},
		{Step: "etcd"}, {Step: "etcd", Done: true, Seconds: 2, Error: "no space left", Log: log},
		{Step: "scheduler", Done: true, Error: "context canceled"},
	} {
		p.show(event)
	}
	assert.Equal(t, ""+
		"  certificates                 0.2 s\n"+
		"  note: port 1 is taken\n"+
		"  etcd                       failed after 2.0 s\n", shown.String())
	assert.EqualError(t, p.failure("server.log"), "etcd: no space left\nThe end of its log ("+log+"):\n  one\n  two")
	assert.False(t, p.ready)

	shown.Reset()
	p.show(steps.Event{Step: "cloud API"})
	p.remind(time.Now())
	assert.Empty(t, shown.String())
	p.remind(time.Now().Add(20 * time.Second))
	assert.Equal(t, "  cloud API                  still starting after 20 s\n", shown.String())
	p.show(steps.Event{Ready: true})
	assert.True(t, p.ready)
	assert.ErrorContains(t, newProgress(&shown).failure(log), "two", "a server that died without a word")
}
