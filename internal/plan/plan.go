// Package plan compares what is declared with what is live, and says what
// follows. It is pure: it reads values, returns values, and knows neither a
// clock nor a cluster.
//
// Three things are called drift elsewhere; this package holds the first and is
// kept clear of the others. Config drift is a live object that differs from the
// last applied commit: Drift finds it, a Report shows it. A pending change is a
// commit that isn't applied yet; the source's conditions say so. Fleet drift,
// nodes that no longer match their pool, class or cloud, is counted on the pools
// and never part of a report, or a rollout would make a commit for every node.
//
// A Plan is what applying a commit would do: Changes says it of objects, and a Fleet of
// nodes, which is worked out by reconcile/forecast. It is written as text, JSON and
// Markdown.
//
// Values that may be secret are hidden before they are kept in a Difference, so
// that whatever is made of one may be shown to anybody who may see the report.
package plan

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// ID names an object.
type ID struct {
	Group     string
	Kind      string
	Namespace string
	Name      string
}

// String is Kind/name, or Kind/namespace/name, as people say it.
func (id ID) String() string {
	if id.Namespace == "" {
		return id.Kind + "/" + id.Name
	}
	return id.Kind + "/" + id.Namespace + "/" + id.Name
}

// compare orders by kind, namespace, name and group.
func (id ID) compare(o ID) int {
	if c := strings.Compare(id.Kind, o.Kind); c != 0 {
		return c
	}
	if c := strings.Compare(id.Namespace, o.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(id.Name, o.Name); c != 0 {
		return c
	}
	return strings.Compare(id.Group, o.Group)
}

// Observed is one declared object as the three parties see it.
type Observed struct {
	ID ID
	// File is where Git declares the object, without a line, "" if unknown.
	File string
	// Git is the object as its author wrote it.
	Git map[string]any
	// Want is what the API server would hold if Git's were applied now, as a dry
	// run answers. It is nil when the object is missing.
	Want map[string]any
	// Live is what the API server holds, nil when the object is missing.
	Live map[string]any
	// Judge says which fields are others'; nil means none is.
	Judge Judge
}

// Difference is one field of which the live value isn't Git's.
type Difference struct {
	Object ID
	// File is where Git declares the object.
	File string
	// Field is the path inside the object, as in spec.limits.cpu; it is empty
	// when the object as a whole is missing.
	Field string
	// Git and Live are the values, either absent where there is none. Both are
	// when the object is missing.
	Git  Value
	Live Value
	// Manager wrote the live value, Operation (Update or Apply) is how and When
	// is when it last did. They are empty for what was removed: a removal leaves
	// no trace of who did it.
	Manager   string
	Operation string
	When      time.Time
}

// Value is a JSON value that may be shown.
//
// The zero Value is absent: the field isn't there.
type Value struct {
	// json has sorted keys; it is "" for an absent value.
	json string
}

// IsAbsent reports whether there is no value.
func (v Value) IsAbsent() bool { return v.json == "" }

// String is the value as JSON, with sorted keys, or "".
func (v Value) String() string { return v.json }

// shown makes a Value of JSON data at a path. Secrets are replaced by their size.
func shown(path []any, v any) Value {
	data, err := json.Marshal(hide(path, v))
	if err != nil {
		// Only JSON values reach this point.
		panic(fmt.Sprintf("plan: %s is no JSON value: %v", PathString(path), err))
	}
	return Value{json: string(data)}
}

// hide returns v with what may be secret replaced. User data is a script that
// runs on every node; people put tokens into it.
func hide(path []any, v any) any {
	switch v := v.(type) {
	case string:
		if last, ok := lastName(path); ok && (last == "userData" || last == lastApplied) {
			return fmt.Sprintf("*** (%d bytes)", size(v))
		}
		if last, ok := lastName(path); ok && Confidential(last) && !plainValue().MatchString(v) {
			return "***"
		}
		return Redact(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = hide(append(path[:len(path):len(path)], k), e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = hide(append(path[:len(path):len(path)], i), e)
		}
		return out
	}
	return v
}

// Secret reports whether a value at a path isn't to be shown as it is, or written to
// where others read it.
func Secret(path []any, v any) bool { return !reflect.DeepEqual(hide(path, v), v) }

func lastName(path []any) (string, bool) {
	if len(path) == 0 {
		return "", false
	}
	name, ok := path[len(path)-1].(string)
	return name, ok
}

// PathString writes a path of names and indices the way findings do, as in
// spec.template.spec.taints[0].key; names that aren't plain are quoted, as in
// metadata.labels["example.com/team"].
func PathString(path []any) string {
	var b strings.Builder
	for _, e := range path {
		switch e := e.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(e) + "]")
		case string:
			switch {
			case !plainKey(e):
				b.WriteString("[" + strconv.Quote(e) + "]")
			case b.Len() > 0:
				b.WriteString("." + e)
			default:
				b.WriteString(e)
			}
		}
	}
	return b.String()
}

func plainKey(s string) bool {
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != ""
}
