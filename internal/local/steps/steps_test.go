package steps

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReportReachesTheOtherSide(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	recorder := NewRecorder(write)
	var followed []Event
	done := make(chan error)
	go func() { done <- Follow(read, func(e Event) { followed = append(followed, e) }) }()

	require.NoError(t, recorder.Do("etcd", "etcd.log", func() error { return nil }))
	recorder.Note("port %d moved", 7)
	cause := errors.New("no luck")
	err = recorder.Do("apiserver", "server.log", func() error { return cause })
	require.ErrorIs(t, err, cause)
	assert.EqualError(t, err, "apiserver: no luck")
	recorder.Ready()
	recorder.Note("nobody hears this")
	require.NoError(t, <-done, "the report ends when all is ready")

	require.Len(t, followed, 6)
	for i := range followed {
		followed[i].Seconds = 0
	}
	assert.Equal(t, []Event{
		{Step: "etcd"}, {Step: "etcd", Done: true},
		{Note: "port 7 moved"},
		{Step: "apiserver"}, {Step: "apiserver", Done: true, Error: "no luck", Log: "server.log"},
		{Ready: true},
	}, followed)
}

func TestNobodyListens(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	read.Close()
	recorder := NewRecorder(write)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { assert.NoError(t, recorder.Do("step", "", func() error { return nil })) })
	}
	all.Wait()
	recorder.Ready()
}
