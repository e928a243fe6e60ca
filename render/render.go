package render

import (
	"fmt"
	"io/fs"
	"slices"

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
	bundle = Bundle{Cluster: name}
	e, v, findings := s.load(dir)
	if e == nil {
		return bundle, findings.Sorted()
	}
	from := fromPackage
	if findings.HasErrors() {
		from = fromParts
	}
	objects, more := e.objects(v)
	findings = append(findings, more...)
	sortObjects(objects)
	bundle.Objects = objects

	c, err := s.schemas()
	if err != nil {
		return bundle, append(findings, brokenSchemas(err))
	}
	for i, o := range objects {
		r := c.check(o)
		compiled, more := desugar(o, r.faulty)
		compiled.mended, compiled.excused = mended(compiled, r.shape, r.mends, r.faulty)
		objects[i] = compiled
		findings = append(findings, append(r.findings, more...)...)
	}
	findings = append(findings, references(objects, from)...)
	return bundle, findings.Sorted()
}
