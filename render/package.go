package render

import (
	"io/fs"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
)

// SettingsPackage is the package at the root of a tree that says what the tree is,
// rather than what a cluster has: coppice.cue holds it. It stands beside a cluster's
// package where the tree has a single cluster.
const SettingsPackage = "coppice"

// settingsFile is the file that a tree's settings begin in.
const settingsFile = SettingsPackage + ".cue"

// Package is a package of a tree that isn't a cluster's, evaluated under the same
// restrictions.
type Package struct {
	// Value may have erroneous parts.
	Value cue.Value
	eval  *evaluator
}

// LoadPackage evaluates the package called name in the folder dir of a tree, or the
// only one of the folder if name is empty. Where there is none, it returns nil; a file
// that can't be read may belong to it, and a link may lead to it, so either is a finding.
// Each file is passed to edits, which may change it, before it is compiled.
func LoadPackage(fsys fs.FS, dir, name string, edits ...func(*ast.File)) (*Package, diag.List) {
	t := newTree(fsys)
	t.edits = edits
	if t.checkPath(dir) != nil {
		return nil, t.refused
	}
	if !hasCUE(fsys, dir) {
		return nil, nil
	}
	first, _, notText, findings := t.clauses(dir)
	if findings != nil {
		return nil, findings.Sorted()
	}
	if unread := append(notText, t.refused...); unread != nil {
		return nil, unread.Sorted()
	}
	if name == SettingsPackage && dir == "." {
		if f := t.misplaced(); f != nil {
			return nil, f
		}
	}
	if name != "" && first[name] == "" {
		return nil, nil
	}
	if findings := t.mountModules(schemas.CUE()); findings != nil {
		return nil, findings.Sorted()
	}
	if name == "" {
		if name, findings = t.packageName(dir); findings != nil {
			return nil, findings
		}
	}
	v, inst, findings := t.loadNamed(newContext(), dir, name)
	if findings.HasErrors() {
		return nil, findings.Sorted()
	}
	return &Package{Value: v, eval: newEvaluator(t, dir, inst, map[ast.Node]*written{})}, findings
}

// misplaced reports a file of settings that belongs to another package: what it says
// would hold for nothing.
func (t *tree) misplaced() diag.List {
	text, err := fs.ReadFile(t, settingsFile)
	if err != nil {
		return nil // Whoever keeps settings elsewhere has none here.
	}
	f, err := parser.ParseFile(settingsFile, text, parser.PackageClauseOnly)
	if err != nil || f.PackageName() == SettingsPackage {
		return nil
	}
	message := "the file belongs to no package, so its settings aren't read"
	if name := f.PackageName(); name != "" {
		message = "the file belongs to the package " + name + ", so its settings aren't read"
	}
	at := diag.Position{File: settingsFile, Line: 1, Col: 1}
	for _, d := range f.Decls {
		if p, ok := d.(*ast.Package); ok {
			at.Line, at.Col = p.Pos().Line(), p.Pos().Column()
		}
	}
	return diag.List{{
		Code: CodeUnread, Message: message, Pos: at,
		Help: "begin it with: package " + SettingsPackage + "; what a cluster has stands in other files",
	}}
}

// onlySettings reports whether all CUE at the root is settings.
func onlySettings(fsys fs.FS) bool {
	first, unnamed, notText, findings := newTree(fsys).clauses(".")
	return findings == nil && notText == nil && unnamed == "" && len(first) == 1 && first[SettingsPackage] == settingsFile
}

// Position returns where the author wrote v: the value itself, or the name of a
// struct or list.
func (p *Package) Position(v cue.Value) diag.Position {
	at := p.eval.placeOf(p.eval.sourceOf(v))
	if kind := v.IncompleteKind(); kind == cue.StructKind || kind == cue.ListKind {
		at = containerPlace(at)
	}
	if !at.value.IsValid() {
		return p.eval.tree.position(v.Pos())
	}
	return at.value
}

// Findings turns an error of a part of the package into findings.
func (p *Package) Findings(err error, code string) diag.List {
	return p.eval.tree.cueFindings(err, code, defaultHelp(CodeConflict))
}

// Nearest returns the candidate that s is most likely a misspelling of, or "".
func Nearest(s string, candidates []string) string { return nearest(s, candidates) }
