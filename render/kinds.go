package render

import (
	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is one kind of object that a cluster's package can declare.
type kind struct {
	// field is the top-level field of the package that holds the objects.
	field string
	gvk   schema.GroupVersionKind
	// pkg and def name the CUE definition that every such object must match.
	pkg, def string
}

func (k kind) path() cue.Path { return cue.MakePath(cue.Def(k.def)) }

// kinds lists what a cluster's package can hold, in the order in which objects
// are applied: what is referred to comes before what refers to it.
func kinds() []kind {
	return []kind{
		{
			field: "nodeClasses",
			gvk:   schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"},
			pkg:   "coppice.dev/schemas/aws/v1", def: "EC2NodeClass",
		},
		{
			field: "nodePools",
			gvk:   schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"},
			pkg:   "coppice.dev/schemas/karpenter/v1", def: "NodePool",
		},
	}
}
