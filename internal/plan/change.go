package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/schemas/admission"
)

// Action is what a commit does to an object.
type Action string

// Actions.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
)

// Target is one object that a commit declares, no longer declares, or that is live.
type Target struct {
	ID ID
	// File is where the commit declares the object, or where the one before did, as in
	// clusters/prod/pools.cue:12; "" if unknown.
	File string
	// Head is what the commit declares, as its author wrote it; nil if it doesn't.
	Head map[string]any
	// Base is what was applied last, as its author wrote it; nil if it isn't known.
	Base map[string]any
	// Live is what the API server holds, nil if there is no such object or nobody was
	// asked.
	Live map[string]any
	// Kept says why an object that the commit doesn't declare stays, "" if it goes.
	Kept string
	// Untouched is true for an object that the commit declares as it was applied
	// before: it isn't applied again, whatever is live.
	Untouched bool
	// Judge says which fields are others', as the source's conflict rules have it; nil
	// means none is. Those that it leaves to others aren't applied.
	Judge Judge
}

// Change is what a commit does to one object.
type Change struct {
	Object ID     `json:"object"`
	Action Action `json:"action"`
	// File is where the object is declared.
	File string `json:"file,omitempty"`
	// ResourceVersion is that of the live object that the change was worked out from.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Fields are those that change, sorted by path. A created or deleted object has
	// those that its author wrote.
	Fields []Field `json:"fields"`
	// Diff is the object before and after, as a unified diff of YAML with three lines
	// of context. What may be secret is hidden in it.
	Diff string `json:"diff"`
}

// Field is one field that changes.
type Field struct {
	// Path is as in spec.limits.cpu.
	Path string `json:"path"`
	// Before and After are absent where there is no value.
	Before Value `json:"before,omitzero"`
	After  Value `json:"after,omitzero"`
	// Drift is true if the value that goes isn't Git's own: somebody set it by hand.
	Drift bool `json:"drift,omitempty"`

	path []any
}

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.IsAbsent() }

// MarshalJSON writes the value itself.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.IsAbsent() {
		return []byte("null"), nil
	}
	return []byte(v.json), nil
}

// UnmarshalJSON reads a value that was shown before: what was hidden stays hidden.
func (v *Value) UnmarshalJSON(text []byte) error {
	v.json = string(text)
	if v.json == "null" {
		v.json = ""
	}
	return nil
}

// Changes returns what a commit does to objects, and what of the live ones has
// drifted from what was applied before, on the objects that the commit touches alone.
// Objects that stay as they are have no part in either. live says whether the API
// server's objects are known; without them what was applied takes their place. manager
// is the field manager of what Git holds.
//
// It foretells what server-side apply by force will do: Git's fields get Git's values but
// those that the target's judge leaves to others, fields that Git held and no longer
// holds go, and everything else stays.
func Changes(targets []Target, judge *admission.Judge, live bool, manager string) ([]Change, []Difference) {
	var changes []Change
	var touched []Observed
	var foreign []Difference
	for _, t := range targets {
		c, ok := change(t, judge, live, manager)
		if !ok {
			continue
		}
		switch {
		case !live || t.Live == nil:
		case t.Base != nil:
			touched = append(touched, Observed{ID: t.ID, File: fileOf(t.File), Git: t.Base, Want: judge.Stored(joined(judge, t.Live, t.Base)), Live: t.Live, Judge: t.Judge})
		default:
			foreign = append(foreign, written(t, c, manager)...)
		}
		changes = append(changes, c)
	}
	drift := append(Drift(touched), foreign...)
	drift = slices.DeleteFunc(drift, func(d Difference) bool {
		return strings.HasPrefix(d.Field, `metadata.annotations["`+repeating)
	})
	slices.SortStableFunc(drift, func(a, b Difference) int {
		if c := a.Object.compare(b.Object); c != 0 {
			return c
		}
		return strings.Compare(a.Field, b.Field)
	})
	drifted := map[ID][]string{}
	for _, d := range drift {
		drifted[d.Object] = append(drifted[d.Object], d.Field)
	}
	for i := range changes {
		for j := range changes[i].Fields {
			f := &changes[i].Fields[j]
			f.Drift = slices.ContainsFunc(drifted[changes[i].Object], func(path string) bool { return within(f.Path, path) || within(path, f.Path) })
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return a.Object.compare(b.Object) })
	return changes, drift
}

// fileOf is a position's file.
func fileOf(at string) string {
	file, _, _ := strings.Cut(at, ":")
	return file
}

