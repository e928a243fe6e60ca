package render

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/diag"
)

// Bundle is what one cluster's CUE package says: objects to apply, in the order
// in which to apply them (node classes before the pools that refer to them, then
// by kind and name).
type Bundle struct {
	// Cluster is the name of the package's folder, "" for a single-cluster tree.
	Cluster string
	Objects []Object
}

// Object is one Kubernetes object as its author wrote it: apiVersion, kind and
// metadata.name are filled in and nothing else is, neither defaults nor
// normal forms, so that applying it never claims a field that Git doesn't hold.
type Object struct {
	GVK  schema.GroupVersionKind
	Name string
	// Value is JSON: map[string]any, []any, string, bool, int64, float64, nil.
	// It is shared; callers copy it before they change it.
	Value map[string]any

	// places is keyed by pathKey. It has an entry for every field and list
	// element that the author wrote.
	places map[string]place
	// broken holds the pathKeys of fields that couldn't be evaluated and are
	// therefore missing from Value, though the author wrote them.
	broken map[string]bool
	// mended is Value without the faults that have been found, or nil if there are
	// none; excused holds the pathKeys of the faults. See mend.go.
	mended  map[string]any
	excused map[string]bool
}

// place is where an author wrote a field: its name and its value. A list
// element has a value alone.
type place struct {
	key, value diag.Position
}

// Position returns where the author wrote the value at path, whose elements are
// field names (string) and list indices (int). A struct or list stands at its
// field's name, everything else at the value itself. For a path that the author
// didn't write it returns the place of the nearest field around it.
func (o Object) Position(path ...any) diag.Position {
	for n := len(path); n >= 0; n-- {
		p, ok := o.places[pathKey(path[:n])]
		switch {
		case !ok:
		case n == len(path) && p.value.IsValid():
			return p.value
		case p.key.IsValid():
			return p.key
		case p.value.IsValid():
			return p.value
		}
	}
	return diag.Position{}
}

// KeyPosition returns where the author wrote the name of the field at path, or
// what [Object.Position] says where no name was written.
func (o Object) KeyPosition(path ...any) diag.Position {
	if p := o.places[pathKey(path)]; p.key.IsValid() {
		return p.key
	}
	return o.Position(path...)
}

// ID names the object for people, as in "NodePool/general". An object that
// lacks a name is known by its kind alone.
func (o Object) ID() string {
	if o.Name == "" {
		return o.GVK.Kind
	}
	return o.GVK.Kind + "/" + o.Name
}

// Find returns the object of that kind and name.
func (b Bundle) Find(kind, name string) (Object, bool) {
	for _, o := range b.Objects {
		if o.GVK.Kind == kind && o.Name == name {
			return o, true
		}
	}
	return Object{}, false
}

// NewBundle returns the bundle of objects that are in no order.
func NewBundle(cluster string, objects []Object) Bundle {
	sortObjects(objects)
	return Bundle{Cluster: cluster, Objects: objects}
}

// sortObjects puts objects into the order in which they are applied: by the rank of
// their kind in kinds, then group, kind and name. Kinds that aren't listed come last.
func sortObjects(objects []Object) {
	rank := func(o Object) int {
		for i, k := range kinds() {
			if k.gvk.GroupKind() == o.GVK.GroupKind() {
				return i
			}
		}
		return len(kinds())
	}
	slices.SortStableFunc(objects, func(a, b Object) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			strings.Compare(a.GVK.Group, b.GVK.Group),
			strings.Compare(a.GVK.Kind, b.GVK.Kind),
			strings.Compare(a.Name, b.Name),
		)
	})
}
