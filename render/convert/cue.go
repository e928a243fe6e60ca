package convert

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
)

// Objects is how many objects there are.
func (r *Result) Objects() int {
	n := 0
	for _, all := range r.objects {
		n += len(all)
	}
	return n
}

// IsPackageName reports whether a package can have the name.
func IsPackageName(name string) bool {
	f, err := parser.ParseFile("", "package "+name+"\n", parser.PackageClauseOnly)
	return err == nil && f.PackageName() == name && name != "_"
}

// CUE writes the result as a file of a cluster's package. Parts of objects come as they
// are, to be pasted. What all pools or all classes have in common becomes a definition.
func (r *Result) CUE() ([]byte, error) {
	if r.Objects()+len(r.parts)+len(r.settings) == 0 {
		return nil, nil
	}
	var b strings.Builder
	if r.Objects() > 0 {
		fmt.Fprintf(&b, "package %s\n\n", cmp.Or(r.options.Package, "cluster"))
		r.imports(&b)
	}
	for _, flag := range r.settings {
		fmt.Fprintf(&b, "// Give the controller the flag %s\n", flag)
	}
	if len(r.settings) > 0 {
		b.WriteString("\n")
	}
	for _, field := range fields() {
		r.group(&b, field)
	}
	for i, part := range r.parts {
		if i > 0 {
			b.WriteString("\n// The next part.\n")
		}
		w := writer{b: &b}
		w.fields(part, 0)
	}
	out, err := format.Source([]byte(b.String()))
	if err != nil {
		return nil, fmt.Errorf("format CUE: %w", err)
	}
	return out, nil
}

// definition is a schema that objects of a field are of.
type definition struct{ alias, pkg, name, shared string }

func definitions() map[string]definition {
	return map[string]definition{
		"nodeClasses":     {"aws", "coppice.dev/schemas/aws/v1", "EC2NodeClass", "Class"},
		"nodePools":       {"karpenter", "coppice.dev/schemas/karpenter/v1", "NodePool", "Pool"},
		"nodeOverlays":    {"overlay", "coppice.dev/schemas/karpenter/v1alpha1", "NodeOverlay", "Overlay"},
		"capacityBuffers": {"autoscaling", "coppice.dev/schemas/autoscaling/v1beta1", "CapacityBuffer", "Buffer"},
	}
}

func (r *Result) imports(b *strings.Builder) {
	b.WriteString("import (\n")
	for _, field := range fields() {
		if len(r.objects[field]) > 0 {
			d := definitions()[field]
			fmt.Fprintf(b, "%s %q\n", d.alias, d.pkg)
		}
	}
	b.WriteString(")\n\n")
}

// group writes the objects of one field.
func (r *Result) group(b *strings.Builder, field string) {
	all := r.objects[field]
	if len(all) == 0 {
		return
	}
	d := definitions()[field]
	names := slices.Sorted(maps.Keys(all))
	shared := map[string]any{}
	if len(names) > 1 {
		shared = copyOf(all[names[0]]).(map[string]any)
		for _, name := range names[1:] {
			shared = common(shared, all[name])
		}
	}
	w := writer{b: b}
	base := d.alias + ".#" + d.name
	// A definition for one or two values would only be one more place to look at.
	if leaves(shared) > 2 {
		fmt.Fprintf(b, "// #%s is what all %s have in common.\n#%s: %s & {\n", d.shared, field, d.shared, base)
		w.fields(shared, 1)
		b.WriteString("}\n\n")
		base = "#" + d.shared
	} else {
		shared = map[string]any{}
	}
	fmt.Fprintf(b, "%s: [string]: %s\n\n", field, base)
	for _, name := range names {
		rest := without(all[name], shared)
		fmt.Fprintf(b, "%s: %s: ", field, label(name))
		w.value(rest, 0, false)
		b.WriteString("\n\n")
	}
}

// common returns the part that two structs have in common. Lists are taken whole.
func common(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for name, x := range a {
		y, ok := b[name]
		if !ok {
			continue
		}
		xs, isX := x.(map[string]any)
		ys, isY := y.(map[string]any)
		switch {
		case isX && isY:
			// An empty struct is only common if both are.
			if inner := common(xs, ys); len(inner) > 0 || len(xs)+len(ys) == 0 {
				out[name] = inner
			}
		case reflect.DeepEqual(x, y):
			out[name] = x
		}
	}
	return out
}

