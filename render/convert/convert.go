package convert

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// The codes of this package's findings.
const (
	// CodeMoved marks what has another name, place or form in today's API.
	CodeMoved = "IMP001"
	// CodeDefault marks a default that differs, and is written out or filled in.
	CodeDefault = "IMP002"
	// CodeLossy marks what today's API can't express.
	CodeLossy = "IMP003"
	// CodeSkipped marks a document that isn't about nodes, and state that isn't configuration.
	CodeSkipped = "IMP004"
	// CodeMissing marks what today's API wants to know and the source doesn't say.
	CodeMissing = "IMP005"
)

// Options say what the sources don't.
type Options struct {
	// AllowLossy leaves out what can't be expressed.
	AllowLossy bool
	// Role is the IAM role of nodes, for classes without one.
	Role string
	// Discovery is the value of the tag karpenter.sh/discovery on subnets and security
	// groups, for classes that don't select any.
	Discovery string
	// AMIAlias is for classes without an image.
	AMIAlias string
	// Package is the name of the CUE package.
	Package string
}

// Source is one file.
type Source struct {
	Name string
	Text []byte
}

// Result is what sources mean in today's API.
type Result struct {
	// pools and classes are by name; others by their field of the package.
	objects map[string]map[string]map[string]any
	// parts are documents that aren't whole objects, in order.
	parts []map[string]any
	// settings are flags of the controller.
	settings []string
	pools    []poolOf
	// kubelets are settings of pools that are to be moved to their classes.
	kubelets []kubelet
	options  Options
}

// fields of a package that hold objects, in the order in which they are written.
func fields() []string {
	return []string{"nodeClasses", "nodePools", "nodeOverlays", "capacityBuffers"}
}

// groupVersion stands for the API version of node groups.
const groupVersion = "group"

// converter converts one document.
type converter struct {
	// spec is where findings about a class as a whole stand; the spec if it is nil.
	spec    []any
	options Options
	doc     render.Object
	result  *Result
	out     *diag.List
}

// Convert reads sources. With an error among the findings, the result is incomplete.
func Convert(sources []Source, o Options) (*Result, diag.List) {
	r := &Result{objects: map[string]map[string]map[string]any{}, options: o}
	var findings diag.List
	for _, src := range sources {
		docs, found := render.Documents(src.Name, src.Text)
		findings = append(findings, found...)
		if found.HasErrors() {
			continue // What was read isn't what was meant.
		}
		if len(docs) == 0 && len(found) == 0 {
			findings = append(findings, diag.Finding{
				Severity: diag.Info, Code: CodeSkipped, Pos: diag.Position{File: src.Name, Line: 1, Col: 1},
				Message: "the file holds no document, so there is nothing to import",
			})
		}
		for _, doc := range docs {
			c := &converter{options: o, doc: doc, result: r, out: &findings}
			c.document()
		}
	}
	r.placeKubelets()
	r.missingClasses()
	return r, findings.Sorted()
}

// note reports something about the value at a path of the document.
func (c *converter) note(severity diag.Severity, code string, path []any, message, help string) {
	f := diag.Finding{
		Severity: severity, Code: code, Message: message, Help: help,
		Pos: c.doc.KeyPosition(path...), Path: render.PathString(path),
	}
	if c.doc.GVK.Kind != "" {
		f.Object = c.doc.ID()
	}
	*c.out = append(*c.out, f)
}

func (c *converter) here() []any {
	if c.spec == nil {
		return []any{"spec"}
	}
	return c.spec
}

func (c *converter) moved(path []any, message string) {
	c.note(diag.Info, CodeMoved, path, message, "")
}

// lossy reports what can't be carried over.
func (c *converter) lossy(path []any, message, help string) {
	if c.options.AllowLossy {
		c.note(diag.Warning, CodeLossy, path, message+"; it is left out", help)
		return
	}
	c.note(diag.Error, CodeLossy, path, message, help+"; or leave it out with --allow-lossy")
}

