package render

import (
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
)

// Merge joins what Render and Validate found. A fault that both found is reported
// once: by the schema, which knows more about the author's text, unless it is a
// matter of several fields, where a rule's words say more.
func Merge(rendered, validated diag.List) diag.List {
	var out diag.List
	for _, f := range validated {
		if !slices.ContainsFunc(rendered, func(g diag.Finding) bool { return explains(g, f) }) {
			out = append(out, f)
		}
	}
	rules := slices.Clone(out)
	for _, g := range rendered {
		if !slices.ContainsFunc(rules, func(f diag.Finding) bool { return outdoes(f, g) }) {
			out = append(out, g)
		}
	}
	return out.Sorted()
}

// explains reports whether finding g of the schema tells all that finding f of
// the API server does. A rule may speak about a whole struct; then g is about a
// part of it, and either says the same or is about a field that f names.
func explains(g, f diag.Finding) bool {
	if g.Severity != diag.Error || g.Object != f.Object {
		return false
	}
	if f.Code != CodeRule {
		return g.Path == f.Path
	}
	if !strings.HasPrefix(g.Path, f.Path) {
		return false
	}
	return strings.Contains(g.Message, f.Message) || g.Path != f.Path && mentions(f.Message, lastName(g.Path))
}

// outdoes reports whether rule f says why the schema's condition g isn't met.
func outdoes(f, g diag.Finding) bool {
	return g.Code == CodeCondition && f.Code == CodeRule && g.Object == f.Object &&
		(f.Path == g.Path || parentPath(f.Path) == parentPath(g.Path) && mentions(f.Message, lastName(g.Path)))
}

// lastName is the name of the last field in a path that PathString formatted.
func lastName(path string) string {
	if inner, ok := strings.CutSuffix(path, "]"); ok {
		i := strings.LastIndexByte(inner, '[')
		if name, err := strconv.Unquote(inner[i+1:]); err == nil {
			return name
		}
		return lastName(inner[:max(i, 0)])
	}
	return path[strings.LastIndexByte(path, '.')+1:]
}

func parentPath(path string) string {
	if i := strings.LastIndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return ""
}

// mentions reports whether a message has name as a word of its own.
func mentions(message, name string) bool {
	for rest := message; name != ""; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		before, after := rest[:i], rest[i+len(name):]
		if (before == "" || !isWord(before[len(before)-1])) && (after == "" || !isWord(after[0])) {
			return true
		}
		rest = after
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
