// Package ports chooses loopback ports and remembers them, so that addresses stay
// the same from one start to the next.
package ports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
)

// Chosen ports lie below the range from which the kernel takes the local ports of
// outgoing connections; one of these could take a port while the platform is down.
const (
	lowest  = 10000
	highest = 32767
)

// Book is the ports by name that were chosen before. It is safe for concurrent use.
type Book struct {
	file  string
	mu    sync.Mutex
	ports map[string]int
}

// Open reads a book; a missing file is an empty one.
func Open(file string) (*Book, error) {
	b := &Book{file: file, ports: map[string]int{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &b.ports); err != nil {
		return nil, fmt.Errorf("%s: %w; delete it to have new ports chosen", file, err)
	}
	return b, nil
}

// Listen opens the port of that name on loopback. A wanted port (not 0) must be
// free; otherwise the remembered port is taken, or a free one. moved is the
// remembered port when it was taken by someone else, 0 otherwise.
func (b *Book) Listen(name string, wanted int) (listener net.Listener, moved int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wanted != 0 {
		listener, err = listen(wanted)
		if err != nil {
			return nil, 0, fmt.Errorf("port %d for %s: %w; choose another one, or none to have one chosen", wanted, name, err)
		}
	}
	remembered := b.ports[name]
	if listener == nil && remembered != 0 {
		if listener, err = listen(remembered); err != nil {
			moved = remembered
		}
	}
	for attempt := 0; listener == nil; attempt++ {
		if attempt == 100 {
			return nil, 0, fmt.Errorf("no free port for %s among 100 tried between %d and %d: %w", name, lowest, highest, err)
		}
		listener, err = listen(lowest + rand.IntN(highest-lowest+1))
	}
	b.ports[name] = Of(listener)
	if err := datadir.WriteJSON(b.file, b.ports); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("remember the port of %s: %w", name, err), listener.Close())
	}
	return listener, moved, nil
}

// Of is the port of a listener that came from [Book.Listen].
func Of(listener net.Listener) int {
	return int(netip.MustParseAddrPort(listener.Addr().String()).Port())
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
}
