package localtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// FreePort returns a port on which nobody listens, for a program that is to start. It is below
// those that the kernel gives to outgoing connections, so that none of them takes it meanwhile;
// and random, so that two calls do not return the same.
func FreePort(t testing.TB) int {
	t.Helper()
	first := 32768
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, err = fmt.Sscan(string(text), &first)
		require.NoError(t, err)
	}
	for range 100 {
		port := first/2 + rand.IntN(first/2)
		if listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	require.FailNow(t, "no port is free", "below %d", first)
	return 0
}
