package catalogue

import (
	"slices"
	"strings"
)

// maxDistance is how many edits still count as a slip of the finger: one or two
// letters wrong, missing or swapped, as in m5.lrage.
const maxDistance = 2

// Family is the part of a type's name before the dot, as in m5.
func Family(typeName string) string {
	family, _, _ := strings.Cut(typeName, ".")
	return family
}

// Families lists the families of all types, sorted.
func (c *Catalogue) Families() []string {
	var names []string
	for _, t := range c.types {
		names = append(names, Family(t.Name))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Nearest returns up to limit names of types that a misspelt name may have
// meant, the nearest first, equally near ones by name. A name that exists is its
// own only answer.
func (c *Catalogue) Nearest(name string, limit int) []string {
	if _, ok := c.index[name]; ok {
		return []string{name}
	}
	names := make([]string, len(c.types))
	for i, t := range c.types {
		names[i] = t.Name
	}
	return nearest(names, name, limit)
}

// NearestFamily is Nearest for families; it returns at most five.
func (c *Catalogue) NearestFamily(name string) []string {
	families := c.Families()
	if slices.Contains(families, name) {
		return []string{name}
	}
	return nearest(families, name, 5)
}

func nearest(names []string, name string, limit int) []string {
	name = strings.ToLower(name)
	var found []string
	for d := 0; d <= maxDistance; d++ {
		for _, n := range names {
			if len(found) < limit && distance(n, name) == d {
				found = append(found, n)
			}
		}
	}
	return found
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b, and stops counting above maxDistance.
func distance(a, b string) int {
	if len(a)-len(b) > maxDistance || len(b)-len(a) > maxDistance {
		return maxDistance + 1
	}
	var before, above []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, above, row = above, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above[j+1]+1, row[j]+1, above[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
