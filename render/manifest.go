package render

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// PartList is the field of a [Documents] object that holds a document that is a list.
const PartList = "-"

// Documents reads a YAML or JSON stream without judging what it says. A document that is
// no whole object comes without a kind.
func Documents(file string, text []byte) ([]Object, diag.List) {
	objects, findings := readYAML(file, text, true)
	return objects, findings.Sorted()
}

// File is a manifest with its name for positions.
type File struct {
	Name string
	Text []byte
}

// Manifest is Manifests for a single file.
func Manifest(file string, text []byte) (Bundle, diag.List) {
	return Manifests(File{Name: file, Text: text})
}

// Manifests reads the objects of YAML or JSON manifests and checks them against the
// same schemas as Render, together: no two of them have the same name, and if there
// are classes among them, those that pools refer to are.
func Manifests(files ...File) (Bundle, diag.List) {
	var objects []Object
	var findings diag.List
	for _, file := range files {
		if len(file.Text) > maxFileBytes {
			findings = append(findings, diag.Finding{
				Code: CodeTree, Pos: diag.Position{File: file.Name},
				Message: fmt.Sprintf("is %d MiB, more than the limit of %d MiB", len(file.Text)>>20, maxFileBytes>>20),
				Help:    "split the file",
			})
			continue
		}
		found, more := readYAML(file.Name, file.Text, false)
		if len(found) == 0 && len(more) == 0 {
			more = diag.List{{
				Severity: diag.Warning, Code: CodeUnread, Pos: diag.Position{File: file.Name},
				Message: "the file holds no object, so there is nothing to check", Help: "leave it out, or look where its objects went",
			}}
		}
		objects, findings = append(objects, found...), append(findings, more...)
	}
	c, err := newChecker(schemas.CUE())
	if err != nil {
		return Bundle{}, diag.List{brokenSchemas(err)}
	}
	objects = slices.DeleteFunc(objects, func(o Object) bool { return o.Value == nil })
	for i, o := range objects {
		if f, ok := unknownKind(o); ok {
			// That apiVersion is missing has been said where the file was read.
			if _, written := o.Value["apiVersion"]; written {
				findings = append(findings, f)
			}
			if o, ok = intended(o); !ok {
				continue
			}
		}
		if o.Name == "" {
			findings = append(findings, diag.Finding{
				Code: CodeRequired, Message: "metadata.name is missing", Help: "add metadata with a name",
				Pos: o.Position("metadata"), Object: o.ID(), Path: "metadata.name",
			})
		}
		// Options are compiled in a package alone: here, the API server would drop them.
		plain := o
		if _, options := o.Value[sugar.Field]; options {
			plain.Value = maps.Clone(o.Value)
			delete(plain.Value, sugar.Field)
		}
		r := c.check(plain)
		o.mended, o.excused = mended(o, r.shape, r.mends, r.faulty)
		objects[i] = o
		findings = append(findings, annotated(o, r.faulty)...)
		for _, f := range r.findings {
			if f.Path != "metadata.name" && f.Path != "metadata" || f.Code != CodeRequired {
				findings = append(findings, f)
			}
		}
	}
	findings = append(findings, duplicates(objects)...)
	findings = append(findings, references(objects, fromManifests)...)
	sortObjects(objects)
	return Bundle{Objects: objects}, findings.Sorted()
}

// duplicates reports objects that are declared twice. In different folders that is a
// warning, since each may be a cluster's own.
func duplicates(objects []Object) diag.List {
	var findings diag.List
	first := map[string]Object{}
	for _, o := range objects {
		if !known(o) || o.Name == "" {
			continue
		}
		meta, _ := o.Value["metadata"].(map[string]any)
		id := fmt.Sprint(o.GVK.GroupKind(), " ", meta["namespace"], " ", o.Name)
		other, ok := first[id]
		if !ok {
			first[id] = o
			continue
		}
		at, before := o.Position("metadata", "name"), other.Position("metadata", "name")
		f := diag.Finding{
			Code: CodeDuplicateObject, Message: o.ID() + " is declared twice", Help: "keep one of them, or rename one",
			Pos: at, Object: o.ID(), Path: "metadata.name",
			Related: []diag.Related{{Pos: before, Message: "declared here first"}},
		}
		if path.Dir(at.File) != path.Dir(before.File) {
			f.Severity = diag.Warning
			f.Help = "keep one of them, or rename one; if the folders are for different clusters, check each by itself"
		}
		findings = append(findings, f)
	}
	return findings
}

// intended returns an object whose apiVersion is missing or misspelt as one of the
// kind that it is most likely meant to be, so that the rest of it can be checked.
func intended(o Object) (Object, bool) {
	given, name := o.GVK.ToAPIVersionAndKind()
	for _, k := range kinds() {
		meant := k.gvk.GroupVersion().String()
		if k.gvk.Kind != name || given != "" && nearest(given, []string{meant}) == "" {
			continue
		}
		value := maps.Clone(o.Value)
		value["apiVersion"] = meant
		o.GVK, o.Value = k.gvk, value
		return o, true
	}
	return o, false
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
		f.Message = fmt.Sprintf("there is no kind %s in %s", kindName, apiVersion)
		f.Help = fmt.Sprintf("did you mean %s?", nearest(kindName, names))
	case f.Severity == diag.Error:
		f.Message = fmt.Sprintf("there is no kind %s in %s", kindName, apiVersion)
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
