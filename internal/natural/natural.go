// Package natural orders names as people do.
package natural

import "cmp"

// Compare compares names so that runs of digits count as numbers: "node-9" comes
// before "node-10". Names that differ in leading zeros alone are ordered by their bytes.
func Compare(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if !digit(a[i]) || !digit(b[j]) {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i++
			j++
			continue
		}
		x, y := number(a, &i), number(b, &j)
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
	}
	// Equal up to here, or up to leading zeros: the shorter rest first, then bytes.
	return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), cmp.Compare(a, b))
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// number returns the run of digits at *i without leading zeros and moves *i behind it.
func number(s string, i *int) string {
	for *i < len(s) && s[*i] == '0' {
		*i++
	}
	start := *i
	for *i < len(s) && digit(s[*i]) {
		*i++
	}
	return s[start:*i]
}
