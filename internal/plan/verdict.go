package plan

import "slices"

// Verdict says who wins a field that Git holds and that somebody else wrote.
type Verdict uint8

const (
	// Force: Git does, and another value is drift.
	Force Verdict = iota
	// Yield: whoever wrote it does, and it is no drift.
	Yield
	// Fail: neither. Another value is drift, and nothing is applied over it.
	Fail
)

// Judge gives the verdict on a field by its path, of names and indices, and by
// the manager that wrote its live value.
type Judge func(path []any, manager string) Verdict

// Contested returns the fields that applying o would take from others against the
// judge's verdict: those to be left out of what is applied, as paths of names, and
// the differences that forbid to apply it at all. An element of a list stands for
// the list, which is applied as a whole.
func Contested(o Observed, judge Judge) (yielded [][]string, failed []Difference) {
	if o.Live == nil || judge == nil {
		return nil, nil
	}
	d := differ{object: o, owners: parseOwners(o.Live)}
	d.object.Judge = func(path []any, manager string) Verdict {
		verdict := judge(path, manager)
		if verdict != Force {
			yielded = append(yielded, names(path))
		}
		if verdict == Yield {
			return Yield
		}
		return Force
	}
	d.maps(nil, o.Git, o.Want, o.Live)
	for i := range d.out {
		if judge(d.paths[i], d.out[i].Manager) == Fail {
			failed = append(failed, d.out[i])
		}
	}
	return yielded, failed
}

// names cuts a path at the first index.
func names(path []any) []string {
	var out []string
	for _, e := range path {
		name, ok := e.(string)
		if !ok {
			break
		}
		out = append(out, name)
	}
	return out
}

// Released returns those of a live object's orphaned fields that may be taken away,
// and the differences that forbid it: a rule that leaves a field to others does so
// too when Git no longer holds it. manager is Git's own, and never one of the others.
func Released(o Observed, orphans [][]string, manager string, judge Judge) (free [][]string, failed []Difference) {
	if judge == nil {
		return orphans, nil
	}
	owners := slices.DeleteFunc(parseOwners(o.Live), func(w owner) bool { return w.manager == manager })
	for _, orphan := range orphans {
		at := anyPath(orphan)
		diff := Difference{Object: o.ID, File: o.File, Field: PathString(at)}
		if live, ok := ValueAt(o.Live, at); ok {
			diff.Live = shown(at, live)
		}
		if w, ok := newest(owners, at); ok {
			diff.Manager, diff.Operation, diff.When = w.manager, w.operation, w.when
		}
		switch judge(at, diff.Manager) {
		case Yield:
		case Fail:
			failed = append(failed, diff)
		default:
			free = append(free, orphan)
		}
	}
	return free, failed
}
