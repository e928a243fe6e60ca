package render

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/literal"
)

// by returns the shape with the place of the fault's rule in place of its own.
func (s *shape) by(f fault) *shape {
	if !f.pos.IsValid() {
		return s
	}
	moved := *s
	moved.pos = f.pos
	return &moved
}

// faultOf picks the error that explains the most. A miss of a disjunction comes as
// one error for each branch, those of other types among them, and with them the
// words that the schema has for the case.
func faultOf(data any, errs []errors.Error) fault {
	rank := func(e errors.Error) int {
		switch text := messageOf(e); {
		case strings.Contains(text, "empty disjunction"):
			return 0
		case strings.Contains(text, "mismatched types"), strings.Contains(text, "conflicting values"):
			return 1
		case strings.Contains(text, "(out of bound "), strings.Contains(text, "(does not satisfy "):
			return 2
		}
		return 3
	}
	best := errs[0]
	for _, e := range errs[1:] {
		if rank(e) > rank(best) {
			best = e
		}
	}
	shown := theValue
	switch data := data.(type) {
	case string:
		shown = fmt.Sprintf("%q", data)
	case map[string]any, []any, nil:
	default:
		shown = fmt.Sprint(data)
	}
	text := oneLine(messageOf(best))
	f := fault{pos: inSchemas(best.Position())}
	switch rank(best) {
	case 0, 1:
		text = shown + " is not allowed here"
		if given, ok := data.(string); ok {
			f.given, f.choices = given, choicesOf(given, errs)
		}
	case 2:
		text = boundMessage(shown, text)
	default:
		// The schema's own words are for the reader as they are; a scalar that they
		// don't show helps to find it.
		if given := fmt.Sprint(data); shown != theValue && !strings.Contains(text, given) {
			text = shown + ": " + text
		}
	}
	f.message = text
	return f
}

// theValue stands for a value that is too large to show.
const theValue = "the value"

// boundMessage words CUE's complaint about a bound or a validator.
func boundMessage(shown, text string) string {
	_, bound, ok := strings.Cut(text, "(out of bound ")
	if !ok {
		_, bound, _ = strings.Cut(text, "(does not satisfy ")
		// What the validator itself says, such as len(list) > MaxItems(3), follows.
		if i := strings.LastIndex(bound, "):"); i >= 0 {
			bound = bound[:i]
		} else {
			bound = strings.TrimSuffix(bound, ")")
		}
		if bound == "list.MinItems(1)" {
			return "the list is empty"
		}
		return fmt.Sprintf("%s doesn't satisfy %s", shown, bound)
	}
	bound = strings.TrimSuffix(bound, ")")
	quoted, ok := strings.CutPrefix(bound, "=~")
	if !ok {
		return fmt.Sprintf("%s is out of bounds, it must be %s", shown, bound)
	}
	pattern, err := literal.Unquote(quoted)
	if err != nil {
		pattern = quoted
	}
	if meaning := patternMeaning(pattern); meaning != "" {
		return fmt.Sprintf("%s is not %s", shown, meaning)
	}
	return fmt.Sprintf("%s doesn't match the pattern %s", shown, pattern)
}

// choicesOf finds the strings that a disjunction offers, from its complaints that
// each of them conflicts with the given one.
func choicesOf(given string, errs []errors.Error) []string {
	var choices []string
	for _, e := range errs {
		_, args := e.Msg()
		if !strings.Contains(messageOf(e), "conflicting values") || len(args) != 2 {
			continue
		}
		for _, a := range args {
			text, err := literal.Unquote(fmt.Sprint(a))
			if err == nil && text != given && !slices.Contains(choices, text) {
				choices = append(choices, text)
			}
		}
	}
	return choices
}

// help describes what the place takes.
func (s *shape) help() string {
	switch {
	case len(s.enum) > 0:
		return "use one of " + strings.Join(s.enum, ", ")
	case s.doc != "":
		return s.doc
	}
	return "write " + kindName(s.kind)
}

// example shows how a missing field could be written.
func (s *shape) example() string {
	switch {
	case len(s.enum) > 0:
		return fmt.Sprintf(": %q, or another of %s", s.enum[0], strings.Join(s.enum, ", "))
	case s.kind == cue.StructKind && len(s.required) > 0:
		return " with " + strings.Join(s.required, ", ")
	}
	return ", " + kindName(s.kind)
}

// where names a struct for people: the object itself or the field that holds it.
func where(o Object, path []any) string {
	if len(path) == 0 {
		if strings.ContainsRune("AEIOU", rune((o.GVK.Kind + " ")[0])) {
			return "an " + o.GVK.Kind
		}
		return "a " + o.GVK.Kind
	}
	return PathString(path)
}

// last names the field that a path ends in, or the list that its element is in.
func last(path []any) string {
	for i := len(path) - 1; i >= 0; i-- {
		if name, ok := path[i].(string); ok {
			if i < len(path)-1 {
				return "an element of " + name
			}
			return name
		}
	}
	return "the object"
}

func kindOf(data any) cue.Kind {
	switch data.(type) {
	case nil:
		return cue.NullKind
	case bool:
		return cue.BoolKind
	case string:
		return cue.StringKind
	case int64:
		return cue.IntKind
	case float64:
		return cue.FloatKind
	case []any:
		return cue.ListKind
	case map[string]any:
		return cue.StructKind
	}
	return cue.BottomKind
}

// kindName names what a kind of value is called in CUE and in YAML alike.
func kindName(k cue.Kind) string {
	var names []string
	for _, n := range []struct {
		kind cue.Kind
		name string
	}{
		{cue.StructKind, "an object"}, {cue.ListKind, "a list"}, {cue.StringKind, "a string"},
		{cue.BoolKind, "true or false"}, {cue.NullKind, "null"},
	} {
		if k&n.kind != 0 {
			names = append(names, n.name)
		}
	}
	switch {
	case k&cue.NumberKind == cue.NumberKind, k&cue.NumberKind == cue.FloatKind:
		names = append(names, "a number")
	case k&cue.IntKind != 0:
		names = append(names, "a whole number")
	}
	return strings.Join(names, " or ")
}
