package render

import (
	"slices"

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

// kinds lists the kinds that there are schemas for, in the order in which
// objects are applied: what is referred to comes before what refers to it. Those
// without a field can't be declared in a cluster's package, only in manifests.
func kinds() []kind {
	const (
		awsPkg       = SchemaModule + "/aws/v1"
		karpenterPkg = SchemaModule + "/karpenter/v1"
	)
	gvk := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	return []kind{
		{field: "nodeClasses", gvk: gvk("karpenter.k8s.aws", "v1", "EC2NodeClass"), pkg: awsPkg, def: "EC2NodeClass"},
		{field: "nodePools", gvk: gvk("karpenter.sh", "v1", "NodePool"), pkg: karpenterPkg, def: "NodePool"},
		{field: "nodeOverlays", gvk: gvk("karpenter.sh", "v1alpha1", "NodeOverlay"), pkg: SchemaModule + "/karpenter/v1alpha1", def: "NodeOverlay"},
		{field: "capacityBuffers", gvk: gvk("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer"), pkg: SchemaModule + "/autoscaling/v1beta1", def: "CapacityBuffer"},
		{gvk: gvk("karpenter.sh", "v1", "NodeClaim"), pkg: karpenterPkg, def: "NodeClaim"},
		{gvk: gvk("coppice.dev", "v1alpha1", "NodeSource"), pkg: SchemaModule + "/coppice/v1alpha1", def: "NodeSource"},
	}
}

// declarable lists the kinds that a cluster's package can declare.
func declarable() []kind {
	return slices.DeleteFunc(kinds(), func(k kind) bool { return k.field == "" })
}
