package diag

import (
	"fmt"
	"slices"
	"strings"
)

// Grouped joins findings that say the same about one place for several objects,
// as when a definition that many objects share is at fault. The joined finding
// names up to three of the objects. The list must be Sorted.
func (l List) Grouped() List {
	var out List
	objects := [][]string{}
	same := func(a, b Finding) bool {
		return a.Pos == b.Pos && a.Severity == b.Severity && a.Code == b.Code && a.Path == b.Path &&
			a.Message == b.Message && a.Help == b.Help && a.Object != "" && b.Object != "" && slices.Equal(a.Related, b.Related)
	}
next:
	for _, f := range l {
		for i := len(out) - 1; i >= 0 && out[i].Pos == f.Pos; i-- {
			if same(out[i], f) {
				objects[i] = append(objects[i], f.Object)
				continue next
			}
		}
		out = append(out, f)
		objects = append(objects, []string{f.Object})
	}
	for i, names := range objects {
		switch n := len(names); {
		case n > 3:
			out[i].Object = fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), n-3)
		case n > 1:
			out[i].Object = strings.Join(names, ", ")
		}
	}
	return out
}
