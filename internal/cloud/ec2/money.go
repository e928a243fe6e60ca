package ec2

import (
	"fmt"
	"strings"
)

// microUSD reads a decimal amount of dollars, as in "0.0961000000", as millionths
// of a dollar, rounded half up. It refuses what isn't a plain non-negative number,
// and amounts of a million dollars or more, which no instance costs.
func microUSD(s string) (int64, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" && fraction == "" || len(whole) > 6 {
		return 0, fmt.Errorf("price %q is not an amount of dollars", s)
	}
	var n int64
	for _, c := range whole {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("price %q is not an amount of dollars", s)
		}
		n = n*10 + int64(c-'0')
	}
	for i := range 7 {
		n *= 10
		if i < len(fraction) {
			n += int64(fraction[i] - '0')
		}
	}
	for _, c := range fraction {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("price %q is not an amount of dollars", s)
		}
	}
	return (n + 5) / 10, nil
}

// dollars is the amount as the API wants it in Priority, which orders overrides
// and decides nothing here.
func dollars(microUSD int64) float64 { return float64(microUSD) / 1e6 }
