package schemas_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// examples returns the objects in testdata by file name. Together they use every
// field of every kind.
func examples(t testing.TB) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	out := map[string]map[string]any{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = decode(t, text)
	}
	return out
}

func decode(t testing.TB, text []byte) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{}
	j, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(j); err != nil {
		t.Fatal(err)
	}
	return u.Object
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := schemas.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// withoutSubresources makes status a field like any other, so that it is judged.
func withoutSubresources(crds []*apiextensionsv1.CustomResourceDefinition) []*apiextensionsv1.CustomResourceDefinition {
	for _, c := range crds {
		for i := range c.Spec.Versions {
			c.Spec.Versions[i].Subresources = nil
		}
	}
	return crds
}

func TestSchemeKnowsEveryCRD(t *testing.T) {
	s := scheme(t)
	for _, c := range schemas.CRDs() {
		for _, v := range c.Spec.Versions {
			for _, kind := range []string{c.Spec.Names.Kind, c.Spec.Names.ListKind} {
				gvk := schema.GroupVersionKind{Group: c.Spec.Group, Version: v.Name, Kind: kind}
				if _, err := s.New(gvk); err != nil {
					t.Errorf("%v: %v", gvk, err)
				}
			}
		}
	}
}

func TestCRDsAreSortedAndFresh(t *testing.T) {
	a := schemas.CRDs()
	if !slices.IsSortedFunc(a, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	a[0].Name = "changed"
	if schemas.CRDs()[0].Name == "changed" {
		t.Error("two calls share a CRD")
	}
	if n := bytes.Count(schemas.CRDYAML(), []byte("\n---\n")); n != len(a) {
		t.Errorf("CRDYAML has %d documents, want %d", n, len(a))
	}
}

// Reading an object into its Go type and writing it again changes nothing.
func TestGoTypesRoundTrip(t *testing.T) {
	s := scheme(t)
	for name, obj := range examples(t) {
		t.Run(name, func(t *testing.T) {
			typed, err := s.New((&unstructured.Unstructured{Object: obj}).GroupVersionKind())
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.DisallowUnknownFields()
			if err := dec.Decode(typed); err != nil {
				t.Fatalf("a field is missing from the Go type: %v", err)
			}
			typed = typed.DeepCopyObject()
			again, err := json.Marshal(typed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(obj, decode(t, again)); diff != "" {
				t.Errorf("through encoding/json (-before +after):\n%s", diff)
			}
			tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(obj, tree); diff != "" {
				t.Errorf("through the unstructured converter (-before +after):\n%s", diff)
			}
		})
	}
}

// The examples use every field that the CRDs have, and the CRDs accept them.
func TestExamplesAreValidAndComplete(t *testing.T) {
	crds := withoutSubresources(schemas.CRDs())
	judge, err := admission.New(crds)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for name, obj := range examples(t) {
		v := judge.Check(obj, nil)
		for _, violation := range v.Violations {
			t.Errorf("%s: %v: %s", name, violation.Path, violation.Message)
		}
		if len(v.Pruned) > 0 {
			t.Errorf("%s: fields that no schema has: %v", name, v.Pruned)
		}
		paths(obj, obj["kind"].(string), used)
	}
	for _, c := range crds {
		root := c.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, p := range properties(root, c.Spec.Names.Kind) {
			if !used[p] {
				t.Errorf("no example in testdata has %s", p)
			}
		}
	}
}

func paths(v any, at string, into map[string]bool) {
	into[at] = true
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			paths(e, at+"."+k, into)
		}
	case []any:
		for _, e := range v {
			paths(e, at+"[]", into)
		}
	}
}

// properties lists the paths of all fields that a schema names.
func properties(s *apiextensionsv1.JSONSchemaProps, at string) []string {
	var out []string
	for name, p := range s.Properties {
		out = append(out, at+"."+name)
		out = append(out, properties(&p, at+"."+name)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		out = append(out, properties(s.Items.Schema, at+"[]")...)
	}
	slices.Sort(out)
	return out
}

// The lists of labels in Go, in the CRDs' rules and in the CUE rules say the same.
func TestWellKnownLabelsCanBeRequired(t *testing.T) {
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	cues := newCUE(t)
	example := examples(t)["nodeclaim.yaml"]
	labels := append(karpenter.WellKnownLabels(), aws.WellKnownLabels()...)
	for _, key := range append(labels, "karpenter.sh/unknown", "karpenter.k8s.aws/instance-unknown", "x.karpenter.sh/y", corev1.LabelHostname) {
		claim := clone(example)
		claim["spec"].(map[string]any)["requirements"] = []any{map[string]any{"key": key, "operator": "Exists"}}
		want := slices.Contains(labels, key)
		if got := judge.Check(claim, nil).Accepted(); got != want {
			t.Errorf("CRD: %s accepted: %v, want %v", key, got, want)
		}
		if err := cues.check(claim); (err == nil) != want {
			t.Errorf("CUE: %s accepted: %v, want %v: %v", key, err == nil, want, err)
		}
	}
	if !slices.IsSorted(karpenter.WellKnownLabels()) || !slices.IsSorted(aws.WellKnownLabels()) {
		t.Error("the lists aren't sorted")
	}
}

// All kinds with conditions can be used by code that knows only these methods.
func TestConditionsAccessors(t *testing.T) {
	type holder interface {
		GetConditions() []metav1.Condition
		SetConditions([]metav1.Condition)
	}
	s := scheme(t)
	for _, c := range schemas.CRDs() {
		obj, err := s.New(schema.GroupVersionKind{Group: c.Spec.Group, Version: c.Spec.Versions[0].Name, Kind: c.Spec.Names.Kind})
		if err != nil {
			t.Fatal(err)
		}
		h, ok := obj.(holder)
		if !ok {
			t.Errorf("%s has no conditions accessors", c.Spec.Names.Kind)
			continue
		}
		want := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
		h.SetConditions(want)
		if diff := cmp.Diff(want, h.GetConditions()); diff != "" {
			t.Errorf("%s: conditions (-set +got):\n%s", c.Spec.Names.Kind, diff)
		}
	}
}
