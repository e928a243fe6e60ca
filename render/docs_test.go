package render

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestCodesAreDocumented reads the table of codes that authors are given.
func TestCodesAreDocumented(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/authoring.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			lit, ok := spec.Values[i].(*ast.BasicLit)
			if !ok {
				continue
			}
			code, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			if other := codes[code]; other != "" {
				t.Errorf("%s and %s share the code %s", other, name, code)
			}
			codes[code] = name.Name
			if !strings.Contains(string(page), code) {
				t.Errorf("docs/authoring.md doesn't have %s, %s", code, name)
			}
		}
		return true
	})
	if len(codes) < 20 {
		t.Errorf("only %d codes found", len(codes))
	}
}
