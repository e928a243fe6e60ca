// Package kube makes an API server hold what Git holds, and nothing more.
//
// Objects are applied by server-side apply under one field manager, by force:
// for a field that Git holds, Git wins, and a field that it doesn't hold is never
// touched. Every apply is previewed by a dry run, which says what the API server
// would make of the object, whether that needs a write at all, and what is wrong
// with it, so that a commit can be refused as a whole before any of it is live.
//
// The package decides nothing: which objects are applied or deleted, and when,
// is up to its callers.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Manager is the field manager of what Git holds. Everything else that Coppice
// writes goes under other names, so that it is never taken for Git's.
const Manager = "coppice"

// PruneAnnotation on a live object, with the value "disabled", keeps it when the
// source no longer declares it. FluxPruneAnnotation does too, as users of Flux
// expect.
const (
	PruneAnnotation     = "coppice.dev/prune"
	FluxPruneAnnotation = "kustomize.toolkit.fluxcd.io/prune"
	pruneDisabled       = "disabled"
)

// Applier applies and deletes objects of any kind. Its methods may be called
// concurrently.
type Applier struct {
	client client.Client
}

// NewApplier returns an Applier. The client must read unstructured objects from
// the API server and not from a cache, as a manager's client does by default.
func NewApplier(c client.Client) *Applier { return &Applier{client: c} }

// Object makes an object to apply of what an author wrote. value isn't changed.
func Object(gvk schema.GroupVersionKind, value map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(value)}
	u.SetGroupVersionKind(gvk)
	return u
}

// Preview is what applying an object would do.
type Preview struct {
	// Live is the object as it is, nil if there is none.
	Live *unstructured.Unstructured
	// Want is the object as it would be.
	Want *unstructured.Unstructured
	// Writes is true if the API server's store would change: a field's value, or
	// the record that a field is Git's.
	Writes bool
}

// previewTries is how often a preview starts over when the object changes
// between its two requests.
const previewTries = 3

// Preview says what Apply would do. Its error is an *InvalidError if the API
// server refuses the object and a *NoKindError if it doesn't know the kind.
func (a *Applier) Preview(ctx context.Context, obj *unstructured.Unstructured) (Preview, error) {
	return a.preview(ctx, obj, true)
}

// Look is Preview for an object that ought to exist. If it doesn't, nobody is
// asked what creating it would make of it, and Want is nil.
func (a *Applier) Look(ctx context.Context, obj *unstructured.Unstructured) (Preview, error) {
	return a.preview(ctx, obj, false)
}

func (a *Applier) preview(ctx context.Context, obj *unstructured.Unstructured, create bool) (Preview, error) {
	for try := 1; ; try++ {
		live, err := a.Live(ctx, obj)
		if err != nil {
			return Preview{}, err
		}
		if live == nil && !create {
			return Preview{Writes: true}, nil
		}
		want, err := a.apply(ctx, obj, client.DryRunAll)
		if err != nil {
			return Preview{}, err
		}
		// A dry run answers with the version of the object that it began with.
		if live != nil && live.GetResourceVersion() != want.GetResourceVersion() && try < previewTries {
			continue
		}
		return Preview{Live: live, Want: want, Writes: live == nil || !same(live, want)}, nil
	}
}

// Live returns an object as the API server holds it, or nil.
func (a *Applier) Live(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(obj.GroupVersionKind())
	err := a.client.Get(ctx, client.ObjectKeyFromObject(obj), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failure("read", obj, err)
	}
	return live, nil
}

// Apply makes the API server hold the object's fields and returns what it holds
// then. Its errors are those of Preview.
func (a *Applier) Apply(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return a.apply(ctx, obj)
}

func (a *Applier) apply(ctx context.Context, obj *unstructured.Unstructured, opts ...client.ApplyOption) (*unstructured.Unstructured, error) {
	out := obj.DeepCopy()
	opts = append(opts, client.FieldOwner(Manager), client.ForceOwnership)
	if err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(out), opts...); err != nil {
		return nil, failure("apply", obj, err)
	}
	return out, nil
}

