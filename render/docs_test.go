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

// TestCodesAreDocumented compares what is said of each code with the table that authors
// are given.
func TestCodesAreDocumented(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/authoring.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for line := range strings.SplitSeq(string(page), "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 2 {
			documented[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(strings.TrimSuffix(cells[1], " |"), " (a warning)")
		}
	}
	said := Codes()
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
			if said[code] == "" || documented[code] != said[code] {
				t.Errorf("docs/authoring.md says of %s %q, the code %q", code, documented[code], said[code])
			}
		}
		return true
	})
	if len(codes) < 20 || len(codes) != len(said) {
		t.Errorf("%d codes found, %d described", len(codes), len(said))
	}
}