// within reports whether a path leads to a field or into it.
func within(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func change(t Target, judge *admission.Judge, live bool, manager string) (Change, bool) {
	c := Change{Object: t.ID, File: t.File, Fields: []Field{}}
	now := t.Live
	if !live {
		now = t.Base
	}
	var before, after map[string]any
	switch {
	case t.Head == nil && (now == nil || t.Kept != ""):
		return c, false
	case t.Head == nil:
		c.Action = Delete
		before = now
		if t.Base != nil {
			before = t.Base
		}
	case now == nil:
		c.Action = Create
		after = t.Head
	case t.Untouched:
		return c, false
	default:
		c.Action = Update
		before, after = judge.Stored(now), judge.Stored(t.Head)
		if live {
			after = judge.Stored(applied(judge, t, manager))
		}
	}
	if before == nil && after == nil {
		return c, false
	}
	if meta, ok := now["metadata"].(map[string]any); ok && live {
		c.ResourceVersion, _ = meta["resourceVersion"].(string)
	}
	f := fielder{}
	f.maps(nil, before, after)
	if c.Action == Update && len(f.out) == 0 {
		return c, false
	}
	slices.SortStableFunc(f.out, func(a, b Field) int { return strings.Compare(a.Path, b.Path) })
	c.Fields = append(c.Fields, f.out...)
	c.Diff = unified(before, after)
	return c, true
}

// written returns the changed fields of which the live value isn't Git's work, told by
// who wrote them. An object that Git never held has none: it is taken over as a whole.
func written(t Target, c Change, manager string) []Difference {
	owners := parseOwners(t.Live)
	if !slices.ContainsFunc(owners, func(o owner) bool { return o.manager == manager }) {
		return nil
	}
	var out []Difference
	for _, f := range c.Fields {
		o, ok := newest(owners, f.path)
		if !ok || o.manager == manager || f.Before.IsAbsent() {
			continue
		}
		out = append(out, Difference{
			Object: t.ID, File: fileOf(t.File), Field: f.Path, Git: f.After, Live: f.Before,
			Manager: o.manager, Operation: o.operation, When: o.when,
		})
	}
	return out
}

// fielder collects the fields in which two objects differ.
type fielder struct{ out []Field }

func (f *fielder) maps(path []any, before, after map[string]any) {
	// The order of the walk doesn't matter: the result is sorted.
	for k, b := range before {
		at := append(path[:len(path):len(path)], k)
		if ignored(at) || noise(at) {
			continue
		}
		if a, ok := after[k]; ok {
			f.values(at, b, a)
		} else {
			f.one(at, b, nil)
		}
	}
	for k, a := range after {
		at := append(path[:len(path):len(path)], k)
		if _, had := before[k]; !had && !ignored(at) && !noise(at) {
			f.one(at, nil, a)
		}
	}
}

func (f *fielder) values(path []any, before, after any) {
	if equal(path, before, after) {
		return
	}
	bm, isMap := before.(map[string]any)
	am, isMapToo := after.(map[string]any)
	bl, isList := before.([]any)
	al, isListToo := after.([]any)
	switch {
	case isMap && isMapToo:
		f.maps(path, bm, am)
	case isList && isListToo && len(bl) == len(al) && allMaps(bl) && allMaps(al):
		// Elements of the same place are shown by the fields that differ.
		for i := range bl {
			f.values(append(path[:len(path):len(path)], i), bl[i], al[i])
		}
	default:
		f.add(path, before, after)
	}
}

// one records what is on one side alone, a map by its fields.
func (f *fielder) one(path []any, before, after any) {
	bm, isMap := before.(map[string]any)
	am, isMapToo := after.(map[string]any)
	if isMap && len(bm) > 0 || isMapToo && len(am) > 0 {
		f.maps(path, bm, am)
		return
	}
	f.add(path, before, after)
}

func (f *fielder) add(path []any, before, after any) {
	x := Field{Path: PathString(path), path: path}
	if before != nil {
		x.Before = shown(path, before)
	}
	if after != nil {
		x.After = shown(path, after)
	}
	f.out = append(f.out, x)
}

func allMaps(list []any) bool {
	return !slices.ContainsFunc(list, func(e any) bool {
		_, ok := e.(map[string]any)
		return !ok
	})
}

// repeating begins the names of annotations that repeat the whole object, secrets and all.
const repeating = "kubectl.kubernetes.io/"

// noise reports whether a path is such an annotation.
func noise(path []any) bool {
	if len(path) != 3 || path[0] != "metadata" || path[1] != "annotations" {
		return false
	}
	name, _ := path[2].(string)
	return strings.HasPrefix(name, repeating)
}

// size is the number of bytes of a text, or of the one that it stands for in a snapshot,
// where it is veiled:N:digest.
func size(text string) int {
	if rest, ok := strings.CutPrefix(text, "veiled:"); ok {
		number, _, _ := strings.Cut(rest, ":")
		if n, err := strconv.Atoi(number); err == nil {
			return n
		}
	}
	return len(text)
}
