package render

import (
	"maps"
	"slices"
)

// sortedKeys returns the keys of m in order: a map's own order never reaches output.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
