package difftest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Our CRDs have the peer's names, scopes, columns, subresources and fields.
func TestShapesAreEqual(t *testing.T) {
	for _, r := range releases() {
		t.Run(r.version, func(t *testing.T) {
			for _, their := range theirs(t, r) {
				i := slices.IndexFunc(ours(), func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == their.Name })
				if i < 0 {
					t.Errorf("there is no %s", their.Name)
					continue
				}
				our := ours()[i]
				if diff := cmp.Diff(their.Spec.Names, our.Spec.Names); diff != "" {
					t.Errorf("%s: names (-theirs +ours):\n%s", our.Name, diff)
				}
				if our.Spec.Scope != their.Spec.Scope || our.Spec.Group != their.Spec.Group || len(our.Spec.Versions) != len(their.Spec.Versions) {
					t.Errorf("%s: scope, group or versions differ", our.Name)
					continue
				}
				a, b := their.Spec.Versions[0], our.Spec.Versions[0]
				for _, cols := range [][]apiextensionsv1.CustomResourceColumnDefinition{a.AdditionalPrinterColumns, b.AdditionalPrinterColumns} {
					for i := range cols {
						cols[i].Description = ""
					}
				}
				if diff := cmp.Diff(a.AdditionalPrinterColumns, b.AdditionalPrinterColumns); diff != "" {
					t.Errorf("%s: columns (-theirs +ours):\n%s", our.Name, diff)
				}
				if a.Name != b.Name || a.Served != b.Served || a.Storage != b.Storage || !reflect.DeepEqual(a.Subresources, b.Subresources) {
					t.Errorf("%s: versions or subresources differ", our.Name)
				}
				diff := cmp.Diff(without(r, fields(a.Schema.OpenAPIV3Schema, "")), without(r, fields(b.Schema.OpenAPIV3Schema, "")))
				if diff != "" {
					t.Errorf("%s: fields (-theirs +ours):\n%s", our.Name, diff)
				}
			}
		})
	}
}

// without drops the fields that a release differs in.
func without(r release, fields []string) []string {
	if r.version != "v1.14.1" {
		return fields
	}
	return slices.DeleteFunc(fields, func(f string) bool {
		return strings.HasPrefix(f, ".spec.enclaveOptions") || strings.HasPrefix(f, ".spec.kubelet.")
	})
}

// fields lists the fields of a schema with their types.
func fields(s *apiextensionsv1.JSONSchemaProps, at string) []string {
	var out []string
	for name, p := range s.Properties {
		out = append(out, at+"."+name+" "+p.Type)
		out = append(out, fields(&p, at+"."+name)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		out = append(out, fields(s.Items.Schema, at+"[]")...)
	}
	slices.Sort(out)
	return out
}
