package placement

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMemoryWords(t *testing.T) {
	for bytes, want := range map[int64]string{
		64 << 30: "64 GiB", 3 << 29: "1.5 GiB", 10 << 20: "10 MiB", 512 << 20: "512 MiB", 4 << 10: "4 KiB", 7: "7 B", 2 << 40: "2 TiB", 1 << 60: "1.049e+06 TiB",
	} {
		assert.Equal(t, want, memoryWords(bytes))
	}
}