// set gives a field the value that stood at a path of the document, and reports whether
// the field has it. A field that has another value keeps it, and that is reported.
func (c *converter) set(dst map[string]any, name string, x any, from []any) bool {
	if there, ok := dst[name]; ok && !reflect.DeepEqual(there, x) {
		c.lossy(from, fmt.Sprintf("this is %s in v1, which has another value already", name), "keep one of them")
		return false
	}
	dst[name] = x
	return true
}

func (c *converter) document() {
	v := copyOf(c.doc.Value).(map[string]any)
	if c.doc.GVK.Group == "karpenter.sh" || c.doc.GVK.Group == "karpenter.k8s.aws" {
		c.wantForms(v)
	}
	group, version, kind := c.doc.GVK.Group, c.doc.GVK.Version, c.doc.GVK.Kind
	if !c.known() {
		return
	}
	switch {
	case kind == "" && v["nodegroup"] != nil, v["nodegroupName"] != nil && kind == "":
		c.nodeGroup(v)
	case kind == "" && v["AutoScalingGroups"] != nil:
		c.scalingGroups(v)
	case kind == "":
		c.part(v)
	case group == "karpenter.sh" && kind == "NodePool":
		c.put("nodePools", c.nodePool(v, version))
	case group == "karpenter.sh" && kind == "Provisioner":
		c.put("nodePools", c.provisioner(v))
	case group == "karpenter.k8s.aws" && kind == "EC2NodeClass":
		c.put("nodeClasses", c.nodeClass(v, version))
	case group == "karpenter.k8s.aws" && kind == "AWSNodeTemplate":
		c.put("nodeClasses", c.nodeTemplate(v))
	case group == "karpenter.sh" && kind == "NodeOverlay":
		c.put("nodeOverlays", c.object(v))
	case group == "autoscaling.x-k8s.io" && kind == "CapacityBuffer":
		c.put("capacityBuffers", c.object(v))
	case kind == "ConfigMap" && c.doc.Name == "karpenter-global-settings":
		c.globalSettings(v)
	case group == "karpenter.sh" && (kind == "NodeClaim" || kind == "Machine"):
		c.note(diag.Info, CodeSkipped, []any{"kind"}, kind+" is what a pool has launched, not what is declared, so it is skipped", "")
	default:
		c.note(diag.Info, CodeSkipped, []any{"kind"}, kind+" isn't about nodes, so it is skipped", "")
	}
}

// versions are those that the kinds of Karpenter are read of.
func versions() map[string]map[string][]string {
	return map[string]map[string][]string{
		"karpenter.sh": {
			"NodePool": {"v1", "v1beta1"}, "Provisioner": {"v1alpha5"}, "NodeOverlay": {"v1alpha1"},
			"NodeClaim": {"v1", "v1beta1"}, "Machine": {"v1alpha5"},
		},
		"karpenter.k8s.aws": {"EC2NodeClass": {"v1", "v1beta1"}, "AWSNodeTemplate": {"v1alpha1"}},
	}
}

// known refuses kinds and versions of Karpenter's groups that aren't read here: what is
// misspelt would pass for something that isn't about nodes.
func (c *converter) known() bool {
	group, version, kind := c.doc.GVK.Group, c.doc.GVK.Version, c.doc.GVK.Kind
	kinds, ours := versions()[group]
	switch {
	case kind == "" || !ours && !strings.HasPrefix(group, "karpenter."):
		return true
	case !ours:
		help := "import what is of karpenter.sh and karpenter.k8s.aws"
		if s := render.Nearest(group, slices.Collect(maps.Keys(versions()))); s != "" {
			help = fmt.Sprintf("write %s if that is meant", s)
		}
		c.lossy([]any{"apiVersion"}, fmt.Sprintf("%s of the group %s has no counterpart here", kind, group), help)
	case kinds[kind] == nil:
		help := "its kinds are " + strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
		if s := render.Nearest(kind, slices.Collect(maps.Keys(kinds))); s != "" {
			help = fmt.Sprintf("write %s if that is meant", s)
		}
		c.lossy([]any{"kind"}, fmt.Sprintf("%s has no kind %s", group, kind), help)
	case !slices.Contains(kinds[kind], version):
		c.lossy([]any{"apiVersion"}, fmt.Sprintf("%s/%s has no %s that is known here", group, version, kind), "write it in one of the versions "+strings.Join(kinds[kind], ", "))
	default:
		return true
	}
	return false
}

