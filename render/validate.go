package render

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

// Live gives the object that a cluster has in place of one from a bundle, or
// nil. Rules about changes are judged against it.
type Live func(Object) map[string]any

// Validate judges every object of a bundle as an API server would on creating it:
// by the CRD's schema, its list types and its CEL rules. A field that a server would
// drop silently is an error here. Positions are the author's. Objects of kinds that
// the judge doesn't know are passed over.
func Validate(b Bundle, j *admission.Judge) diag.List {
	return ValidateChange(b, j, nil)
}

// ValidateChange is Validate for objects that may exist already: those that live
// returns are judged as changes.
func ValidateChange(b Bundle, j *admission.Judge, live Live) diag.List {
	v := NewValidator(j, live)
	for _, o := range b.Objects {
		v.Add(o)
	}
	return v.Findings()
}

// Validator is [ValidateChange] for objects that come one by one: they are judged while
// others are still on their way. Findings has to be called in the end.
type Validator struct {
	next  chan Object
	group sync.WaitGroup

	mu       sync.Mutex
	findings diag.List
}

// NewValidator begins to validate. live may be nil.
func NewValidator(j *admission.Judge, live Live) *Validator {
	v := &Validator{next: make(chan Object, waiting)}
	// The schemas are only needed to explain faults, and take a while to compile.
	shapes := sync.OnceValue(func() *checker {
		c, err := newChecker(schemas.CUE())
		if err != nil {
			return &checker{}
		}
		return c
	})
	for range runtime.GOMAXPROCS(0) {
		v.group.Go(func() {
			for o := range v.next {
				v.judge(o, j, live, shapes)
			}
		})
	}
	return v
}

// Add has an object judged by and by.
func (v *Validator) Add(o Object) {
	// Of an object that couldn't be read there is nothing to judge.
	if known(o) && !o.broken[""] {
		v.next <- o
	}
}

// Findings waits for the verdict on all objects.
func (v *Validator) Findings() diag.List {
	close(v.next)
	v.group.Wait()
	return v.findings.Sorted()
}

func (v *Validator) judge(o Object, j *admission.Judge, live Live, shapes func() *checker) {
	var old map[string]any
	if live != nil {
		old = live(o)
	}
	verdict := j.Check(o.judged(), old)
	if len(verdict.Violations) == 0 && len(verdict.Pruned) == 0 {
		return
	}
	var before admission.Verdict
	if o.mended != nil {
		before = j.Check(o.Value, old)
	}
	// CUE's values aren't safe for concurrent use.
	v.mu.Lock()
	defer v.mu.Unlock()
	v.findings = append(v.findings, explain(o, verdict, before, shapes().shapes[o.GVK.String()])...)
}

func known(o Object) bool {
	return slices.ContainsFunc(kinds(), func(k kind) bool { return k.gvk == o.GVK })
}

// judged is the object as an API server is asked about it.
func (o Object) judged() map[string]any {
	if o.mended != nil {
		return o.mended
	}
	return o.Value
}

// explain turns an API server's verdict on an object into findings. before is the
// verdict on the object as it was written, if it had to be mended.
func explain(o Object, verdict, before admission.Verdict, root *shape) diag.List {
	paths := notations(o.judged())
	var findings diag.List
	for _, v := range verdict.Violations {
		if v := located(v, paths); !o.excuses(v, before) {
			findings = append(findings, root.annotate(finding(o, v)))
		}
	}
	for _, text := range verdict.Pruned {
		path, ok := paths[text]
		if !ok || o.excused[pathKey(path)] {
			continue
		}
		findings = append(findings, diag.Finding{
			Code:    CodePruned,
			Message: where(o, path[:len(path)-1]) + " has no field " + last(path),
			Pos:     o.KeyPosition(path...),
			Object:  o.ID(), Path: PathString(path),
			Help: "remove it: the API server would drop it without a word",
		})
	}
	return findings
}

