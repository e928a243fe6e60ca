package plan

import (
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Drift returns what differs between Git and the live objects, sorted by object
// and field. It looks at the fields that Git holds and at no others: what
// controllers, defaults and other people add beside them is not drift.
//
// Values are compared as the API server would store them (Observed.Want), and
// quantities and durations by what they mean, so that 1000 and "1000", or 24h
// and 1440m, are the same.
func Drift(objects []Observed) []Difference {
	var out []Difference
	for _, o := range objects {
		if o.Live == nil {
			out = append(out, Difference{Object: o.ID, File: o.File})
			continue
		}
		d := differ{object: o, owners: parseOwners(o.Live)}
		d.maps(nil, o.Git, o.Want, o.Live)
		out = append(out, d.out...)
	}
	slices.SortFunc(out, func(a, b Difference) int {
		if c := a.Object.compare(b.Object); c != 0 {
			return c
		}
		return strings.Compare(a.Field, b.Field)
	})
	return out
}

type differ struct {
	object Observed
	owners []owner
	out    []Difference
	// paths are those of out.
	paths [][]any
}

// maps compares what git holds of two maps.
func (d *differ) maps(path []any, git, want, live map[string]any) {
	// The order of the walk doesn't matter: Drift sorts.
	for key, g := range git {
		at := append(path[:len(path):len(path)], key)
		if ignored(at) || g == nil {
			continue
		}
		w, stored := want[key]
		if !stored {
			// The API server drops the field, or an empty value: nothing to hold it to.
			continue
		}
		l, there := live[key]
		gm, isMap := g.(map[string]any)
		wm, wantMap := w.(map[string]any)
		lm, liveMap := l.(map[string]any)
		switch {
		case isMap && wantMap && liveMap:
			d.maps(at, gm, wm, lm)
		case isMap && wantMap && len(gm) == 0:
			// An empty map says nothing about what is in it.
		case !there:
			d.found(at, g, nil)
		default:
			d.values(at, g, w, l)
		}
	}
}

// values compares anything that isn't a map held by Git in part.
func (d *differ) values(path []any, git, want, live any) {
	if equal(path, want, live) {
		return
	}
	gl, isList := git.([]any)
	wl, wantList := want.([]any)
	ll, liveList := live.([]any)
	// Lists of the same length are shown by the elements that differ, which is
	// what a person would point at.
	if isList && wantList && liveList && len(wl) == len(ll) && len(gl) == len(wl) {
		for i := range wl {
			d.element(append(path[:len(path):len(path)], i), gl[i], wl[i], ll[i])
		}
		return
	}
	d.found(path, git, live)
}

// element compares one element of a list, which Git holds as a whole.
func (d *differ) element(path []any, git, want, live any) {
	if equal(path, want, live) {
		return
	}
	gm, isMap := git.(map[string]any)
	wm, wantMap := want.(map[string]any)
	lm, liveMap := live.(map[string]any)
	if !isMap || !wantMap || !liveMap {
		d.found(path, git, live)
		return
	}
	keys := map[string]bool{}
	for k := range wm {
		keys[k] = true
	}
	for k := range lm {
		keys[k] = true
	}
	for k := range keys {
		at := append(path[:len(path):len(path)], k)
		w, wanted := wm[k]
		l, there := lm[k]
		g, written := gm[k]
		switch {
		case wanted && there && equal(at, w, l):
		case wanted && written:
			if there {
				d.values(at, g, w, l)
			} else {
				d.found(at, g, nil)
			}
		default:
			// A default that differs, or a field that only the live element has.
			d.found(at, w, l)
		}
	}
}

// found records a difference; nil is an absent value.
func (d *differ) found(path []any, git, live any) {
	diff := Difference{Object: d.object.ID, File: d.object.File, Field: PathString(path)}
	if git != nil {
		diff.Git = shown(path, git)
	}
	if live != nil {
		diff.Live = shown(path, live)
	}
	if o, ok := newest(d.owners, path); ok {
		diff.Manager, diff.Operation, diff.When = o.manager, o.operation, o.when
	}
	if live != nil && d.object.Judge != nil && d.object.Judge(path, diff.Manager) == Yield {
		return
	}
	d.out, d.paths = append(d.out, diff), append(d.paths, path)
}

// ignored reports whether a path is never compared: what identifies the object,
// what the API server and our own controllers write.
func ignored(path []any) bool {
	first, _ := path[0].(string)
	switch {
	case len(path) == 1:
		return first == "apiVersion" || first == "kind" || first == "status"
	case first != "metadata":
		return false
	case len(path) == 2:
		return path[1] != "labels" && path[1] != "annotations"
	case len(path) == 3 && path[1] == "annotations":
		switch path[2] {
		case karpenter.AnnotationNodePoolHash, karpenter.AnnotationNodePoolHashVersion,
			aws.AnnotationEC2NodeClassHash, aws.AnnotationEC2NodeClassHashVersion:
			return true
		}
	}
	return false
}

// Carry returns now with the times of before for what is still the same
// difference. A manager's time moves with everything that it writes, also to
// other fields; the time of a difference shall not.
func Carry(before, now []Difference) []Difference {
	type key struct {
		object        ID
		field         string
		live, manager string
	}
	of := func(d Difference) key { return key{d.Object, d.Field, d.Live.json, d.Manager} }
	seen := make(map[key]Difference, len(before))
	for _, d := range before {
		seen[of(d)] = d
	}
	out := slices.Clone(now)
	for i, d := range out {
		if old, ok := seen[of(d)]; ok {
			out[i].When = old.When
		}
	}
	return out
}
