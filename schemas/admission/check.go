package admission

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// anyNamespace stands for the namespace that an object will be applied to when it
// names none.
const anyNamespace = "default"

// Check judges an object as a create, or as an update of old if that isn't nil.
// Both are JSON trees; they aren't changed. Numbers may be of any Go type.
//
// As on the server, a namespace may be left out of a namespaced object and is
// dropped from another, and status is ignored where it is a subresource.
func (j *Judge) Check(obj, old map[string]any) Verdict {
	tree, ok := normal(obj).(map[string]any)
	if !ok {
		return refuse(field.Invalid(nil, "", "the object is not a JSON tree"), nil)
	}
	k, e := j.kindOf(tree)
	if e != nil {
		return refuse(e, obj)
	}
	pruned, meta, errs := k.admit(tree)
	if len(errs) > 0 {
		return Verdict{Violations: violations(errs, tree)}
	}
	var before map[string]any
	if old != nil {
		// What is stored was admitted once; where the schema has become narrower since,
		// unchanged values stay valid.
		before, _ = normal(old).(map[string]any)
		if _, _, errs := k.admit(before); len(errs) > 0 {
			return Verdict{Violations: violations(errs, before)}
		}
	}
	errs = k.validate(tree, before, meta)
	return Verdict{
		Violations: violations(errs, tree),
		Pruned:     pruned,
		Defaulted:  tree,
	}
}

func refuse(e *field.Error, obj map[string]any) Verdict {
	return Verdict{Violations: violations(field.ErrorList{e}, obj)}
}

func (j *Judge) kindOf(obj map[string]any) (*kind, *field.Error) {
	apiVersion, _ := obj["apiVersion"].(string)
	name, _ := obj["kind"].(string)
	gvk := schema.FromAPIVersionAndKind(apiVersion, name)
	if k := j.kinds[gvk]; k != nil {
		return k, nil
	}
	var known []string
	for k := range j.kinds {
		if k.Kind == name {
			known = append(known, k.GroupVersion().String())
		}
	}
	if len(known) > 0 {
		slices.Sort(known)
		return nil, field.NotSupported(field.NewPath("apiVersion"), apiVersion, known)
	}
	for k := range j.kinds {
		known = append(known, k.Kind)
	}
	slices.Sort(known)
	return nil, field.NotSupported(field.NewPath("kind"), name, slices.Compact(known))
}

// admit does what happens to an object before it is validated, in place: decoding
// of the metadata, pruning, defaults.
func (k *kind) admit(obj map[string]any) (pruned []string, meta *metav1.ObjectMeta, errs field.ErrorList) {
	if errs := malformedMetadata(obj); len(errs) > 0 {
		return nil, nil, errs
	}
	meta, found, pruned, err := objectmeta.GetObjectMetaWithOptions(obj, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), "", err.Error())}
	}
	if !found {
		meta = &metav1.ObjectMeta{}
	}
	if k.hasStatus {
		delete(obj, "status")
	}
	pruned = append(pruned, pruning.PruneWithOptions(obj, k.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, k.structural)
	obj["apiVersion"], obj["kind"] = k.gvk.GroupVersion().String(), k.gvk.Kind
	if !k.namespaced && meta.Namespace != "" {
		meta.Namespace = ""
		pruned = append(pruned, "metadata.namespace")
	}
	if err := objectmeta.SetObjectMeta(obj, meta); err != nil {
		return nil, nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), "", err.Error())}
	}
	defaulting.Default(obj, k.structural)
	slices.Sort(pruned)
	return pruned, meta, nil
}

// malformedMetadata finds labels and annotations that aren't strings, which
// decoding would report without saying where.
func malformedMetadata(obj map[string]any) field.ErrorList {
	path := field.NewPath("metadata")
	raw, there := obj["metadata"]
	meta, ok := raw.(map[string]any)
	if there && raw != nil && !ok {
		return field.ErrorList{field.TypeInvalid(path, "", "must be an object")}
	}
	var errs field.ErrorList
	for _, name := range []string{"labels", "annotations"} {
		values, ok := meta[name].(map[string]any)
		if !ok {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, ok := values[key].(string); !ok && values[key] != nil {
				errs = append(errs, field.TypeInvalid(path.Child(name).Key(key), values[key], "must be a string"))
			}
		}
	}
	return errs
}

// validate judges an admitted object, in the order of the server's strategy for
// custom resources.
func (k *kind) validate(obj, old map[string]any, meta *metav1.ObjectMeta) field.ErrorList {
	ctx := context.Background()
	errs := k.validateMeta(meta)
	var celOptions []cel.Option
	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, obj, k.schema)...)
	} else {
		related := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: k.structural})
		celOptions = append(celOptions, cel.WithRatcheting(related))
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj, old, k.schema, validation.WithRatcheting(related))...)
	}
	if k.hasScale {
		errs = append(errs, validateReplicas(obj)...)
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, obj, k.structural, false)...)
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, k.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, obj)...)
	}
	// A rule may count on what the schema promises, so it isn't asked about an object
	// that breaks the promise. The server says so in an error of its own; here the
	// errors that are there already say enough.
	rules := k.rules()
	if rules == nil || slices.ContainsFunc(errs, blocksRules) {
		return errs
	}
	var before any
	if old != nil {
		before = old
	}
	found, _ := rules.Validate(ctx, nil, k.structural, obj, before, celconfig.RuntimeCELCostBudget, celOptions...)
	return append(errs, found...)
}

// blocksRules reports whether the server skips CEL rules after such an error.
func blocksRules(e *field.Error) bool { return blocking(e.Type) }

// BlocksRules reports whether the server asks no rules about an object that it
// refuses for such a reason.
func (v Violation) BlocksRules() bool { return blocking(field.ErrorType(v.Kind)) }

func blocking(kind field.ErrorType) bool {
	switch kind {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

func (k *kind) validateMeta(meta *metav1.ObjectMeta) field.ErrorList {
	meta = meta.DeepCopy()
	if k.namespaced && meta.Namespace == "" {
		meta.Namespace = anyNamespace
	}
	if meta.Name == "" && meta.GenerateName != "" {
		// The server appends five characters of this kind.
		meta.Name = meta.GenerateName + "xxxxx"
	}
	return metavalidation.ValidateObjectMeta(meta, k.namespaced, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// validateReplicas checks that the scale subresource, whose replicas have 32 bits,
// can show the object's. Karpenter's and our scale subresources read spec.replicas.
func validateReplicas(obj map[string]any) field.ErrorList {
	spec, _ := obj["spec"].(map[string]any)
	n, ok := spec["replicas"].(int64)
	if ok && n > math.MaxInt32 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), n, fmt.Sprintf("should be less than or equal to %d", math.MaxInt32))}
	}
	return nil
}
