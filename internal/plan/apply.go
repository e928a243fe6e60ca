package plan

import (
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/coppice-dev/coppice/schemas/admission"
)

// joined lays what Git holds over a live object, as server-side apply does: maps are
// joined unless the schema says that they are one value, lists are replaced.
func joined(judge *admission.Judge, live, git map[string]any) map[string]any {
	return join(judge, live, nil, live, git)
}

func join(judge *admission.Judge, object map[string]any, path []any, live, git map[string]any) map[string]any {
	out := maps.Clone(live)
	if out == nil {
		out = map[string]any{}
	}
	for k, g := range git {
		at := append(path[:len(path):len(path)], k)
		gm, isMap := g.(map[string]any)
		lm, wasMap := out[k].(map[string]any)
		switch {
		case g == nil:
		case isMap && wasMap && !judge.Atomic(object, at):
			out[k] = join(judge, object, at, lm, gm)
		default:
			out[k] = g
		}
	}
	return out
}

// After is an object as the API server will hold it once the commit is applied: the live
// one with what Git holds, and without what it held and holds no longer. It is nil for
// one that is deleted or that nobody declares and that isn't there.
func After(t Target, judge *admission.Judge, manager string) map[string]any {
	switch {
	case t.Head == nil && t.Kept == "":
		return nil
	case t.Head == nil, t.Untouched:
		return judge.Stored(t.Live)
	case t.Live == nil:
		return judge.Stored(t.Head)
	}
	return judge.Stored(applied(judge, t, manager))
}

func applied(judge *admission.Judge, t Target, manager string) map[string]any {
	mine, _, _ := yielding(judge, t)
	out := joined(judge, t.Live, mine)
	paths := dropped(t.Live, mine, manager)
	if t.Base != nil {
		free, _ := Released(Observed{ID: t.ID, Live: t.Live}, Orphaned(t.Base, t.Head, t.Live, manager), manager, t.Judge)
		paths = append(paths, free...)
	}
	for _, path := range paths {
		without(out, mine, path)
	}
	return out
}

// yielding returns what is applied of what the commit declares: all but the fields that
// rules leave to others. left are those, failed the differences by which a rule forbids
// to apply it at all.
func yielding(judge *admission.Judge, t Target) (mine map[string]any, left, failed []Difference) {
	if t.Judge == nil || t.Live == nil || t.Head == nil {
		return t.Head, nil, nil
	}
	fields, failed := Contested(Observed{
		ID: t.ID, File: fileOf(t.File), Git: t.Head, Want: judge.Stored(joined(judge, t.Live, t.Head)), Live: t.Live,
	}, func(at []any, manager string) Verdict {
		verdict := t.Judge(at, manager)
		if verdict == Yield {
			left = append(left, Difference{Object: t.ID, File: fileOf(t.File), Field: PathString(at), Manager: manager})
		}
		return verdict
	})
	mine = maps.Clone(t.Head)
	for _, field := range fields {
		// The maps that are empty without it go too: to apply one is to claim what is in it.
		without(mine, nil, field)
	}
	return mine, left, failed
}

// Ruled returns what the target's rules say of the commit: the fields that it sets and
// that are left to others, and those by which it is refused, because others have written
// what it would set or take away.
func Ruled(t Target, judge *admission.Judge, manager string) (left, forbidden []Difference) {
	if t.Judge == nil || t.Live == nil || t.Head == nil {
		return nil, nil
	}
	_, left, forbidden = yielding(judge, t)
	if t.Base != nil {
		_, more := Released(Observed{ID: t.ID, File: fileOf(t.File), Live: t.Live}, Orphaned(t.Base, t.Head, t.Live, manager), manager, t.Judge)
		forbidden = append(forbidden, more...)
	}
	return left, forbidden
}

// dropped returns the paths of fields that the manager alone owns by an apply and that
// Git no longer holds: the next apply takes them away.
func dropped(live, git map[string]any, manager string) [][]string {
	owners := parseOwners(live)
	var out [][]string
	for _, o := range owners {
		if o.manager == manager && o.operation == "Apply" {
			others := slices.DeleteFunc(slices.Clone(owners), func(x owner) bool { return x.manager == manager && x.operation == "Apply" })
			gone(nil, o.fields, git, others, &out)
		}
	}
	return out
}

