package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/encoding/jsonschema"
	cueyaml "cuelang.org/go/encoding/yaml"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	module     = "coppice.dev/schemas"
	metaImport = "meta"
)

// cueDefinitions writes one CUE file for each CRD into dir, which holds nothing
// else that is generated. A file is named FOLDER.VERSION.KIND.cue; package schemas
// serves it as FOLDER/VERSION/KIND.cue.
func cueDefinitions(crds []*apiextensionsv1.CustomResourceDefinition, dir string) error {
	for _, c := range crds {
		for i := range c.Spec.Versions {
			f, err := cueFile(c, i)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			text, err := format.Node(f)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			name := fmt.Sprintf("%s.%s.%s.cue", folder(c.Spec.Group), c.Spec.Versions[i].Name, strings.ToLower(c.Spec.Names.Kind))
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// formatCUE formats the files in dir, those that are written by hand included.
func formatCUE(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.cue"))
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		formatted, err := format.Source(text)
		if err != nil {
			return err
		}
		if bytes.Equal(formatted, text) {
			continue
		}
		if err := os.WriteFile(f, formatted, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// folder is where the CUE packages of an API group are.
func folder(group string) string {
	if group == "karpenter.k8s.aws" {
		return "aws"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}

// cueFile turns one version of a CRD into a file with one closed definition.
func cueFile(c *apiextensionsv1.CustomResourceDefinition, version int) (*ast.File, error) {
	c = c.DeepCopy()
	c.Spec.Versions = c.Spec.Versions[version : version+1]
	v := &c.Spec.Versions[0]
	root := v.Schema.OpenAPIV3Schema
	doc := root.Description
	forAuthors(root)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root.Properties, name)
	}
	open := true
	root.Properties["status"] = apiextensionsv1.JSONSchemaProps{
		Description:            "Status is what the controller observed. It is ignored when the object is applied.",
		Type:                   "object",
		XPreserveUnknownFields: &open,
	}

	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	// Through YAML, because that gives the tree as CUE expressions.
	in, err := cueyaml.Extract(c.Name, text)
	if err != nil {
		return nil, err
	}
	got, err := jsonschema.ExtractCRDs(cuecontext.New().BuildFile(in), nil)
	if err != nil {
		return nil, err
	}
	extracted := got[0].Versions[v.Name]

	def := &ast.StructLit{Elts: []ast.Decl{
		&ast.Field{Label: ast.NewIdent("apiVersion"), Value: ast.NewString(c.Spec.Group + "/" + v.Name)},
		&ast.Field{Label: ast.NewIdent("kind"), Value: ast.NewString(c.Spec.Names.Kind)},
		&ast.Field{Label: ast.NewIdent("metadata"), Value: ast.NewSel(ast.NewIdent(metaImport), "#ObjectMeta")},
	}}
	for _, d := range extracted.Decls {
		if f, ok := d.(*ast.Field); ok && slices.Contains([]string{"spec", "status"}, labelOf(f)) {
			def.Elts = append(def.Elts, f)
		}
	}
	used := map[string]bool{}
	tidy(def, used)

	var imports []*ast.ImportSpec
	for _, name := range []string{"list", "strings", "struct", "time"} {
		if used[name] {
			imports = append(imports, ast.NewImport(nil, name))
		}
	}
	imports = append(imports, ast.NewImport(ast.NewIdent(metaImport), module+"/meta/v1"))

	field := &ast.Field{Label: ast.NewIdent("#" + c.Spec.Names.Kind), Value: def}
	ast.SetRelPos(field, token.NewSection)
	ast.AddComment(field, comment(doc))
	header := comment("Code generated from the CRD " + c.Name + ". DO NOT EDIT.")
	pkg := &ast.Package{Name: ast.NewIdent(v.Name)}
	file := &ast.File{Decls: []ast.Decl{
		&ast.CommentGroup{List: header.List},
		pkg,
		&ast.ImportDecl{Specs: imports},
		field,
	}}
	ast.SetRelPos(pkg, token.NewSection)
	return file, nil
}

// forAuthors changes a schema to what an author may write: a field with a default
// needn't be there, and a number or string is said once.
func forAuthors(s *apiextensionsv1.JSONSchemaProps) {
	if s.XIntOrString {
		s.AnyOf = nil
	}
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool {
		return s.Properties[name].Default != nil
	})
	s.Default = nil
	// The CRD's rules are written in CEL, which CUE doesn't read.
	s.XValidations = nil
	for name, p := range s.Properties {
		forAuthors(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		forAuthors(s.Items.Schema)
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		forAuthors(a.Schema)
	}
}

// tidy makes generated CUE look as if written by hand: no quotes around labels
// that need none, no leftover positions. It notes which packages are used.
func tidy(n ast.Node, used map[string]bool) {
	ast.Walk(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			name := labelOf(n)
			// A field of a package's name would hide the package.
			if _, quoted := n.Label.(*ast.BasicLit); quoted && ast.IsValidIdent(name) &&
				!strings.ContainsAny(name[:1], "_#") && !isPackage(name) {
				n.Label = ast.NewIdent(name)
			}
		case *ast.CallExpr:
			for _, a := range n.Args {
				ast.SetRelPos(a, token.NoSpace)
			}
			n.Rparen = token.NoPos
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && isPackage(x.Name) {
				used[x.Name] = true
			}
		}
		return true
	}, nil)
}

func isPackage(name string) bool {
	return slices.Contains([]string{"list", "strings", "struct", "time", metaImport}, name)
}

func labelOf(f *ast.Field) string {
	switch l := f.Label.(type) {
	case *ast.Ident:
		return l.Name
	case *ast.BasicLit:
		if s, err := literal.Unquote(l.Value); err == nil {
			return s
		}
	}
	return ""
}

func comment(text string) *ast.CommentGroup {
	g := &ast.CommentGroup{Doc: true}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		g.List = append(g.List, &ast.Comment{Text: strings.TrimRight("// "+line, " ")})
	}
	return g
}
