package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operation is one of a JSON Patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// takeover returns the patch that makes of a Node what registration wants. A young Node
// is written by its kubelet and by several controllers at the same time, each of which
// adds and removes taints, so that a patch under the Node's version, or of its whole list
// of taints, would be refused more often than not. This one is refused only if a taint
// that it removes isn't where it was, or finalizers or owners aren't what they were.
func takeover(node, want *corev1.Node) (client.Patch, error) {
	var ops []operation
	list := func(path string, before, after any) {
		if !equality.Semantic.DeepEqual(before, after) {
			ops = append(ops, operation{"test", path, before}, operation{"add", path, after})
		}
	}
	each := func(path string, before, after map[string]string) {
		if len(before) == 0 {
			if len(after) > 0 {
				ops = append(ops, operation{"test", path, nil}, operation{"add", path, after})
			}
			return
		}
		for _, k := range slices.Sorted(maps.Keys(after)) {
			if had, ok := before[k]; !ok || had != after[k] {
				ops = append(ops, operation{"add", path + "/" + pointer.Replace(k), after[k]})
			}
		}
	}
	each("/metadata/labels", node.Labels, want.Labels)
	each("/metadata/annotations", node.Annotations, want.Annotations)
	list("/metadata/finalizers", node.Finalizers, want.Finalizers)
	list("/metadata/ownerReferences", node.OwnerReferences, want.OwnerReferences)
	ops = append(ops, taints(node.Spec.Taints, want.Spec.Taints)...)
	data, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode the registration of Node %s: %w", node.Name, err)
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}

// taints are the operations that remove and add single taints.
func taints(before, after []corev1.Taint) []operation {
	const path = "/spec/taints"
	if len(before) == 0 {
		if len(after) == 0 {
			return nil
		}
		return []operation{{"test", path, nil}, {"add", path, after}}
	}
	var ops []operation
	for i, t := range slices.Backward(before) { // or those behind one would move up
		if !slices.ContainsFunc(after, func(o corev1.Taint) bool { return o.MatchTaint(&t) }) {
			at := fmt.Sprintf("%s/%d", path, i)
			ops = append(ops, operation{"test", at + "/key", t.Key}, operation{"test", at + "/effect", t.Effect}, operation{Op: "remove", Path: at})
		}
	}
	for _, t := range after {
		if !slices.ContainsFunc(before, func(o corev1.Taint) bool { return o.MatchTaint(&t) }) {
			ops = append(ops, operation{"add", path + "/-", t})
		}
	}
	return ops
}

// pointer escapes a key for a JSON Pointer, RFC 6901.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// overtaken reports whether the API server refused a patch because a list was changed by
// somebody else meanwhile: of a patch's test that fails it says no more than that there is
// an error in the request. Who else refuses a Node says why.
func overtaken(err error) bool {
	var s apierrors.APIStatus
	return apierrors.IsInvalid(err) && errors.As(err, &s) && strings.HasPrefix(s.Status().Message, "the server rejected our request")
}
