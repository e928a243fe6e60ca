package render

import (
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

	positions map[string]diag.Position
}
