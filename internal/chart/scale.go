package chart

import "math"

// scale maps values to pixels.
type scale struct {
	log       bool
	low, high float64
	// step is the distance of ticks: a difference, or on a logarithmic scale a number of decades.
	step float64
	// from and to are the pixels of low and high.
	from, to float64
}

// Values beyond these bounds are not drawn, like those that are not numbers.
const largest, smallest = 1e100, 1e-100

// maxTicks bounds the ticks of a scale.
const maxTicks = 8

// drawable reports whether a value has a place on an axis.
func drawable(v float64, log bool) bool {
	if log {
		return v >= smallest && v <= largest
	}
	return math.Abs(v) <= largest
}

// newScale covers the values, all of them drawable; with ticks at round numbers.
func newScale(log bool, values []float64, from, to float64) scale {
	s := scale{log: log, from: from, to: to}
	if log {
		s.low, s.high = math.Inf(1), math.Inf(-1)
		for _, v := range values {
			s.low, s.high = min(s.low, math.Log10(v)), max(s.high, math.Log10(v))
		}
		s.low, s.high = math.Floor(s.low), math.Ceil(s.high)
		s.high = max(s.high, s.low+1)
		s.step = math.Ceil((s.high - s.low) / maxTicks)
		return s
	}
	for _, v := range values {
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
	if s.low == s.high {
		s.high = 1
	}
	s.step = round((s.high - s.low) / (maxTicks - 2))
	s.low, s.high = math.Floor(s.low/s.step)*s.step, math.Ceil(s.high/s.step)*s.step
	return s
}

// round returns the next number that is 1, 2, 2.5 or 5 times a power of ten.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 2, 2.5, 5} {
		if v <= factor*power {
			return factor * power
		}
	}
	return 10 * power
}

// at returns the pixel of a value.
func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// ticks returns the values that are labelled.
func (s scale) ticks() []float64 {
	var ticks []float64
	for i := range int(math.Round((s.high-s.low)/s.step)) + 1 {
		v := s.low + float64(i)*s.step
		if s.log {
			v = math.Pow(10, v)
		}
		ticks = append(ticks, v)
	}
	return ticks
}