// without returns what a struct has beyond another one that it contains.
func without(v, shared map[string]any) map[string]any {
	out := map[string]any{}
	for name, x := range v {
		y, ok := shared[name]
		if !ok {
			out[name] = x
			continue
		}
		if xs, isStruct := x.(map[string]any); isStruct {
			if rest := without(xs, y.(map[string]any)); len(rest) > 0 {
				out[name] = rest
			}
		}
	}
	return out
}

func leaves(v any) int {
	switch v := v.(type) {
	case map[string]any:
		n := 0
		for _, x := range v {
			n += leaves(x)
		}
		return n
	case []any:
		n := 0
		for _, x := range v {
			n += leaves(x)
		}
		return max(n, 1)
	}
	return 1
}

// writer writes values as CUE. Indentation is format.Source's, but inside of strings.
type writer struct{ b *strings.Builder }

// order puts the fields first that say what something is.
func order() []string {
	return []string{"metadata", "labels", "annotations", "weight", "replicas", "key", "operator", "values", "minValues", "group", "kind", "name", "deviceName", "alias", "id", "nodes", "schedule", "duration"}
}

func keys(v map[string]any) []string {
	rank := func(name string) int {
		if i := slices.Index(order(), name); i >= 0 {
			return i
		}
		return len(order())
	}
	return slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

// fields writes the fields of a struct, each on a line.
func (w writer) fields(v map[string]any, depth int) {
	for _, name := range keys(v) {
		w.b.WriteString(label(name) + ": ")
		w.value(v[name], depth, false)
		w.b.WriteString("\n")
	}
}

// value writes a value. Inside of a list, structs keep to one line if they can.
func (w writer) value(v any, depth int, inline bool) {
	switch v := v.(type) {
	case map[string]any:
		names := keys(v)
		switch {
		case len(v) == 0:
			w.b.WriteString("{}")
		case len(v) == 1 && !inline:
			// As in spec: template: spec: {...}.
			w.b.WriteString(label(names[0]) + ": ")
			w.value(v[names[0]], depth, false)
		case inline && flat(v):
			w.b.WriteString("{")
			for i, name := range names {
				if i > 0 {
					w.b.WriteString(", ")
				}
				w.b.WriteString(label(name) + ": ")
				w.value(v[name], depth+1, true)
			}
			w.b.WriteString("}")
		default:
			w.b.WriteString("{\n")
			w.fields(v, depth+1)
			w.b.WriteString("}")
		}
	case []any:
		w.list(v, depth)
	case string:
		w.b.WriteString(literal.String.WithOptionalTabIndent(depth).Quote(v))
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".eE") {
			text += ".0"
		}
		w.b.WriteString(text)
	case nil:
		w.b.WriteString("null")
	default:
		fmt.Fprint(w.b, v)
	}
}

func (w writer) list(v []any, depth int) {
	if !slices.ContainsFunc(v, func(x any) bool { return !scalar(x) }) {
		w.b.WriteString("[")
		for i, x := range v {
			if i > 0 {
				w.b.WriteString(", ")
			}
			w.value(x, depth+1, true)
		}
		w.b.WriteString("]")
		return
	}
	if len(v) == 1 {
		w.b.WriteString("[")
		w.value(v[0], depth, true)
		w.b.WriteString("]")
		return
	}
	w.b.WriteString("[\n")
	for _, x := range v {
		w.value(x, depth+1, true)
		w.b.WriteString(",\n")
	}
	w.b.WriteString("]")
}

// flat reports whether a struct can stand on one line: it holds scalars, short lists of
// them, and structs of the same kind, some ten values in all.
func flat(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			if !flat(x) {
				return false
			}
		}
		return leaves(v) <= 12
	case []any:
		return !slices.ContainsFunc(v, func(x any) bool { return !scalar(x) })
	case string:
		return !strings.Contains(v, "\n")
	}
	return true
}

func scalar(v any) bool {
	switch v := v.(type) {
	case map[string]any, []any:
		return false
	case string:
		return !strings.Contains(v, "\n")
	}
	return true
}

// label is a field's name, in quotes if it needs them.
func label(name string) string {
	if ast.IsValidIdent(name) && !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "#") && !slices.Contains([]string{"true", "false", "null", "if", "for", "in", "let", "package", "import", "func"}, name) {
		return name
	}
	return literal.Label.Quote(name)
}