// wantForms refuses what is neither object nor list where the conversion reads or writes one.
func (c *converter) wantForms(v map[string]any) {
	for _, want := range []struct {
		path []any
		list bool
	}{
		{path: []any{"spec"}}, {path: []any{"spec", "disruption"}}, {path: []any{"spec", "metadataOptions"}}, {path: []any{"spec", "limits"}},
		{path: []any{"spec", "limits", "resources"}}, {path: []any{"spec", "providerRef"}}, {path: []any{"spec", "consolidation"}},
		{path: []any{"spec", "subnetSelector"}}, {path: []any{"spec", "securityGroupSelector"}}, {path: []any{"spec", "amiSelector"}},
		{path: []any{"spec", "requirements"}, list: true}, {path: []any{"spec", "template"}}, {path: []any{"spec", "template", "metadata"}},
		{path: []any{"spec", "template", "spec"}}, {path: []any{"spec", "template", "spec", "nodeClassRef"}},
		{path: []any{"spec", "template", "spec", "requirements"}, list: true},
	} {
		in, name := v, want.path[len(want.path)-1].(string)
		for _, e := range want.path[:len(want.path)-1] {
			in, _ = in[e.(string)].(map[string]any)
		}
		x, there := in[name]
		_, isObject := x.(map[string]any)
		_, isList := x.([]any)
		if !there || want.list && isList || !want.list && isObject {
			continue
		}
		delete(in, name)
		if x != nil { // To an API server, null says nothing.
			c.lossy(want.path, fmt.Sprintf("%s must be %s", render.PathString(want.path), map[bool]string{true: "a list", false: "an object"}[want.list]), "correct it")
		}
	}
}

// put keeps an object under its name.
func (c *converter) put(field string, v map[string]any) {
	name := c.doc.Name
	if name == "" {
		c.note(diag.Error, CodeMissing, []any{"metadata"}, "metadata.name is missing", "give the object a name")
		return
	}
	c.add(field, name, v, []any{"metadata", "name"})
}

func (c *converter) add(field, name string, v map[string]any, at []any) {
	all := c.result.objects[field]
	if all == nil {
		all = map[string]map[string]any{}
		c.result.objects[field] = all
	}
	if all[name] != nil {
		c.note(diag.Error, CodeMissing, at, fmt.Sprintf("there are two objects called %s in %s", name, field), "rename one, or import one of them")
		return
	}
	all[name] = v
}

// object takes off what the place of an object says, and what a server has added.
func (c *converter) object(v map[string]any) map[string]any {
	delete(v, "apiVersion")
	delete(v, "kind")
	if _, ok := v["status"]; ok {
		delete(v, "status")
		c.note(diag.Info, CodeSkipped, []any{"status"}, "status is what a controller observed, so it is skipped", "")
	}
	meta, _ := v["metadata"].(map[string]any)
	if meta == nil {
		return v
	}
	delete(meta, "name")
	for _, name := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"} {
		if _, ok := meta[name]; ok {
			delete(meta, name)
			c.note(diag.Info, CodeSkipped, []any{"metadata", name}, "metadata."+name+" is set by the server, so it is skipped", "")
		}
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(annotations)) {
			if name == "kubectl.kubernetes.io/last-applied-configuration" || strings.HasSuffix(name, "-hash") && strings.Contains(name, "karpenter") || strings.HasSuffix(name, "-hash-version") && strings.Contains(name, "karpenter") {
				delete(annotations, name)
				c.note(diag.Info, CodeSkipped, []any{"metadata", "annotations", name}, "the annotation "+name+" is set by tools, so it is skipped", "")
			}
		}
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	if len(meta) == 0 {
		delete(v, "metadata")
	}
	return v
}

// sub returns the struct at a path, which is made if it isn't there.
func sub(v map[string]any, path ...string) map[string]any {
	for _, name := range path {
		next, ok := v[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			v[name] = next
		}
		v = next
	}
	return v
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[name] = copyOf(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = copyOf(x)
		}
		return out
	}
	return v
}

// at extends a path by names and indices.
func at(path []any, more ...any) []any { return append(slices.Clone(path), more...) }