// located gives a violation the path that the OpenAPI validator wrote into its
// message instead, as it does where none of several schemas fits.
func located(v admission.Violation, paths map[string][]any) admission.Violation {
	if len(v.Path) > 0 || !strings.HasPrefix(v.Message, `"`) {
		return v
	}
	text, rest, ok := strings.Cut(v.Message[1:], `" `)
	if path := paths[text]; ok && path != nil {
		v.Path, v.Message = path, rest
	}
	return v
}

func finding(o Object, v admission.Violation) diag.Finding {
	message := v.Message
	// A rule that names the value needs it no second time.
	if x, ok := lookup(o.judged(), v.Path); ok {
		if text, ok := x.(string); ok {
			if rest, ok := strings.CutPrefix(message, strconv.Quote(text)+": "); ok && strings.Contains(rest, text) {
				message = rest
			}
		}
	}
	f := diag.Finding{
		Code:    CodeAPI,
		Message: message,
		Pos:     o.Position(v.Path...),
		Object:  o.ID(), Path: PathString(v.Path),
	}
	switch {
	case isRule(v):
		f.Code = CodeRule
	case v.Kind == string(field.ErrorTypeRequired):
		f.Message = PathString(v.Path) + " is missing"
		f.Help = "add it"
	}
	return f
}

// isRule reports whether a violation comes from a CEL rule. The schema's own
// checks word their messages as "should be …", and metadata has no rules.
func isRule(v admission.Violation) bool {
	return v.Kind == string(field.ErrorTypeInvalid) && !strings.Contains(v.Message, "should ") &&
		!strings.Contains(v.Message, "must validate") && (len(v.Path) == 0 || v.Path[0] != "metadata")
}

// sample returns a value that the shape's kind and choices allow.
func (s *shape) sample() any {
	switch {
	case s == nil:
		return nil
	case len(s.enum) > 0:
		return s.enum[0]
	case s.kind == cue.StructKind:
		out := map[string]any{}
		for _, name := range s.required {
			out[name] = s.fields[name].sample()
		}
		return out
	case s.kind == cue.ListKind:
		out := []any{}
		for range s.minItems {
			out = append(out, s.items.sample())
		}
		return out
	case s.kind&cue.StringKind != 0:
		return "x"
	case s.kind&cue.IntKind != 0:
		return int64(1)
	case s.kind&cue.BoolKind != 0:
		return false
	}
	return nil
}

// notations maps the API machinery's notation of every path in an object to
// the path. The notation doesn't quote names, so that it can't simply be parsed.
func notations(obj map[string]any) map[string][]any {
	out := map[string][]any{}
	var visit func(v any, path []any, text string)
	visit = func(v any, path []any, text string) {
		if text != "" {
			out[text] = path
		}
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				visit(v[name], child(path, name), strings.TrimPrefix(text+"."+name, "."))
			}
		case []any:
			for i, x := range v {
				visit(x, child(path, i), text+"["+strconv.Itoa(i)+"]")
			}
		}
	}
	visit(obj, nil, "")
	return out
}

// annotate adds to a finding where the schema declares the field and, if it says
// nothing about what to do, what the field is.
func (s *shape) annotate(f diag.Finding) diag.Finding {
	at := s.at(f.Path)
	if at == nil {
		return f
	}
	if at.pos.IsValid() {
		f.Related = []diag.Related{{Pos: at.pos, Message: "the schema declares it here"}}
	}
	// A rule about a struct says what to do; what the struct is for doesn't help.
	if f.Help == "" && (f.Code != CodeRule || at.kind != cue.StructKind) {
		f.Help = at.help()
	}
	return f
}

// at follows a path, as PathString formats it, into a shape as far as it goes.
func (s *shape) at(path string) *shape {
	for s != nil && path != "" {
		next, rest := s, ""
		switch {
		case strings.HasPrefix(path, "["):
			var inner string
			inner, rest, _ = strings.Cut(path[1:], "]")
			next = s.items
			if name, err := strconv.Unquote(inner); err == nil {
				next = s.field(name)
			}
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			next, rest = s.field(path[:end]), path[end:]
		}
		if next == nil {
			return s
		}
		s, path = next, strings.TrimPrefix(rest, ".")
	}
	return s
}

func (s *shape) field(name string) *shape {
	if f := s.fields[name]; f != nil {
		return f
	}
	return s.other
}
