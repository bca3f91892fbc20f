package localtest_test

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The states of a link.
const (
	linkOpen   = "open"
	linkClosed = "closed" // nobody listens
	linkSilent = "silent" // nothing arrives, in either direction
	linkDeaf   = "deaf"   // requests arrive, answers do not
)

// link is the way from the hub of a fleet to a member cluster, which faults cut while the cluster itself goes on.
type link struct {
	// address is where it begins, target where it leads.
	address, target string

	mu      sync.Mutex
	changed *sync.Cond
	state   string
	ends    []net.Conn
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{address: listener.Addr().String(), target: target, state: linkOpen}
	l.changed = sync.NewCond(&l.mu)
	t.Cleanup(func() {
		_ = listener.Close()
		l.set(linkClosed, true)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.connect(conn)
		}
	}()
	return l
}

func (l *link) connect(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer to.Close()
	l.mu.Lock()
	if l.state == linkClosed {
		l.mu.Unlock()
		return
	}
	l.ends = append(l.ends, from, to)
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pump(to, from, linkSilent) })
	both.Go(func() { l.pump(from, to, linkSilent, linkDeaf) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = slices.DeleteFunc(l.ends, func(end net.Conn) bool { return end == from || end == to })
}

// pump carries what comes from one end to the other, unless the link is in one of some states: then it waits.
func (l *link) pump(to, from net.Conn, held ...string) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		for slices.Contains(held, l.state) {
			l.changed.Wait()
		}
		l.mu.Unlock()
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// set changes the state; with lost, what is on its way is lost, else it arrives late.
func (l *link) set(state string, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost || state == linkClosed {
		for _, end := range l.ends {
			_ = end.Close() // its pump says so
		}
	}
	l.state = state
	l.changed.Broadcast()
}

// whole reports whether the link is open.
func (l *link) whole() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkOpen
}

// A link holds what comes while it is silent, and only the answers while it is deaf.
func TestLink(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	got := make(chan string, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				text := make([]byte, 1)
				for {
					if _, err := io.ReadFull(conn, text); err != nil {
						return
					}
					got <- string(text)
					_, _ = conn.Write(text)
				}
			}()
		}
	}()
	l := newLink(t, listener.Addr().String())
	conn, err := net.Dial("tcp", l.address)
	require.NoError(t, err)
	answer := func() error {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	ask := func(text string) {
		_, err := conn.Write([]byte(text))
		require.NoError(t, err)
	}
	ask("a")
	require.Equal(t, "a", <-got)
	eventually(t, "an answer", answer)

	l.set(linkDeaf, false)
	ask("b")
	require.Equal(t, "b", <-got)
	require.Error(t, answer())
	l.set(linkSilent, false)
	ask("c")
	require.Error(t, answer())
	require.Empty(t, got)
	l.set(linkOpen, false)
	require.Equal(t, "c", <-got)
	eventually(t, "the answer to b", answer)
	eventually(t, "the answer to c", answer)

	l.set(linkSilent, false)
	ask("d")
	require.Error(t, answer())
	l.set(linkOpen, true)
	eventually(t, "the connection is gone", func() error {
		if _, err := conn.Write([]byte("e")); err == nil {
			return io.ErrNoProgress
		}
		return nil
	})
	require.Empty(t, got)
	require.True(t, l.whole())
}