// Remove takes fields away that Apply left, as others had written them, and
// returns what the API server holds then. live is what it holds now; if somebody
// changes it meanwhile, nothing is taken away and the error is a conflict.
func (a *Applier) Remove(ctx context.Context, live *unstructured.Unstructured, paths [][]string) (*unstructured.Unstructured, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	ops := []operation{{Op: "test", Path: "/metadata/resourceVersion", Value: live.GetResourceVersion()}}
	for _, path := range paths {
		if _, found, err := unstructured.NestedFieldNoCopy(live.Object, path...); err == nil && found {
			ops = append(ops, operation{Op: "remove", Path: pointer(path)})
		}
	}
	if len(ops) == 1 {
		return live, nil
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", name(live), err)
	}
	out := live.DeepCopy()
	if err := a.client.Patch(ctx, out, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(Manager)); err != nil {
		return nil, failure("change", live, err)
	}
	return out, nil
}

// pointer writes a path as RFC 6901 has it.
func pointer(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// Deletion is what became of an object that was to be deleted.
type Deletion uint8

const (
	// Deleted: the API server took the request, or the object was going already.
	Deleted Deletion = iota
	// Gone: there was no such object.
	Gone
	// Kept: an annotation on the object says that it stays.
	Kept
)

// Delete deletes an object unless it is annotated to stay. It does not wait for
// finalizers.
func (a *Applier) Delete(ctx context.Context, obj *unstructured.Unstructured) (Deletion, error) {
	live, err := a.Live(ctx, obj)
	switch {
	case err != nil:
		return 0, err
	case live == nil:
		return Gone, nil
	case live.GetDeletionTimestamp() != nil:
		return Deleted, nil
	}
	notes := live.GetAnnotations()
	if notes[PruneAnnotation] == pruneDisabled || notes[FluxPruneAnnotation] == pruneDisabled {
		return Kept, nil
	}
	// The same object that was looked at, and not one that took its name since.
	uid := live.GetUID()
	if err := a.client.Delete(ctx, live, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return 0, failure("delete", obj, err)
	}
	return Deleted, nil
}

// PatchStatus writes the status of after if it differs from that of before, and
// reports whether it did. Both are the same object; after's status alone may
// differ.
func PatchStatus(ctx context.Context, c client.Client, before, after client.Object) (bool, error) {
	patch := client.MergeFrom(before)
	data, err := patch.Data(after)
	if err != nil {
		return false, fmt.Errorf("compare status of %s: %w", after.GetName(), err)
	}
	if string(data) == "{}" {
		return false, nil
	}
	// The patch is made again from the two objects; the answer goes into a copy,
	// so that the caller's object stays what was decided.
	target, ok := after.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("copy of %T is no object", after)
	}
	if err := c.Status().Patch(ctx, target, patch, client.FieldOwner(Manager+"-controller")); err != nil {
		return false, fmt.Errorf("patch status of %s: %w", after.GetName(), err)
	}
	after.SetResourceVersion(target.GetResourceVersion())
	return true, nil
}

// Applied reports whether a live object holds a field that was applied as Git's.
func Applied(live *unstructured.Unstructured) bool { return owned(live) != nil }

// same reports whether two states of an object differ in nothing that a write
// would change: content, labels, annotations, and what is recorded as Git's.
func same(live, want *unstructured.Unstructured) bool {
	return reflect.DeepEqual(content(live), content(want)) && reflect.DeepEqual(owned(live), owned(want))
}

// content returns an object without status and without what the API server keeps.
func content(u *unstructured.Unstructured) map[string]any {
	out := make(map[string]any, len(u.Object))
	for k, v := range u.Object {
		switch k {
		case "status":
		case "metadata":
			meta := map[string]any{}
			for _, key := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
				if m, ok := u.Object["metadata"].(map[string]any); ok && m[key] != nil {
					meta[key] = m[key]
				}
			}
			out[k] = meta
		default:
			out[k] = v
		}
	}
	return out
}

// owned returns the fields that are recorded as Git's, nil if none are.
func owned(u *unstructured.Unstructured) any {
	meta, _ := u.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		if ok && entry["manager"] == Manager && entry["operation"] == "Apply" && entry["subresource"] == nil {
			return entry["fieldsV1"]
		}
	}
	return nil
}
