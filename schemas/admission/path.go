package admission

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// violations turns the machinery's errors about obj into ours, sorted by path. An
// error about the same place with the same words comes once.
func violations(errs field.ErrorList, obj map[string]any) []Violation {
	var out []Violation
	seen := map[string]bool{}
	for _, e := range errs {
		at := e.Field
		if inner, ok := alternative(e.Detail); ok {
			at = inner
		}
		v := Violation{Path: resolve(at, obj), Kind: string(e.Type), Message: message(e)}
		key := fmt.Sprint(at, "\x00", v.Message)
		if !seen[key] {
			seen[key] = true
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b Violation) int {
		return cmp.Or(
			slices.CompareFunc(a.Path, b.Path, comparePath),
			strings.Compare(a.Kind, b.Kind),
			strings.Compare(a.Message, b.Message),
		)
	})
	return slices.CompactFunc(withoutAlternatives(out), func(a, b Violation) bool {
		// A value of the wrong type comes once for each type that it could have.
		wrong := string(field.ErrorTypeTypeInvalid)
		return a.Kind == wrong && b.Kind == wrong && slices.Equal(a.Path, b.Path)
	})
}

// Where a value may be a number or a string, the validator tries both and reports
// each failure, without a path, and that both failed:
//
//	Checked value must be of type integer (default format) in spec.limits.cpu
//	"spec.limits.cpu" must validate at least one schema (anyOf)
const (
	checkedValue = "Checked value must be of type "
	noneMatches  = " must validate at least one schema (anyOf)"
)

// alternative returns the path that such a report has in its text.
func alternative(detail string) (path string, ok bool) {
	if quoted, ok := strings.CutSuffix(detail, noneMatches); ok {
		return strings.Trim(quoted, `"`), true
	}
	if i := strings.LastIndex(detail, " in "); i >= 0 && strings.HasPrefix(detail, checkedValue) {
		return detail[i+len(" in "):], true
	}
	return "", false
}

// withoutAlternatives drops such reports about places that have another report,
// which says the same for people.
func withoutAlternatives(all []Violation) []Violation {
	tried := func(v Violation) bool {
		return strings.HasSuffix(v.Message, noneMatches) || strings.HasPrefix(v.Message, checkedValue)
	}
	return slices.DeleteFunc(slices.Clone(all), func(v Violation) bool {
		return tried(v) && slices.ContainsFunc(all, func(o Violation) bool {
			return !tried(o) && slices.Equal(o.Path, v.Path)
		})
	})
}

// comparePath orders path elements, indices by number and before names.
func comparePath(a, b any) int {
	i, isIndexA := a.(int)
	j, isIndexB := b.(int)
	if isIndexA && isIndexB {
		return cmp.Compare(i, j)
	}
	if isIndexA != isIndexB {
		if isIndexA {
			return -1
		}
		return 1
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// message says what an error says, without the path and without values that the
// reader sees at the path.
func message(e *field.Error) string {
	// The OpenAPI validator writes "PATH in body WHAT".
	detail := e.Detail
	if _, after, ok := strings.Cut(detail, " in body "); ok {
		detail = after
	}
	// A rule that couldn't be evaluated, as when a string is no number, comes as
	// "WHY evaluating rule: MESSAGE".
	if _, after, ok := strings.Cut(detail, " evaluating rule: "); ok {
		detail = after
	}
	switch e.Type {
	case field.ErrorTypeRequired:
		if detail == "" {
			return "is required"
		}
	case field.ErrorTypeNotSupported:
		return fmt.Sprintf("%s is not supported: %s", show(e.BadValue), detail)
	case field.ErrorTypeDuplicate:
		return fmt.Sprintf("duplicate value %s", show(e.BadValue))
	case field.ErrorTypeInvalid:
		if s, ok := e.BadValue.(string); ok && !isTypeName(s) && !strings.Contains(detail, strconv.Quote(s)) {
			return fmt.Sprintf("%s: %s", show(s), detail)
		}
	}
	if detail == "" {
		return e.ErrorBody()
	}
	return detail
}

// isTypeName reports whether s says nothing about a value: the server gives the
// type in place of the value that breaks a rule.
func isTypeName(s string) bool {
	switch s {
	case "", "object", "array", "string", "integer", "number", "boolean":
		return true
	}
	return false
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%q", fmt.Sprint(v))
	}
	return string(b)
}

// resolve turns a field path in the machinery's notation into its elements. The
// notation is ambiguous when a map's key has dots, so obj decides: of a map's keys
// that the rest of the path starts with, the longest is meant.
func resolve(path string, obj map[string]any) []any {
	var out []any
	var at any = obj
	path = strings.TrimPrefix(path, ".")
	if path == "<nil>" {
		path = ""
	}
	for path != "" {
		if strings.HasPrefix(path, "[") {
			inner, rest, ok := strings.Cut(path[1:], "]")
			if !ok {
				return append(out, path)
			}
			if list, isList := at.([]any); isList {
				if i, err := strconv.Atoi(inner); err == nil {
					out = append(out, i)
					at = nil
					if i >= 0 && i < len(list) {
						at = list[i]
					}
					path = strings.TrimPrefix(rest, ".")
					continue
				}
				// The machinery marks an item of a set or map-like list by its content.
				if i := indexOf(list, inner); i >= 0 {
					out, at, path = append(out, i), list[i], strings.TrimPrefix(rest, ".")
					continue
				}
			}
			m, _ := at.(map[string]any)
			out, at, path = append(out, inner), m[inner], strings.TrimPrefix(rest, ".")
			continue
		}
		m, _ := at.(map[string]any)
		name, rest := nextName(path, m)
		out, at, path = append(out, name), m[name], strings.TrimPrefix(rest, ".")
	}
	return out
}

// nextName splits the first name off a path.
func nextName(path string, m map[string]any) (name, rest string) {
	for key := range m {
		after, ok := strings.CutPrefix(path, key)
		if ok && len(key) > len(name) && (after == "" || after[0] == '.' || after[0] == '[') {
			name, rest = key, after
		}
	}
	if name != "" {
		return name, rest
	}
	end := strings.IndexAny(path, ".[")
	if m != nil && !strings.Contains(path, "[") && strings.Contains(path, "/") {
		// A missing key of a map of labels; no field has a slash in its name.
		end = -1
	}
	if end < 0 {
		return path, ""
	}
	return path[:end], path[end:]
}

func indexOf(list []any, text string) int {
	for i, v := range list {
		if s, ok := v.(string); ok && (s == text || strconv.Quote(s) == text) {
			return i
		}
	}
	return -1
}

// normal copies a tree and makes its numbers int64 or float64, as the server's
// decoder does. Where a decoder made floats of all numbers, whole ones become
// integers again. It returns what isn't JSON as it is.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return nil
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = normal(e)
		}
		return out
	case []any:
		if v == nil {
			return nil
		}
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = normal(e)
		}
		return out
	case nil, string, bool, int64:
		return v
	case float64:
		return whole(v)
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil {
			return whole(f)
		}
		return v.String()
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32:
		return r.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if u := r.Uint(); u <= math.MaxInt64 {
			return int64(u)
		}
		return float64(r.Uint())
	case reflect.Float32:
		return whole(r.Float())
	}
	return v
}

// whole returns f as an integer if it is one that a float holds exactly.
func whole(f float64) any {
	const exact = 1 << 53
	if f == math.Trunc(f) && math.Abs(f) <= exact {
		return int64(f)
	}
	return f
}
