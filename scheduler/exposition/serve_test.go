package exposition

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServe(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	var wrong atomic.Pointer[error]
	healthy := func() error {
		if err := wrong.Load(); err != nil {
			return *err
		}
		return nil
	}
	assert.ErrorContains(t, Serve(t.Context(), address, healthy), "serve metrics: ", "the port is taken")
	require.NoError(t, listener.Close())
	ctx, end := context.WithCancel(t.Context())
	defer end()
	require.NoError(t, Serve(ctx, address, healthy))
	get := func(path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(text)
	}
	code, text := get("/healthz")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ok", text)
	code, _ = get("/metrics")
	assert.Equal(t, http.StatusOK, code)
	stuck := errors.New("default/a has been looked at for 6m0s")
	wrong.Store(&stuck)
	code, text = get("/healthz")
	assert.Equal(t, http.StatusInternalServerError, code)
	assert.Contains(t, text, stuck.Error())
}
