package render

import (
	"fmt"
	"io/fs"
	"slices"

	"cuelang.org/go/cue"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

// Render evaluates the package of a cluster and checks its objects against the
// CUE schemas. cluster "" stands for the only cluster of the tree. The bundle holds
// the objects as far as they could be evaluated; it must only be applied if no
// finding is an error.
func Render(fsys fs.FS, cluster string) (Bundle, diag.List) {
	return renderWith(schemas.CUE(), fsys, cluster)
}

// Check renders a cluster and validates the result, reporting each fault once.
func Check(fsys fs.FS, cluster string, j *admission.Judge) (Bundle, diag.List) {
	b, findings := Render(fsys, cluster)
	return b, Merge(findings, Validate(b, j))
}

// Merge joins what Render or Manifest found with what Validate found in the same
// bundle.
func Merge(rendered, validated diag.List) diag.List {
	return slices.Concat(rendered, validated).Sorted()
}

// renderWith is Render with the schemas' files as an argument.
func renderWith(definitions, fsys fs.FS, cluster string) (Bundle, diag.List) {
	return (&session{definitions: definitions, fsys: fsys}).render(cluster)
}

func (s *session) render(cluster string) (bundle Bundle, findings diag.List) {
	defer func() {
		// CUE's evaluator panics where it finds its own invariants broken. That is no
		// reason for a command, or a controller, to end.
		if r := recover(); r != nil {
			s.forget()
			bundle, findings = Bundle{Cluster: cluster}, diag.List{{
				Code: CodeEvaluator, Message: oneLine(fmt.Sprintf("the evaluator failed: %v", r)),
				Pos:  Place(s.fsys, cluster),
				Help: "find the part that it fails on by taking parts of the tree away, and report it to CUE",
			}}
		}
	}()
	dir, name, findings := clusterDir(s.fsys, cluster)
	if findings != nil {
		return Bundle{Cluster: cluster}, findings
	}
	var i *inspection
	var told diag.List
	from := fromPackage
	var holes *holes
	findings = func() diag.List {
		i = s.inspect()
		defer i.wait()
		var e *evaluator
		var v cue.Value
		if e, v, told = s.load(dir); e == nil {
			return nil
		}
		if told.HasErrors() {
			from = fromParts
			if e.tree.isPart() {
				holes = &e.tree.holes
			}
		}
		return e.objects(v, i.add)
	}()
	if i.panicked != nil {
		panic(i.panicked)
	}
	findings = append(findings, i.findings...)
	if holes != nil {
		findings = append(findings, references(NewBundle(name, i.objects).Objects, from)...)
		return Bundle{Cluster: name}, holes.certain(told, findings).Sorted()
	}
	findings = append(told, findings...)
	if i.err != nil {
		return Bundle{Cluster: name}, append(findings, brokenSchemas(i.err))
	}
	bundle = NewBundle(name, i.objects)
	findings = append(findings, references(bundle.Objects, from)...)
	return bundle, findings.Sorted()
}

// inspection checks objects by the schemas while others are still evaluated. Schemas and
// objects are values of contexts of their own, so that neither waits for the other.
type inspection struct {
	in   chan Object
	done chan struct{}
	// What follows holds after wait.
	objects  []Object
	findings diag.List
	err      error
	panicked any
}

// waiting is how many evaluated objects may wait to be checked.
const waiting = 64

// inspect begins an inspection. Until its end, nobody else may use the checker.
func (s *session) inspect() *inspection {
	i := &inspection{in: make(chan Object, waiting), done: make(chan struct{})}
	go func() {
		defer close(i.done)
		defer func() {
			i.panicked = recover()
			// Who evaluates isn't to wait for somebody who has given up.
			for range i.in {
			}
		}()
		// The schemas are compiled while the tree is read.
		c, err := s.schemas()
		if i.err = err; err != nil {
			return
		}
		for o := range i.in {
			r := c.check(o)
			compiled, more := desugar(o, r.faulty)
			compiled.mended, compiled.excused = mended(compiled, r.shape, r.mends, r.faulty)
			i.objects = append(i.objects, compiled)
			i.findings = append(i.findings, append(r.findings, more...)...)
			if s.seen != nil {
				s.seen(compiled)
			}
		}
	}()
	return i
}

func (i *inspection) add(o Object) { i.in <- o }

// wait ends the inspection.
func (i *inspection) wait() {
	close(i.in)
	<-i.done
}