func gone(path []string, fields, git map[string]any, others []owner, out *[][]string) {
	for name, next := range fields {
		key, ok := strings.CutPrefix(name, "f:")
		if !ok {
			continue
		}
		at := append(path[:len(path):len(path)], key)
		below, _ := next.(map[string]any)
		below = maps.Clone(below)
		delete(below, ".")
		held, still := git[key]
		hm, isMap := held.(map[string]any)
		switch {
		case len(below) > 0 && (isMap || !still):
			gone(at, below, hm, others, out)
		case still:
		case !slices.ContainsFunc(others, func(o owner) bool { return owns(o.fields, anyPath(at)) }):
			*out = append(*out, at)
		}
	}
}

func anyPath(path []string) []any {
	out := make([]any, len(path))
	for i, p := range path {
		out[i] = p
	}
	return out
}

// without takes the field at a path away, and the maps around it that are left empty
// and that Git doesn't hold. It changes obj, whose maps along the path are copied.
func without(obj, git map[string]any, path []string) {
	if len(path) == 1 {
		delete(obj, path[0])
		return
	}
	next, ok := obj[path[0]].(map[string]any)
	if !ok {
		return
	}
	next = maps.Clone(next)
	obj[path[0]] = next
	held, _ := git[path[0]].(map[string]any)
	without(next, held, path[1:])
	if len(next) == 0 && held == nil {
		delete(obj, path[0])
	}
}

// unified shows two objects as a unified diff of what Git may hold of them. Either is
// nil for an object that isn't there.
func unified(before, after map[string]any) string {
	b, a := view(before), view(after)
	tell(a, secrets(nil, before), secrets(nil, after))
	text := yamlOf(b)
	out, err := udiff.ToUnified("before", "after", text, udiff.Lines(text, yamlOf(a)), 3)
	if err != nil {
		return "" // edits that were made of the same text fit it
	}
	// The names of the two sides say nothing that the object's own doesn't.
	_, out, _ = strings.Cut(out, "\n")
	_, out, _ = strings.Cut(out, "\n")
	return out
}

func yamlOf(obj map[string]any) string {
	if obj == nil {
		return ""
	}
	data, err := yaml.Marshal(obj)
	if err != nil {
		panic("plan: an object is no YAML: " + err.Error())
	}
	return string(data)
}

// view is the part of an object that Git may hold, with secrets hidden.
func view(obj map[string]any) map[string]any {
	if obj == nil {
		return nil
	}
	out := map[string]any{}
	for k, v := range obj {
		at := []any{k}
		if k == "apiVersion" || k == "kind" {
			out[k] = v
			continue
		}
		if ignored(at) {
			continue
		}
		m, isMap := v.(map[string]any)
		if k != "metadata" || !isMap {
			out[k] = hide(at, v)
			continue
		}
		meta := map[string]any{}
		for mk, mv := range m {
			at := []any{k, mk}
			if mk == "name" || mk == "namespace" {
				meta[mk] = mv
				continue
			}
			if ignored(at) {
				continue
			}
			if entries, ok := mv.(map[string]any); ok {
				kept := map[string]any{}
				for name, value := range entries {
					at := []any{k, mk, name}
					if !ignored(at) && !noise(at) {
						kept[name] = hide(at, value)
					}
				}
				if len(kept) > 0 {
					meta[mk] = kept
				}
			}
		}
		out[k] = meta
	}
	return out
}

// secret is a text that isn't shown, where it is and what is shown for it.
type secret struct {
	path        []any
	text, shown string
}

// secrets returns the hidden texts of an object by path.
func secrets(path []any, v any) map[string]secret {
	out := map[string]secret{}
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			maps.Copy(out, secrets(append(path[:len(path):len(path)], k), e))
		}
	case string:
		if shown, _ := hide(path, v).(string); shown != v {
			out[PathString(path)] = secret{path, v, shown}
		}
	}
	return out
}

// tell says of a hidden text that changes to one that is shown alike that it does, or the
// diff would show nothing.
func tell(after map[string]any, was, is map[string]secret) {
	for name, old := range was {
		now, ok := is[name]
		if !ok || old.text == now.text || old.shown != now.shown {
			continue
		}
		last := len(now.path) - 1
		at, _ := ValueAt(after, now.path[:last])
		into, _ := at.(map[string]any)
		key, _ := now.path[last].(string)
		if text, ok := into[key].(string); ok {
			if whole, sized := strings.CutSuffix(text, " bytes)"); sized {
				into[key] = whole + " bytes, changed)"
			} else {
				into[key] = text + " (changed)"
			}
		}
	}
}
