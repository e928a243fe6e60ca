package render

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/diag"
)

// maxYAMLNodes bounds what aliases may expand one file to. The largest
// manifests have a few thousand nodes.
const maxYAMLNodes = 1 << 18

// maxDepth is how deep values may nest. No kind that there is a schema for comes to
// half of it; an alias to what it stands in would come to any depth.
const maxDepth = 64

// readYAML reads the objects of a manifest, which may hold several documents
// and Lists. With parts, a document may also be a part of an object. A document that can't be read doesn't hide the others.
func readYAML(file string, text []byte, parts bool) ([]Object, diag.List) {
	if f, ok := textFault(file, text, CodeYAML); ok && f.Pos.Line == 0 {
		return nil, diag.List{f}
	}
	r := &yamlReader{file: file, lines: bytes.Split(text, []byte("\n")), parts: parts}
	for _, doc := range splitDocuments(r.lines) {
		r.document(doc)
	}
	return r.objects, r.findings
}

type yamlReader struct {
	file   string
	lines  [][]byte
	offset int // lines before the current document
	// parts says that a document may be a part of an object.
	parts bool
	nodes int
	// cut says that the current document wasn't read to its end.
	cut      bool
	object   *Object
	objects  []Object
	findings diag.List
}

// lineRange is a document: lines[from:to].
type lineRange struct{ from, to int }

// splitDocuments finds the documents of a stream. A line of three dashes ends a
// document wherever it stands: not even a block scalar can contain one.
func splitDocuments(lines [][]byte) []lineRange {
	var docs []lineRange
	from := 0
	for i, l := range lines {
		if bytes.HasPrefix(l, []byte("---")) && (len(l) == 3 || strings.ContainsRune(" \t\r", rune(l[3]))) {
			docs = append(docs, lineRange{from, i})
			from = i
		}
	}
	return append(docs, lineRange{from, len(lines)})
}

var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

func (r *yamlReader) document(doc lineRange) {
	r.offset, r.cut = doc.from, false
	text := bytes.Join(r.lines[doc.from:doc.to], []byte("\n"))
	if doc.to < len(r.lines) {
		// Without it, a block of text at the end of the document would lose its own.
		text = append(text, '\n')
	}
	if f, ok := textFault(r.file, text, CodeYAML); ok {
		f.Pos.Line += doc.from
		r.findings = append(r.findings, f)
		return
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		line, message := doc.from+1, err.Error()
		if m := yamlErrorLine.FindStringSubmatch(message); m != nil {
			message = m[2]
			if n, err := strconv.Atoi(m[1]); err == nil {
				line = min(doc.from+n, len(r.lines))
			}
		}
		help := "correct the YAML; nothing of this document was checked"
		indent := indentOf(r.lines[line-1])
		if bytes.HasPrefix(r.lines[line-1][indent:], []byte("\t")) {
			message, help = "the line is indented with a tab, which YAML doesn't allow", "indent with spaces; nothing of this document was checked"
		}
		r.findings = append(r.findings, diag.Finding{
			Code: CodeYAML, Message: message,
			Pos:  diag.Position{File: r.file, Line: line, Col: 1 + indent},
			Help: help,
		})
		return
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return
	}
	r.top(root.Content[0])
}

func indentOf(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }

// top reads one object, or the items of a List.
func (r *yamlReader) top(n *yaml.Node) {
	n = resolveAlias(n)
	if n.Kind == yaml.MappingNode && scalarField(n, "apiVersion") == "v1" && scalarField(n, "kind") == "List" {
		if items := mappingField(n, "items"); items != nil && items.Kind == yaml.SequenceNode {
			for _, item := range items.Content {
				r.top(item)
			}
			return
		}
	}
	if r.parts && (n.Kind != yaml.MappingNode || scalarField(n, "kind") == "") {
		r.part(n)
		return
	}
	if n.Kind != yaml.MappingNode {
		r.findings = append(r.findings, diag.Finding{
			Code: CodeType, Message: "the document is not an object", Pos: r.position(n),
			Help: "begin it with apiVersion and kind",
		})
		return
	}
	r.object = &Object{
		GVK:    schema.FromAPIVersionAndKind(scalarField(n, "apiVersion"), scalarField(n, "kind")),
		places: map[string]place{"": {value: r.position(n)}},
	}
	if meta := mappingField(n, "metadata"); meta != nil {
		r.object.Name = scalarField(meta, "name")
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if scalarField(n, name) == "" {
			r.fail(CodeRequired, r.position(n), name, name+" is missing", "add "+name+", as in apiVersion: karpenter.sh/v1 and kind: NodePool")
		}
	}
	if value, ok := r.value(n, nil).(map[string]any); ok && !r.cut && r.object.GVK.Kind != "" {
		r.object.Value = value
		r.objects = append(r.objects, *r.object)
	}
}

// part reads a document that is a part of an object. A list stands at PartList.
func (r *yamlReader) part(n *yaml.Node) {
	r.object = &Object{places: map[string]place{"": {value: r.position(n)}}}
	switch n.Kind {
	case yaml.SequenceNode:
		r.object.Value = map[string]any{PartList: r.value(n, []any{PartList})}
	case yaml.MappingNode:
		r.object.Value, _ = r.value(n, nil).(map[string]any)
	default:
		r.fail(CodeType, r.position(n), "", "the document is neither an object nor a part of one", "begin it with apiVersion and kind, or remove it")
	}
	if !r.cut && r.object.Value != nil {
		r.objects = append(r.objects, *r.object)
	}
}

