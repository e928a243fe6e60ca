package render

import (
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/schemas/admission"
)

// A mistake is told once, by the layer that is asked first: CUE's evaluator, the
// CUE schema, the compiler of options, the API server's rules, in this order. What a
// layer has named is mended in a copy of the object before the next layer is asked,
// as its author will most likely mend it: a misspelt name or choice is replaced by
// the one that was meant, anything else is left out. So the next layer can neither
// repeat the mistake nor stumble over it, and what else there is to say is said,
// in the same words, whatever stands beside it.

// copyTree copies a JSON tree.
func copyTree(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[name] = copyTree(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = copyTree(x)
		}
		return out
	}
	return v
}

// mend is one change of a copy.
type mend struct {
	path []any
	// value takes the place of what stands at path; without put, nothing does.
	value any
	put   bool
}

// apply changes obj in place. What stands in nothing is passed over.
func (m mend) apply(obj map[string]any) {
	if len(m.path) == 0 {
		return
	}
	around, _ := lookup(obj, m.path[:len(m.path)-1])
	switch e := m.path[len(m.path)-1].(type) {
	case string:
		fields, ok := around.(map[string]any)
		switch {
		case !ok:
		case m.put:
			fields[e] = copyTree(m.value)
		default:
			delete(fields, e)
		}
	case int:
		// An element that left would renumber the others.
		if list, ok := around.([]any); ok && e < len(list) {
			list[e] = copyTree(m.value)
		}
	}
}

// mended completes an object whose faults have been found, for the API server to
// judge: with every change made and every required field there. It returns nil for
// an object without faults. The excused paths are those of the faults; true says
// that the copy has none there.
func mended(o Object, s *shape, mends []mend, faulty [][]any) (map[string]any, map[string]bool) {
	if len(faulty) == 0 && len(o.broken) == 0 || o.broken[""] {
		return nil, nil
	}
	out := copyTree(o.Value).(map[string]any)
	excused := map[string]bool{}
	for key := range o.broken {
		excused[key] = false
	}
	for _, p := range faulty {
		excused[pathKey(p)] = false
	}
	for _, m := range mends {
		m.apply(out)
		excused[pathKey(m.path)] = true
	}
	s.complete(out, nil, excused)
	return out, excused
}

// complete puts something in place of required fields that are missing.
func (s *shape) complete(data any, path []any, excused map[string]bool) {
	switch data := data.(type) {
	case map[string]any:
		for _, name := range sortedKeys(data) {
			if f := s.field(name); f != nil {
				f.complete(data[name], child(path, name), excused)
			}
		}
		for _, name := range s.required {
			if _, ok := data[name]; ok {
				continue
			}
			data[name] = s.fields[name].sample()
			excused[pathKey(child(path, name))] = false
			// A rule about an element of a list counts on all of its fields.
			if n := len(path) - 1; n >= 0 {
				if _, element := path[n].(int); element {
					excused[pathKey(path)] = false
				}
			}
		}
	case []any:
		if s.items != nil {
			for i, x := range data {
				s.items.complete(x, child(path, i), excused)
			}
		}
	}
}

// excuses reports whether a violation of a mended object is due to the mending: it
// is about something that was changed, or about something around that and names
// the field. before is the verdict on the object as it was written: where the rules
// were asked, what they said then as well is not due to what was mended since.
func (o Object) excuses(v admission.Violation, before admission.Verdict) bool {
	key := pathKey(v.Path)
	asked := !slices.ContainsFunc(before.Violations, admission.Violation.BlocksRules)
	same := slices.ContainsFunc(before.Violations, func(w admission.Violation) bool {
		return w.Message == v.Message && slices.Equal(w.Path, v.Path)
	})
	for _, excused := range sortedKeys(o.excused) {
		if key == excused || strings.HasPrefix(key, excused+pathSeparator) {
			return true
		}
	}
	for _, excused := range sortedKeys(o.excused) {
		rest, around := strings.CutPrefix(excused, key+pathSeparator)
		if key == "" {
			rest, around = excused, true
		}
		switch {
		case !around:
		case asked && o.excused[excused]:
			if !same {
				return true
			}
		default:
			for name := range strings.SplitSeq(rest, pathSeparator) {
				if !isDigits(name) && mentions(v.Message, name) {
					return true
				}
			}
		}
	}
	return false
}

// mentions reports whether a message has name as a word of its own.
func mentions(message, name string) bool {
	for rest := message; name != ""; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		before, after := rest[:i], rest[i+len(name):]
		if (before == "" || !isWord(before[len(before)-1])) && (after == "" || !isWord(after[0])) {
			return true
		}
		rest = after
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
