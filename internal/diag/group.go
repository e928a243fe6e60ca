package diag

import (
	"fmt"
	"slices"
	"strings"
)

// Grouped joins findings that say the same about one place for several objects or
// clusters, as when a definition that many objects share is at fault. The joined finding
// names up to three of each. The list must be Sorted.
func (l List) Grouped() List {
	var out List
	objects, clusters := [][]string{}, [][]string{}
	same := func(a, b Finding) bool {
		return a.Pos == b.Pos && a.Severity == b.Severity && a.Code == b.Code && a.Path == b.Path &&
			a.Message == b.Message && a.Help == b.Help && a.Object != "" && b.Object != "" && slices.Equal(a.Related, b.Related)
	}
next:
	for _, f := range l {
		for i := len(out) - 1; i >= 0 && out[i].Pos == f.Pos; i-- {
			if same(out[i], f) {
				// The list is sorted by object.
				if objects[i][len(objects[i])-1] != f.Object {
					objects[i] = append(objects[i], f.Object)
				}
				if !slices.Contains(clusters[i], f.Cluster) {
					clusters[i] = append(clusters[i], f.Cluster)
				}
				continue next
			}
		}
		out = append(out, f)
		objects, clusters = append(objects, []string{f.Object}), append(clusters, []string{f.Cluster})
	}
	for i := range out {
		out[i].Object, out[i].Cluster = few(objects[i]), few(clusters[i])
	}
	return out
}

// few names up to three.
func few(names []string) string {
	if n := len(names); n > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), n-3)
	}
	return strings.Join(names, ", ")
}
