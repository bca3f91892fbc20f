package openb

import (
	"math"
	"slices"
)

// simplex maximises a sum of values under limits.
type simplex struct {
	// inverse is that of the basis; level is how much of each of its columns is taken, value what
	// one of it is worth.
	inverse      [][]float64
	level, value []float64
}

// newSimplex takes nothing yet.
func newSimplex(limits []float64) *simplex {
	s := &simplex{level: slices.Clone(limits), value: make([]float64, len(limits))}
	for i := range limits {
		row := make([]float64, len(limits))
		row[i] = 1
		s.inverse = append(s.inverse, row)
	}
	return s
}

// prices are what one more of each limit is worth.
func (s *simplex) prices() []float64 {
	prices := make([]float64, len(s.value))
	for i, value := range s.value {
		for j, x := range s.inverse[i] {
			prices[j] += value * x
		}
	}
	return prices
}

// enter takes as much as possible of a column, in the place of another one; ok is false where
// nothing limits it.
func (s *simplex) enter(column []float64, value float64) (ok bool) {
	change := make([]float64, len(column))
	leaving, least := -1, math.Inf(1)
	for i, row := range s.inverse {
		for j, x := range row {
			change[i] += x * column[j]
		}
		if ratio := s.level[i] / change[i]; change[i] > 1e-9 && ratio < least {
			leaving, least = i, ratio
		}
	}
	if leaving < 0 {
		return false
	}
	pivot := s.inverse[leaving]
	for j := range pivot {
		pivot[j] /= change[leaving]
	}
	for i, row := range s.inverse {
		if i != leaving {
			s.level[i] -= change[i] * least
			for j := range row {
				row[j] -= change[i] * pivot[j]
			}
		}
	}
	s.level[leaving], s.value[leaving] = least, value
	return true
}
