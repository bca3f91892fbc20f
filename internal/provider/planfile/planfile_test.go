package planfile

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// A plan has the private data of its changes beside fields of all kinds; what is no plan is refused.
func TestPrivate(t *testing.T) {
	change := func(private string) []byte {
		m := protowire.AppendString(protowire.AppendTag(nil, 13, protowire.BytesType), "a.b")
		if private != "" {
			m = protowire.AppendString(protowire.AppendTag(m, 10, protowire.BytesType), private)
		}
		return protowire.AppendVarint(protowire.AppendTag(m, 12, protowire.VarintType), 3)
	}
	plan := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3)
	for _, private := range []string{"one", "", "two"} {
		plan = protowire.AppendBytes(protowire.AppendTag(plan, 3, protowire.BytesType), change(private))
	}
	plan = protowire.AppendBytes(protowire.AppendTag(plan, 18, protowire.BytesType), change("drift"))
	archive := func(name string, content []byte) string {
		file, err := os.Create(filepath.Join(t.TempDir(), "saved"))
		require.NoError(t, err)
		to := zip.NewWriter(file)
		entry, err := to.Create(name)
		require.NoError(t, err)
		_, err = entry.Write(content)
		require.NoError(t, err)
		require.NoError(t, to.Close())
		require.NoError(t, file.Close())
		return file.Name()
	}
	got, err := Private(archive("tfplan", plan))
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("one"), []byte("two")}, got)
	for name, file := range map[string]string{
		"no file": "nowhere", "cut off": archive("tfplan", plan[:len(plan)-1]), "another archive": archive("tfstate", plan), "encrypted": archive("tfplan", []byte("{}\xff\xff")),
	} {
		_, err := Private(file)
		assert.Error(t, err, name)
	}
}
