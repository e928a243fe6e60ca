package render

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
)

// Manifest reads the objects of a YAML or JSON manifest and checks them against
// the same schemas as Render. file is the name for positions.
func Manifest(file string, text []byte) (Bundle, diag.List) {
	if len(text) > maxFileBytes {
		return Bundle{}, diag.List{{
			Code: CodeTree, Pos: diag.Position{File: file},
			Message: fmt.Sprintf("is %d MiB, more than the limit of %d MiB", len(text)>>20, maxFileBytes>>20),
			Help:    "split the file",
		}}
	}
	objects, findings := readYAML(file, text)
	c, err := newChecker(schemas.CUE())
	if err != nil {
		return Bundle{}, diag.List{brokenSchemas(err)}
	}
	first := map[string]Object{}
	for _, o := range objects {
		if o.Value == nil {
			continue
		}
		if o.Name == "" && known(o) {
			findings = append(findings, diag.Finding{
				Code: CodeRequired, Message: "metadata.name is missing", Help: "add metadata with a name",
				Pos: o.Position("metadata"), Object: o.ID(), Path: "metadata.name",
			})
		}
		if other, ok := first[o.ID()]; ok && o.Name != "" {
			findings = append(findings, diag.Finding{
				Code: CodeDuplicateObject, Message: o.ID() + " is declared twice", Help: "keep one of them, or rename one",
				Pos: o.Position("metadata", "name"), Object: o.ID(), Path: "metadata.name",
				Related: []diag.Related{{Pos: other.Position("metadata", "name"), Message: "declared here first"}},
			})
		}
		first[o.ID()] = o
		if f, ok := unknownKind(o); ok {
			findings = append(findings, f)
			continue
		}
		found, _ := c.check(o)
		for _, f := range found {
			if f.Path != "metadata.name" && f.Path != "metadata" || f.Code != CodeRequired {
				findings = append(findings, f)
			}
		}
	}
	findings = append(findings, references(objects, false)...)
	sortObjects(objects)
	return Bundle{Objects: objects}, findings.Sorted()
}

// unknownKind reports an object that there is no schema for: as an error if it
// looks like one of ours, since it would have no effect at all.
func unknownKind(o Object) (diag.Finding, bool) {
	if known(o) {
		return diag.Finding{}, false
	}
	apiVersion, kindName := o.GVK.ToAPIVersionAndKind()
	f := diag.Finding{
		Severity: diag.Info, Code: CodeUnknownKind,
		Message: fmt.Sprintf("%s in %s has no schema here, so it wasn't checked", kindName, apiVersion),
		Pos:     o.Position("kind"), Object: o.ID(), Path: "kind",
	}
	var groups, names []string
	for _, k := range kinds() {
		groups, names = append(groups, k.gvk.Group), append(names, k.gvk.Kind)
		if k.gvk.Kind == o.GVK.Kind || k.gvk.Group == o.GVK.Group {
			f.Severity = diag.Error
		}
		if k.gvk.Kind == o.GVK.Kind {
			f.Message = fmt.Sprintf("%s is not served as %s", kindName, apiVersion)
			f.Help = fmt.Sprintf("write it as apiVersion: %s", k.gvk.GroupVersion())
			f.Pos, f.Path = o.Position("apiVersion"), "apiVersion"
			return f, true
		}
	}
	switch {
	case f.Severity == diag.Error && nearest(kindName, names) != "":
		f.Help = fmt.Sprintf("did you mean %s?", nearest(kindName, names))
	case f.Severity == diag.Error:
		f.Help = legacyHelp(o.GVK)
	case nearest(o.GVK.Group, groups) != "":
		f.Severity = diag.Error
		f.Help = fmt.Sprintf("did you mean the group %s?", nearest(o.GVK.Group, groups))
	}
	return f, true
}

// legacyHelp names what replaced a kind of Karpenter's before v1.
func legacyHelp(gvk schema.GroupVersionKind) string {
	switch gvk.Kind {
	case "Provisioner":
		return "write a NodePool in karpenter.sh/v1 instead"
	case "Machine":
		return "write a NodeClaim in karpenter.sh/v1 instead"
	case "AWSNodeTemplate":
		return "write an EC2NodeClass in karpenter.k8s.aws/v1 instead"
	}
	return "use one of the kinds that the group has"
}

func brokenSchemas(err error) diag.Finding {
	return diag.Finding{
		Code: CodeModule, Message: fmt.Sprintf("the schemas of this binary don't compile: %s", oneLine(err.Error())),
		Help: "this is a fault of the release; please report it",
	}
}
