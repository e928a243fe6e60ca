package difftest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// parse reads an object as a server would, integers as integers.
func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(j); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return u.Object
}

func clone(obj map[string]any) map[string]any { return runtime.DeepCopyJSON(obj) }

// value reads a YAML value of any kind.
func value(t testing.TB, text string) any {
	t.Helper()
	return parse(t, "{apiVersion: v1, kind: X, value: "+text+"}")["value"]
}

// get follows a path of names and indices, separated by spaces.
func get(obj any, at string) any {
	for name := range strings.FieldsSeq(at) {
		switch v := obj.(type) {
		case map[string]any:
			obj = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			obj = v[i]
		default:
			return nil
		}
	}
	return obj
}

func has(obj any, at string) bool { return get(obj, at) != nil }

// contains reports whether text is the content of v or of anything in it.
func contains(v any, text string) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if contains(e, text) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if contains(e, text) {
				return true
			}
		}
	case string:
		return v == text
	}
	return false
}

// edit changes obj: "PATH = YAML" sets a field, making what is on the way to it,
// "PATH += YAML" appends to a list, and "- PATH" removes a field.
func edit(t testing.TB, obj map[string]any, change string) {
	t.Helper()
	if at, ok := strings.CutPrefix(change, "- "); ok {
		names := strings.Fields(at)
		parent, _ := get(obj, strings.Join(names[:len(names)-1], " ")).(map[string]any)
		delete(parent, names[len(names)-1])
		return
	}
	if at, text, ok := strings.Cut(change, " += "); ok {
		list, _ := get(obj, at).([]any)
		set(obj, strings.Fields(at), append(list, value(t, text)))
		return
	}
	at, text, ok := strings.Cut(change, " = ")
	if !ok {
		t.Fatalf("%q is no change", change)
	}
	set(obj, strings.Fields(at), value(t, text))
}

func set(v any, at []string, to any) any {
	if len(at) == 0 {
		return to
	}
	if i, err := strconv.Atoi(at[0]); err == nil {
		if list, ok := v.([]any); ok && i < len(list) {
			list[i] = set(list[i], at[1:], to)
			return list
		}
	}
	m, ok := v.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	m[at[0]] = set(m[at[0]], at[1:], to)
	return m
}

// show writes an object on one line.
func show(obj map[string]any) string {
	b, err := json.Marshal(obj)
	if err != nil {
		return fmt.Sprint(obj)
	}
	return string(b)
}
