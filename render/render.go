package render

import (
	"fmt"
	"io/fs"

	"github.com/coppice-dev/coppice/internal/diag"
)

// renderWith is Render with the schemas' files as an argument.
func renderWith(schemas, fsys fs.FS, cluster string) (Bundle, diag.List) {
	dir, name, findings := clusterDir(fsys, cluster)
	if findings != nil {
		return Bundle{Cluster: cluster}, findings
	}
	bundle := Bundle{Cluster: name}
	t := newTree(fsys)
	if findings := t.mountModules(schemas); findings != nil {
		return bundle, findings.Sorted()
	}
	v, findings := t.loadPackage(newContext(), dir)
	if findings.HasErrors() {
		return bundle, findings.Sorted()
	}
	e := &evaluator{tree: t, dir: dir}
	objects, more := e.objects(v)
	findings = append(findings, more...)
	sortObjects(objects)
	bundle.Objects = objects

	c, err := newChecker(schemas)
	if err != nil {
		return bundle, append(findings, diag.Finding{Code: CodeModule, Message: fmt.Sprintf("the schemas of this binary don't compile: %v", err)})
	}
	for _, o := range objects {
		findings = append(findings, c.check(o)...)
	}
	return bundle, findings.Sorted()
}
