package render

import (
	"slices"
	"strings"
)

// nearest returns the candidate with the smallest edit distance to s, at most
// 2 and less than half of s's length, or "". Letter case counts as half an
// edit, so that "whenempty" finds "WhenEmpty". Ties go to the alphabetically
// first candidate.
func nearest(s string, candidates []string) string {
	best, bestDist := "", 5
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if strings.EqualFold(s, c) {
			return c
		}
		// Distances are doubled to count letter case as a half.
		if d := editDistance(s, c); d < bestDist && d < len(s) {
			best, bestDist = c, d
		}
	}
	return best
}

// editDistance returns twice the number of insertions, deletions,
// substitutions and swaps of neighbours that turn a into b, a change of letter
// case counting once.
func editDistance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = 2 * j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = 2 * i
		for j := 1; j <= len(b); j++ {
			cost := 2
			switch {
			case a[i-1] == b[j-1]:
				cost = 0
			case a[i-1]|0x20 == b[j-1]|0x20:
				cost = 1
			}
			cur[j] = min(prev[j]+2, cur[j-1]+2, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+2)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

// choiceFor returns the choice that was most likely meant by something that is none: one
// that is spelt alike, or else the only one that has all of it, in order, as
// WhenEmptyOrUnderutilized has WhenUnderutilized, its name of old.
func choiceFor(given string, choices []string) string {
	if s := nearest(given, choices); s != "" || len(given) < 4 {
		return s
	}
	found := ""
	for _, c := range choices {
		rest := given
		for i := 0; i < len(c) && rest != ""; i++ {
			if c[i] == rest[0] {
				rest = rest[1:]
			}
		}
		if rest != "" {
			continue
		}
		if found != "" {
			return ""
		}
		found = c
	}
	return found
}
