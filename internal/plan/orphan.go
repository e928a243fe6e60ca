package plan

import (
	"slices"
)

// Orphaned returns the fields that Git held before, doesn't hold now, and that
// are still live although an apply drops what its manager owned: somebody wrote
// them by hand since, which made them theirs, even if they have been put back to
// Git's value. Each is a path of names; they are sorted.
//
// What another manager applies, as opposed to edits, is declared elsewhere and
// isn't orphaned.
func Orphaned(before, now, live map[string]any, manager string) [][]string {
	o := orphans{manager: manager, owners: parseOwners(live)}
	o.walk(nil, before, now, live)
	slices.SortFunc(o.out, slices.Compare[[]string])
	return o.out
}

type orphans struct {
	manager string
	owners  []owner
	out     [][]string
}

func (o *orphans) walk(path []any, before, now, live map[string]any) {
	for key, old := range before {
		at := append(path[:len(path):len(path)], key)
		l, there := live[key]
		if !there || ignored(at) {
			continue
		}
		fresh, held := now[key]
		om, oldMap := old.(map[string]any)
		lm, liveMap := l.(map[string]any)
		nm, _ := fresh.(map[string]any)
		switch {
		case oldMap && liveMap && len(om) > 0:
			if _, isMap := fresh.(map[string]any); !held || isMap {
				o.walk(at, om, nm, lm)
			}
		case !held && !o.declared(at):
			names := make([]string, len(at))
			for i, e := range at {
				names[i], _ = e.(string)
			}
			o.out = append(o.out, names)
		}
	}
}

// declared reports whether another manager applies a field.
func (o *orphans) declared(path []any) bool {
	return slices.ContainsFunc(o.owners, func(w owner) bool {
		return w.operation == "Apply" && w.manager != o.manager && owns(w.fields, path)
	})
}
