package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	gopackages "golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/yaml"
)

// valuesMaxLength and valuesPattern constrain the values of a map of strings, for
// which controller-gen has no markers.
type (
	valuesMaxLength int
	valuesPattern   string
)

func (m valuesMaxLength) ApplyToSchema(_ *crdmarkers.SchemaContext, s *apiextensionsv1.JSONSchemaProps) error {
	if s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil {
		return errors.New("coppice:values:MaxLength applies to maps")
	}
	n := int64(m)
	s.AdditionalProperties.Schema.MaxLength = &n
	return nil
}

func (m valuesPattern) ApplyToSchema(_ *crdmarkers.SchemaContext, s *apiextensionsv1.JSONSchemaProps) error {
	if s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil {
		return errors.New("coppice:values:Pattern applies to maps")
	}
	s.AdditionalProperties.Schema.Pattern = string(m)
	return nil
}

// definitions returns one CRD for each kind in the packages, sorted by name.
func definitions(packages []*loader.Package) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return nil, err
	}
	for name, m := range map[string]any{
		"coppice:values:MaxLength": valuesMaxLength(0),
		"coppice:values:Pattern":   valuesPattern(""),
	} {
		d, err := markers.MakeDefinition(name, markers.DescribesField, m)
		if err != nil {
			return nil, err
		}
		if err := registry.Register(d); err != nil {
			return nil, err
		}
	}
	parser := &crd.Parser{
		Collector: &markers.Collector{Registry: registry},
		Checker:   &loader.TypeChecker{NodeFilters: []loader.NodeFilter{crd.Generator{}.CheckFilter()}},
	}
	crd.AddKnownTypes(parser)
	parser.PackageOverrides["k8s.io/api/core/v1"] = func(p *crd.Parser, pkg *loader.Package) {
		p.Schemata[crd.TypeIdent{Name: "Taint", Package: pkg}] = taint()
		p.AddPackage(pkg)
	}
	for _, p := range packages {
		parser.NeedPackage(p)
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, kind := range crd.FindKubeKinds(parser, crd.FindMetav1(packages)) {
		parser.NeedCRDFor(kind, nil)
		c := parser.CustomResourceDefinitions[kind]
		crd.FixTopLevelMetadata(c)
		if kind.Kind == "NodeClaim" {
			relaxConditions(&c)
		}
		c.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		out = append(out, &c)
	}
	// Only what was asked for is type-checked, so errors in the rest say nothing.
	if loader.PrintErrors(packages, gopackages.TypeError) {
		return nil, errors.New("the types have errors")
	}
	slices.SortFunc(out, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return out, nil
}

// taint is the schema of corev1.Taint. Kubernetes checks taints in code, so its
// type carries no rules to generate them from.
func taint() apiextensionsv1.JSONSchemaProps {
	one := int64(1)
	qualifiedName := `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	var effects []apiextensionsv1.JSON
	for _, e := range []string{"NoSchedule", "PreferNoSchedule", "NoExecute"} {
		effects = append(effects, apiextensionsv1.JSON{Raw: []byte(`"` + e + `"`)})
	}
	return apiextensionsv1.JSONSchemaProps{
		Description: "Keeps pods that don't tolerate it off a node.",
		Type:        "object",
		Required:    []string{"effect", "key"},
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"effect": {
				Description: "Effect on pods that don't tolerate the taint: not scheduled, not scheduled if there is another place, or not scheduled and evicted.",
				Type:        "string",
				Enum:        effects,
			},
			"key": {
				Description: "Key of the taint, written as a label key is.",
				Type:        "string",
				MinLength:   &one,
				Pattern:     qualifiedName,
			},
			"timeAdded": {
				Description: "TimeAdded is when the taint was put on.",
				Type:        "string",
				Format:      "date-time",
			},
			"value": {
				Description: "Value that a toleration can ask for.",
				Type:        "string",
				Pattern:     qualifiedName,
			},
		},
	}
}

// relaxConditions lets a NodeClaim's conditions go without reason and message.
// Karpenter writes such ones on NodeClaims, and on no other kind.
func relaxConditions(c *apiextensionsv1.CustomResourceDefinition) {
	root := c.Spec.Versions[0].Schema.OpenAPIV3Schema
	status := root.Properties["status"]
	conditions := status.Properties["conditions"]
	item := conditions.Items.Schema.DeepCopy()
	item.Required = []string{"lastTransitionTime", "status", "type"}
	reason := item.Properties["reason"]
	reason.MinLength = nil
	reason.Pattern = `^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$`
	item.Properties["reason"] = reason
	conditions.Items.Schema = item
	status.Properties["conditions"] = conditions
}

// yamlOf writes a CRD without the fields that only a server fills in.
func yamlOf(c *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	delete(tree, "status")
	if meta, ok := tree["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	body, err := yaml.Marshal(tree)
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, "# Code generated from the Go types in schemas. DO NOT EDIT.\n---\n"), body...), nil
}
