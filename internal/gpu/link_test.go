package gpu

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinkText(t *testing.T) {
	for text, want := range map[string]Link{
		"X":    {Class: Self},
		"NV1":  {Class: NVLink, Lanes: 1},
		"NV2":  {Class: NVLink, Lanes: 2},
		"NV18": {Class: NVLink, Lanes: 18},
		"PIX":  {Class: PIX},
		"PXB":  {Class: PXB},
		"PHB":  {Class: PHB},
		"NODE": {Class: NODE},
		"SYS":  {Class: SYS},
		"N-A":  {Class: None},
	} {
		link, err := ParseLink(text)
		require.NoError(t, err)
		assert.Equal(t, want, link)
		assert.Equal(t, text, link.String())

		encoded, err := json.Marshal(link)
		require.NoError(t, err)
		assert.JSONEq(t, `"`+text+`"`, string(encoded))
		var decoded Link
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		assert.Equal(t, want, decoded)
	}
	link, err := ParseLink("N/A")
	require.NoError(t, err)
	assert.Equal(t, Link{}, link)
}

func TestParseLinkRefuses(t *testing.T) {
	for _, text := range []string{"", "x", "NV", "NV0", "NV-1", "NV+1", "NV01", "NV65", "NV1 ", "nv1", "pix", "PIB", "GPU0"} {
		_, err := ParseLink(text)
		assert.ErrorContains(t, err, "want X, NV1 to NV64, PIX, PXB, PHB, NODE, SYS or N-A", "%q", text)
		assert.Error(t, new(Link).UnmarshalText([]byte(text)))
	}
}

func TestClassNames(t *testing.T) {
	assert.Equal(t, "NV", NVLink.String())
	assert.Equal(t, "Class(9)", Class(9).String())
}

func TestWeakerDirectionCounts(t *testing.T) {
	nv1, nv2, sys := Link{Class: NVLink, Lanes: 1}, Link{Class: NVLink, Lanes: 2}, Link{Class: SYS}
	assert.Equal(t, nv1, weaker(nv1, nv2))
	assert.Equal(t, nv1, weaker(nv2, nv1))
	assert.Equal(t, sys, weaker(nv2, sys))
	assert.Equal(t, sys, weaker(sys, nv2))
	assert.Equal(t, Link{}, weaker(sys, Link{}))
}
