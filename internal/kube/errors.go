package kube

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// InvalidError says that the API server refuses an object and will go on to
// until somebody changes it.
type InvalidError struct {
	// Object is Kind/name.
	Object string
	// Causes are what is wrong, at least one: sorted by path, those without one last.
	Causes []Cause
}

// Cause is one thing that is wrong with an object.
type Cause struct {
	// Path holds field names (string) and list indices (int); it is empty if the
	// API server names no field.
	Path    []any
	Message string
}

// Error names the object and every cause.
func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Causes))
	for i, c := range e.Causes {
		texts[i] = c.Message
	}
	return fmt.Sprintf("the API server refuses %s: %s", e.Object, strings.Join(texts, "; "))
}

// NoKindError says that the API server doesn't serve a kind.
type NoKindError struct {
	// Kind is kind.group.
	Kind string
}

// Error says what to do.
func (e *NoKindError) Error() string {
	return fmt.Sprintf("the API server doesn't know the kind %s; install its CRD", e.Kind)
}

func name(u *unstructured.Unstructured) string {
	if ns := u.GetNamespace(); ns != "" {
		return u.GetKind() + "/" + ns + "/" + u.GetName()
	}
	return u.GetKind() + "/" + u.GetName()
}

// failure gives an error of the API server its kind.
func failure(verb string, obj *unstructured.Unstructured, err error) error {
	if meta.IsNoMatchError(err) {
		return &NoKindError{Kind: obj.GroupVersionKind().GroupKind().String()}
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if causes := refusals(status.Status()); len(causes) > 0 {
			return &InvalidError{Object: name(obj), Causes: causes}
		}
	}
	return fmt.Errorf("%s %s: %w", verb, name(obj), err)
}

// refusals returns what a status says is wrong with the object itself, nothing
// if it is about the request, the server or the caller's rights.
func refusals(s metav1.Status) []Cause {
	var out []Cause
	switch {
	case s.Reason == metav1.StatusReasonInvalid:
		if s.Details != nil {
			for _, c := range s.Details.Causes {
				if strings.Contains(c.Message, "some validation rules were not checked") {
					continue // a remark on the others
				}
				out = append(out, Cause{Path: parsePath(c.Field), Message: causeText(c)})
			}
		}
		if len(out) == 0 {
			out = []Cause{{Message: s.Message}}
		}
	case s.Reason == metav1.StatusReasonBadRequest,
		undeclared.MatchString(s.Message),
		strings.HasPrefix(s.Message, "admission webhook ") && strings.Contains(s.Message, " denied the request"),
		strings.HasPrefix(s.Message, "ValidatingAdmissionPolicy "):
		path := []any(nil)
		if m := undeclared.FindStringSubmatch(s.Message); m != nil {
			path = parsePath(strings.TrimPrefix(m[1], "."))
		}
		out = []Cause{{Path: path, Message: s.Message}}
	}
	// What has a path comes first: the rest tells the same with fewer words.
	slices.SortStableFunc(out, func(a, b Cause) int {
		return cmp.Or(
			-cmp.Compare(min(len(a.Path), 1), min(len(b.Path), 1)),
			strings.Compare(fmt.Sprint(a.Path...), fmt.Sprint(b.Path...)),
			strings.Compare(a.Message, b.Message),
		)
	})
	return out
}

// undeclared is how server-side apply says that a field isn't in the schema,
// which it does with status 500 for custom resources.
var undeclared = regexp.MustCompile(`(\.[^\s:]+): field not declared in schema`)

func causeText(c metav1.StatusCause) string {
	if c.Field == "" || c.Field == "<nil>" || strings.HasPrefix(c.Message, c.Field) {
		return c.Message
	}
	return c.Field + ": " + c.Message
}

// parsePath reads a path as the API server writes it, as in
// spec.template.spec.requirements[0].key or spec.limits[example.com/gpu].
func parsePath(s string) []any {
	if s == "<nil>" {
		return nil
	}
	var out []any
	for s != "" {
		switch s[0] {
		case '.':
			s = s[1:]
		case '[':
			inner, rest, ok := strings.Cut(s[1:], "]")
			if !ok {
				return out
			}
			if n, err := strconv.Atoi(inner); err == nil {
				out = append(out, n)
			} else {
				out = append(out, strings.Trim(inner, `"`))
			}
			s = rest
		default:
			end := strings.IndexAny(s, ".[")
			if end < 0 {
				end = len(s)
			}
			out = append(out, s[:end])
			s = s[end:]
		}
	}
	return out
}