// value exports a node and notes where everything in it stands.
func (r *yamlReader) value(n *yaml.Node, path []any) any {
	n = resolveAlias(n)
	if r.cut {
		return nil
	}
	if r.nodes++; r.nodes > maxYAMLNodes {
		r.fail(CodeYAML, r.position(n), "", fmt.Sprintf("the file expands to more than %d values", maxYAMLNodes), "write it without nested aliases")
		r.cut = true
		return nil
	}
	if len(path) > maxDepth {
		r.fail(CodeYAML, r.position(n), "", fmt.Sprintf("values nest deeper than %d", maxDepth), "look for an alias to what it stands in")
		r.cut = true
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		return r.mapping(n, path)
	case yaml.SequenceNode:
		out := []any{}
		for i, item := range n.Content {
			p := child(path, i)
			r.object.places[pathKey(p)] = place{value: r.position(item)}
			out = append(out, r.value(item, p))
		}
		return out
	}
	x, err := scalarOf(n)
	if err != nil {
		r.fail(CodeYAML, r.position(n), PathString(path), oneLine(err.Error()), "quote it if it is meant as a string")
	}
	return x
}

func (r *yamlReader) mapping(n *yaml.Node, path []any) any {
	out := map[string]any{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			merged = append(merged, val)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			r.fail(CodeYAML, r.position(key), PathString(path), "a field's name must be a string", "write a plain name")
			continue
		}
		p := child(path, key.Value)
		if first, ok := r.object.places[pathKey(p)]; ok {
			r.fail(CodeYAMLDuplicate, r.position(key), PathString(p), fmt.Sprintf("the field %s is set twice", key.Value), "keep one of them")
			r.findings[len(r.findings)-1].Related = []diag.Related{{Pos: first.key, Message: "set here first"}}
			continue
		}
		at := place{key: r.position(key), value: r.position(val)}
		if k := resolveAlias(val).Kind; k == yaml.MappingNode || k == yaml.SequenceNode {
			at.value = at.key
		}
		r.object.places[pathKey(p)] = at
		out[key.Value] = r.value(val, p)
	}
	for _, m := range merged {
		r.merge(out, m, path, 0)
	}
	return out
}

// merge adds the fields of a merged mapping that aren't set by the mapping itself.
func (r *yamlReader) merge(into map[string]any, n *yaml.Node, path []any, depth int) {
	n = resolveAlias(n)
	if depth > maxDepth && !r.cut {
		r.fail(CodeYAML, r.position(n), PathString(path), fmt.Sprintf("merges nest deeper than %d", maxDepth), "look for an alias to what it stands in")
		r.cut = true
	}
	if n.Kind == yaml.SequenceNode && !r.cut {
		for _, m := range n.Content {
			r.merge(into, m, path, depth+1)
		}
		return
	}
	if n.Kind != yaml.MappingNode || r.cut {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			r.merge(into, val, path, depth+1)
			continue
		}
		if _, ok := into[key.Value]; ok {
			continue
		}
		p := child(path, key.Value)
		r.object.places[pathKey(p)] = place{key: r.position(key), value: r.position(val)}
		into[key.Value] = r.value(val, p)
	}
}

func (r *yamlReader) fail(code string, pos diag.Position, path, message, help string) {
	f := diag.Finding{Code: code, Message: message, Pos: pos, Path: path, Help: help}
	if r.object != nil && r.object.GVK.Kind != "" {
		f.Object = r.object.ID()
	}
	r.findings = append(r.findings, f)
}

// position converts a node's place, whose column counts characters, to one
// that counts bytes.
func (r *yamlReader) position(n *yaml.Node) diag.Position {
	line := r.offset + n.Line
	if line < 1 || line > len(r.lines) {
		return diag.Position{File: r.file}
	}
	col, text := 1, r.lines[line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(text[min(col-1, len(text)):])
		if size == 0 {
			break
		}
		col += size
	}
	return diag.Position{File: r.file, Line: line, Col: col}
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func mappingField(n *yaml.Node, name string) *yaml.Node {
	n = resolveAlias(n)
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return resolveAlias(n.Content[i+1])
		}
	}
	return nil
}

func scalarField(n *yaml.Node, name string) string {
	if f := mappingField(n, name); f != nil && f.Kind == yaml.ScalarNode {
		return f.Value
	}
	return ""
}

// scalarOf decodes a scalar as the Kubernetes tools do, which follow YAML 1.1
// for truth values: an unquoted "on" or "yes" is a boolean there.
func scalarOf(n *yaml.Node) (any, error) {
	const notPlain = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	if n.Tag == "!!str" && n.Style&notPlain == 0 {
		switch n.Value {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			return true, nil
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			return false, nil
		}
	}
	switch n.Tag {
	case "!!str", "!!timestamp", "!!binary":
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int":
		var i int64
		if err := n.Decode(&i); err != nil {
			return nil, fmt.Errorf("%s doesn't fit 64 bits", n.Value)
		}
		return i, nil
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil {
			return nil, err
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%s is not a number that JSON can hold", n.Value)
		}
		return f, nil
	}
	return nil, fmt.Errorf("the tag %s has no meaning here", n.Tag)
}
