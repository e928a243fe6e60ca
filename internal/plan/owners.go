package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// owner is one entry of metadata.managedFields.
type owner struct {
	manager   string
	operation string
	when      time.Time
	fields    map[string]any
}

// parseOwners reads the managed fields of a live object. Entries that it cannot
// read are left out: who did it is worth knowing, and never worth failing for.
func parseOwners(live map[string]any) []owner {
	meta, _ := live["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	var out []owner
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		if !ok || entry["subresource"] == "status" {
			continue
		}
		fields, ok := entry["fieldsV1"].(map[string]any)
		if !ok || len(fields) == 0 {
			continue
		}
		o := owner{fields: fields}
		o.manager, _ = entry["manager"].(string)
		o.operation, _ = entry["operation"].(string)
		if text, ok := entry["time"].(string); ok {
			if when, err := time.Parse(time.RFC3339, text); err == nil {
				o.when = when.UTC()
			}
		}
		out = append(out, o)
	}
	return out
}

// newest returns the owner of a path who wrote last. Of several at the same
// time it is the one whose name comes first.
func newest(owners []owner, path []any) (owner, bool) {
	var found []owner
	for _, o := range owners {
		if owns(o.fields, path) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return owner{}, false
	}
	return slices.MinFunc(found, func(a, b owner) int {
		return cmp.Or(b.when.Compare(a.when), strings.Compare(a.manager, b.manager), strings.Compare(a.operation, b.operation))
	}), true
}

// owns reports whether a set in the fieldsV1 format covers a path, something
// above it as a whole, or something below it.
func owns(fields map[string]any, path []any) bool {
	if len(path) == 0 {
		return true
	}
	if len(fields) == 0 {
		// A leaf: the field and all that is in it.
		return true
	}
	var below map[string]any
	switch e := path[0].(type) {
	case string:
		next, ok := fields["f:"+e]
		if !ok {
			return false
		}
		below, _ = next.(map[string]any)
	case int:
		// Elements of a list are named by their keys or values, not by their
		// place; whoever owns one may have moved the others.
		for name, next := range fields {
			if !strings.HasPrefix(name, "f:") && name != "." {
				m, _ := next.(map[string]any)
				if owns(m, path[1:]) {
					return true
				}
			}
		}
		return false
	}
	return owns(below, path[1:])
}
