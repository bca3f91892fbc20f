// Package amount reads the quantities that users write, such as "500m" and "64Gi".
package amount

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// written is the form of an amount: what the API server takes, with digits and exponents
// bounded, because its parser takes hours for "1e-99999999" and reads "1e999" as 0.
var written = regexp.MustCompile(`^(\d{1,19}\.?\d{0,18}|\.\d{1,18})([eE][+-]?\d{1,2}|[numkMGTPE]|[KMGTPE]i)?$`)

// largest is an amount that nobody can mean, of whatever: 2^60, an Ei.
var largest = resource.MustParse("1Ei")

// Parse reads an amount from 0 to 1Ei. The error says what to write instead.
func Parse(text string) (resource.Quantity, error) {
	if written.MatchString(text) {
		if q, err := resource.ParseQuantity(text); err == nil {
			if q.Cmp(largest) > 0 {
				return resource.Quantity{}, fmt.Errorf("%q is more than anything can have: the largest amount is 1Ei", text)
			}
			return q, nil
		}
	}
	if units := withoutByte(text); units != "" {
		return resource.Quantity{}, fmt.Errorf("%q is not an amount: units have no B, so write %s", text, units)
	}
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return resource.Quantity{}, fmt.Errorf("%q is not an amount: write a number with an optional unit, such as \"8\" or \"500m\" for cpu and \"64Gi\" for memory", text)
}

// bytes is the form of an amount in bytes as people write it, "8GB" or "8 GiB".
var bytes = regexp.MustCompile(`^(\d{1,18}(?:\.\d{1,18})?) ?([kKMGTPE])(i?)[bB]$`)

// withoutByte says how an amount in bytes is written here, "" for any other text. People mean
// either unit by "GB".
func withoutByte(text string) string {
	m := bytes.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	number, unit, binary := m[1], m[2], m[3]
	power := fmt.Sprintf("%q", number+strings.ToUpper(unit)+"i")
	if binary != "" {
		return power
	}
	if unit == "K" {
		unit = "k"
	}
	return fmt.Sprintf("%q or %s", number+unit, power)
}
