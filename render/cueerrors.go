package render

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/coppice-dev/coppice/internal/diag"
)

// position turns a position of CUE's into one that people know.
func (t *tree) position(p token.Pos) diag.Position {
	if !p.IsValid() {
		return diag.Position{}
	}
	return diag.Position{File: t.origin(p.Filename()), Line: p.Line(), Col: p.Column()}
}

// cueFindings turns an error of CUE's into findings, one for each error in it.
// A position in the author's own files is preferred to one in a module.
func (t *tree) cueFindings(err error, code, help string) diag.List {
	var findings diag.List
	if help == "" {
		help = defaultHelp(code)
	}
	for _, e := range errors.Errors(err) {
		if t.fromHole(e) {
			continue
		}
		f := diag.Finding{
			Code:    code,
			Message: oneLine(messageOf(e)),
			Path:    strings.Join(e.Path(), "."),
			Help:    help,
		}
		own, other := t.errorPositions(e)
		for i, p := range append(own, other...) {
			if i == 0 {
				f.Pos = p
				continue
			}
			f.Related = append(f.Related, diag.Related{Pos: p, Message: "also involved"})
		}
		if name, ok := strings.CutPrefix(f.Message, undefinedField); ok {
			for _, p := range own {
				if s := t.meantField(p, name); s != "" {
					f.Help = didYouMean(s)
				}
			}
		}
		findings = append(findings, f)
	}
	return findings
}

const suggests = "did you mean "

func didYouMean(s string) string { return suggests + s + "?" }

// defaultHelp is for errors of CUE's that say all there is to say but what to do.
func defaultHelp(code string) string {
	switch code {
	case CodeSyntax:
		return "correct the CUE; nothing of this file was read"
	case CodeConflict:
		return "correct the expression, or make the values agree"
	}
	return ""
}

// messageOf is what the first error in err says, without its path and positions.
func messageOf(err error) string {
	list := errors.Errors(err)
	if len(list) == 0 {
		return err.Error()
	}
	format, args := list[0].Msg()
	text := fmt.Sprintf(format, args...)
	cause := errors.Unwrap(list[0])
	if cause == nil || text != "" && strings.Contains(text, cause.Error()) {
		return text
	}
	said := cause.Error()
	if inner, ok := cause.(errors.Error); ok {
		said = messageOf(inner)
	}
	return strings.TrimPrefix(text+": "+said, ": ")
}

// errorPositions returns the places that an error names: those in the author's
// files and those in modules, each sorted.
func (t *tree) errorPositions(e errors.Error) (own, other []diag.Position) {
	for _, p := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
		if !p.IsValid() {
			continue
		}
		if foreign(p.Filename()) {
			other = append(other, t.position(p))
		} else {
			own = append(own, t.position(p))
		}
	}
	sort := func(l []diag.Position) []diag.Position {
		slices.SortFunc(l, diag.Position.Compare)
		return slices.Compact(l)
	}
	return sort(own), sort(other)
}

// nested matches what CUE's loader puts before an error for each import that led
// to it.
var nested = regexp.MustCompile(`^(import failed: |/[^ :]+:\d+:\d+: )+`)

// loadFindings classifies what CUE's loader and compiler report.
func (t *tree) loadFindings(err error) diag.List {
	if err == nil {
		return nil
	}
	findings := t.cueFindings(err, CodeSyntax, "")
	for i := range findings {
		f := &findings[i]
		switch {
		case strings.Contains(f.Message, "import cycle"):
			f.Code = CodeImport
			f.Message = nested.ReplaceAllString(f.Message, "")
			f.Help = "move what both packages need into a third one"
		case strings.HasPrefix(f.Message, "import failed"), strings.Contains(f.Message, "cannot find package"),
			strings.Contains(f.Message, "cannot find module"), strings.Contains(f.Message, "isn't vendored"):
			f.Code = CodeImport
			f.Message = nested.ReplaceAllString(f.Message, "")
			f.Help = "import a folder of this tree, a package of " + SchemaModule + ", or one that is vendored under cue.mod/pkg"
		case strings.HasPrefix(f.Message, unusedImport):
			f.Help = "remove the import"
		case isUnresolved(f.Message):
			f.Help = "declare the field in this package, or import the package that has it"
			if s := t.meantName(f.Pos, unresolvedName(f.Message)); s != "" {
				f.Help = didYouMean(s)
			}
		}
	}
	return findings
}

// oneLine joins the lines of a message.
func oneLine(s string) string {
	return strings.Join(strings.Fields(s), " ")
}
