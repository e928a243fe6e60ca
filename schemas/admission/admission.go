// Package admission judges an object as the API server would, without one: it
// prunes, sets defaults and applies the CRD's OpenAPI schema, list types, CEL
// rules and the rules for metadata, in the server's order and with the server's
// own code.
//
// It knows what is in the CRDs and nothing else: no webhooks, no quotas, no other
// objects. It may not reach out or read a clock.
//
//	judge, err := admission.New(schemas.CRDs())
//	verdict := judge.Check(object, nil)
//	for _, v := range verdict.Violations { ... }
package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Verdict is what the API server would make of an object.
type Verdict struct {
	// Violations are the reasons to refuse the object, sorted by path. Without one,
	// the object is accepted.
	Violations []Violation
	// Pruned lists the paths of fields that the schema doesn't have and that the
	// server would drop without refusing the object. It is sorted.
	Pruned []string
	// Defaulted is the object as it would be stored: pruned, with defaults, without
	// status. It is nil when the object is too malformed to get that far.
	Defaulted map[string]any
}

// Accepted reports whether the server would take the object.
func (v Verdict) Accepted() bool { return len(v.Violations) == 0 }

// Violation is one reason to refuse an object.
type Violation struct {
	// Path leads to the value, by field names and map keys (string) and list indices
	// (int). The last element of a missing field's path isn't in the object. It is
	// empty for the object as a whole.
	Path []any
	// Kind is the API machinery's name of the fault, as in FieldValueRequired.
	Kind string
	// Message says what is wrong, without the path.
	Message string
}

// Judge holds compiled CRDs. It is safe for concurrent use.
type Judge struct {
	kinds map[schema.GroupVersionKind]*kind
}

// kind is one version of one CRD.
type kind struct {
	gvk        schema.GroupVersionKind
	namespaced bool
	hasStatus  bool
	hasScale   bool
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	// rules compiles the CEL rules when they are first needed: it takes some tens of
	// milliseconds for each kind, and few callers need all. It gives nil for no rules.
	rules func() *cel.Validator
}

// New compiles CRDs. It returns an error if the API server would refuse one of
// them. The CRDs aren't changed or kept.
func New(crds []*apiextensionsv1.CustomResourceDefinition) (*Judge, error) {
	j := &Judge{kinds: map[schema.GroupVersionKind]*kind{}}
	for _, c := range crds {
		if err := j.add(c.DeepCopy()); err != nil {
			return nil, fmt.Errorf("compile CRD %s: %w", c.Name, err)
		}
	}
	return j, nil
}

// Validate reports what the API server would say against a CRD itself: schemas
// that aren't structural, rules that don't compile or cost too much.
func Validate(c *apiextensionsv1.CustomResourceDefinition) error {
	internal, err := convert(c.DeepCopy())
	if err != nil {
		return err
	}
	return crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal).ToAggregate()
}

func convert(c *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	apiextensionsv1.SetDefaults_CustomResourceDefinition(c)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&c.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c, internal, nil); err != nil {
		return nil, err
	}
	for _, v := range c.Spec.Versions {
		if v.Storage {
			internal.Status.StoredVersions = []string{v.Name}
		}
	}
	return internal, nil
}

func (j *Judge) add(c *apiextensionsv1.CustomResourceDefinition) error {
	internal, err := convert(c)
	if err != nil {
		return err
	}
	for _, v := range c.Spec.Versions {
		if !v.Served {
			continue
		}
		s, err := apiextensions.GetSchemaForVersion(internal, v.Name)
		if err != nil {
			return err
		}
		if s == nil || s.OpenAPIV3Schema == nil {
			return errors.New("no schema for version " + v.Name)
		}
		structural, err := structuralschema.NewStructural(s.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		if err := structuralschema.ValidateStructural(nil, structural).ToAggregate(); err != nil {
			return err
		}
		if err := defaulting.PruneDefaults(structural); err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(s.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		sub, err := apiextensions.GetSubresourcesForVersion(internal, v.Name)
		if err != nil {
			return err
		}
		k := &kind{
			gvk:        schema.GroupVersionKind{Group: c.Spec.Group, Version: v.Name, Kind: c.Spec.Names.Kind},
			namespaced: c.Spec.Scope == apiextensionsv1.NamespaceScoped,
			hasStatus:  sub != nil && sub.Status != nil,
			hasScale:   sub != nil && sub.Scale != nil,
			structural: structural,
			schema:     validator,
			rules: sync.OnceValue(func() *cel.Validator {
				return cel.NewValidator(structural, true, celconfig.PerCallLimit)
			}),
		}
		j.kinds[k.gvk] = k
	}
	return nil
}
