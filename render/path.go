package render

import (
	"fmt"
	"strconv"
	"strings"
)

// pathSeparator stands between the elements of a pathKey.
const pathSeparator = "\x1f"

// pathKey encodes a path as one string, so that it can key a map. No two paths
// of one object share a key: an index and a field name of the same digits can't
// both exist at one place.
func pathKey(path []any) string {
	if len(path) == 0 {
		return ""
	}
	var b strings.Builder
	for i, e := range path {
		if i > 0 {
			b.WriteString(pathSeparator)
		}
		switch e := e.(type) {
		case string:
			b.WriteString(e)
		case int:
			b.WriteString(strconv.Itoa(e))
		default:
			panic(fmt.Sprintf("render: path element of type %T", e))
		}
	}
	return b.String()
}

// PathString formats a path for people: spec.taints[0].key, with names that
// aren't plain identifiers quoted, as in metadata.labels["example.com/team"].
func PathString(path []any) string {
	var b strings.Builder
	for _, e := range path {
		switch e := e.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", e)
		case string:
			switch {
			case !isIdentifier(e):
				fmt.Fprintf(&b, "[%q]", e)
			case b.Len() > 0:
				b.WriteByte('.')
				b.WriteString(e)
			default:
				b.WriteString(e)
			}
		}
	}
	return b.String()
}

func isIdentifier(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '$'
		if !letter && (i == 0 || (r != '-' && (r < '0' || r > '9'))) {
			return false
		}
	}
	return s != ""
}

// child returns path with one element more. The result never shares memory
// with another child of path.
func child(path []any, e any) []any {
	out := make([]any, len(path)+1)
	copy(out, path)
	out[len(path)] = e
	return out
}
