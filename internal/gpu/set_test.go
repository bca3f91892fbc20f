package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSet(t *testing.T) {
	s := SetOf(7, 0, 63, 4)
	assert.Equal(t, 4, s.Len())
	assert.True(t, s.Has(63))
	assert.False(t, s.Has(1))
	assert.Equal(t, []int{0, 4, 7, 63}, s.GPUs())
	assert.Equal(t, "0,4,7,63", s.String())
	assert.Empty(t, Set(0).String())
	assert.Equal(t, SetOf(0, 4), s.first(2))
	assert.Equal(t, 4, (s &^ 1).lowest())

	assert.Equal(t, Set(0), Full(0))
	assert.Equal(t, Set(0xff), Full(8))
	assert.Equal(t, 64, Full(64).Len())
	assert.Equal(t, 64, Full(99).Len())
}

func TestSetsAreOrderedLikeListsOfGPUs(t *testing.T) {
	ordered := []Set{SetOf(0, 1), SetOf(0, 3), SetOf(1, 2), SetOf(2, 3)}
	for i, a := range ordered {
		for j, b := range ordered {
			assert.Equal(t, i < j, a.before(b), "%v before %v", a, b)
		}
	}
}
