package ports

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, file string) *Book {
	t.Helper()
	b, err := Open(file)
	require.NoError(t, err)
	return b
}

func TestPortsAreChosenAndRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports.json")
	a, moved, err := open(t, file).Listen("a", 0)
	require.NoError(t, err)
	assert.Zero(t, moved)
	assert.True(t, a.Addr().(*net.TCPAddr).IP.IsLoopback())
	first := Of(a)
	assert.GreaterOrEqual(t, first, lowest)
	assert.LessOrEqual(t, first, highest)
	b, _, err := open(t, file).Listen("b", 0)
	require.NoError(t, err)
	defer b.Close()
	assert.NotEqual(t, first, Of(b))

	a.Close()
	a, moved, err = open(t, file).Listen("a", 0)
	require.NoError(t, err)
	assert.Zero(t, moved)
	assert.Equal(t, first, Of(a), "the same at the next start")

	// It is still open: someone else has it.
	other, moved, err := open(t, file).Listen("a", 0)
	require.NoError(t, err)
	assert.Equal(t, first, moved)
	assert.NotEqual(t, first, Of(other))
	a.Close()
	other.Close()
	again, moved, err := open(t, file).Listen("a", 0)
	require.NoError(t, err)
	defer again.Close()
	assert.Zero(t, moved)
	assert.Equal(t, Of(other), Of(again), "the new port stays")
}

func TestWantedPort(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports.json")
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	wanted := Of(taken)
	_, _, err = open(t, file).Listen("a", wanted)
	assert.ErrorContains(t, err, "address already in use")
	assert.NoFileExists(t, file, "nothing is remembered")

	taken.Close()
	a, moved, err := open(t, file).Listen("a", wanted)
	require.NoError(t, err)
	defer a.Close()
	assert.Zero(t, moved)
	assert.Equal(t, wanted, Of(a))
}

func TestBrokenBook(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err := Open(file)
	assert.ErrorContains(t, err, "delete it")
}
