package render

import (
	"fmt"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/coppice-dev/coppice/internal/diag"
)

// Deletions reads what a tree's settings, the text of [SettingsPackage].cue, confirm the
// deletion of: the strings of the list deletes, each KIND/NAME or CLUSTER/KIND/NAME. They
// are read as they are written, without evaluation. Text that isn't CUE confirms nothing;
// who evaluates it says why. Findings have no code.
func Deletions(text []byte) (names []string, findings diag.List) {
	file, err := parser.ParseFile(settingsFile, text)
	if err != nil {
		return nil, nil
	}
	refuse := func(n ast.Node, message string) {
		p := n.Pos().Position()
		findings = append(findings, diag.Finding{
			Message: message, Pos: diag.Position{File: settingsFile, Line: p.Line, Col: p.Column},
			Help: `write it as in deletes: ["NodePool/batch", "prod-eu/NodePool/old"]`,
		})
	}
	for _, decl := range file.Decls {
		field, ok := decl.(*ast.Field)
		if !ok || labelOf(field) != "deletes" {
			continue
		}
		list, ok := field.Value.(*ast.ListLit)
		if !ok {
			refuse(field.Value, "deletes must be a list of names in quotes")
			continue
		}
		for _, e := range list.Elts {
			lit, ok := e.(*ast.BasicLit)
			if !ok {
				refuse(e, "deletes must hold names in quotes")
				continue
			}
			name, err := strconv.Unquote(lit.Value)
			if n := strings.Count(name, "/"); err != nil || n < 1 || n > 2 {
				refuse(e, fmt.Sprintf("%s is no object", lit.Value))
				continue
			}
			names = append(names, name)
		}
	}
	return names, findings
}
