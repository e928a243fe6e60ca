package plan

import (
	"slices"
	"strings"
)

// FieldChange is a field of which the live value isn't Git's, with the values as
// they are: unlike a Difference it is made to be acted on, and never to be shown.
type FieldChange struct {
	// Path holds field names (string) and list indices (int); it is empty when the
	// object as a whole is missing.
	Path []any
	// Live is the live value, nil if the field was removed.
	Live any
}

// FieldChanges returns the fields of one object in which Drift finds a difference,
// in Drift's order. A field that only a live list's element has stands for the
// whole list.
func FieldChanges(o Observed) []FieldChange {
	if o.Live == nil {
		return []FieldChange{{}}
	}
	d := differ{object: o, owners: parseOwners(o.Live)}
	d.maps(nil, o.Git, o.Want, o.Live)
	var out []FieldChange
	seen := map[string]bool{}
	for _, path := range d.paths {
		if _, written := ValueAt(o.Git, path); !written {
			path = listOf(path)
		}
		if name := PathString(path); len(path) > 0 && !seen[name] {
			seen[name] = true
			live, _ := ValueAt(o.Live, path)
			out = append(out, FieldChange{Path: path, Live: live})
		}
	}
	return outermost(out)
}

// listOf cuts a path before its last index.
func listOf(path []any) []any {
	for i := len(path) - 1; i >= 0; i-- {
		if _, index := path[i].(int); index {
			return path[:i]
		}
	}
	return nil
}

// outermost leaves out what is inside of another, and sorts.
func outermost(all []FieldChange) []FieldChange {
	var out []FieldChange
	for i, c := range all {
		inside := false
		for j, o := range all {
			inside = inside || i != j && len(o.Path) < len(c.Path) && PathString(o.Path) == PathString(c.Path[:len(o.Path)])
		}
		if !inside {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b FieldChange) int { return strings.Compare(PathString(a.Path), PathString(b.Path)) })
	return out
}

// ValueAt returns the value at a path of names and indices, and whether there is one.
func ValueAt(v any, path []any) (any, bool) {
	for _, e := range path {
		switch e := e.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			if v, ok = m[e]; !ok {
				return nil, false
			}
		case int:
			l, ok := v.([]any)
			if !ok || e >= len(l) {
				return nil, false
			}
			v = l[e]
		}
	}
	return v, true
}

// Same reports whether two JSON values at a path of a NodePool or EC2NodeClass
// mean the same, as 1000 and "1k" do for a limit.
func Same(path []any, a, b any) bool { return equal(path, a, b) }
