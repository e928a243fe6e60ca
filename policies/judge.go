package policies

import (
	"encoding/json"
	"fmt"

	"cuelang.org/go/cue"
)

// input is what a rule is given.
type input struct{ object, facts, cluster any }

// answer is what a rule says about an input.
type answer struct {
	hits []hit
	err  error
}

// hit is one thing that breaks a rule.
type hit struct {
	path     []any
	message  string
	severity string
}

// judge evaluates the rule on what it declares of an input. A rule is a function of
// that, so that it is evaluated once for inputs that are alike in it.
func (r *Rule) judge(in input) answer {
	given := map[string]any{}
	for name, x := range map[string]any{"object": in.object, "facts": in.facts, "cluster": in.cluster} {
		if reads := r.reads[name]; reads != nil && x != nil {
			given[name] = reads.of(x)
		}
	}
	key, err := json.Marshal(given)
	if err != nil {
		return answer{err: fmt.Errorf("encode what %s is given: %w", r.ID, err)}
	}
	if a, ok := r.known[string(key)]; ok {
		return a
	}
	a := r.evaluate(given)
	r.known[string(key)] = a
	return a
}

func (r *Rule) evaluate(given map[string]any) answer {
	v := r.value.FillPath(cue.Path{}, given)
	for _, name := range inputs() {
		if _, ok := given[name]; !ok {
			continue
		}
		if err := v.LookupPath(cue.ParsePath(name)).Err(); err != nil {
			return answer{err: err}
		}
	}
	found := v.LookupPath(cue.ParsePath("found"))
	it, err := found.List()
	if err != nil {
		return answer{err: err}
	}
	var a answer
	for it.Next() {
		h, err := readHit(it.Value())
		if err != nil {
			return answer{err: err}
		}
		a.hits = append(a.hits, h)
	}
	return a
}

func readHit(v cue.Value) (hit, error) {
	var h hit
	var err error
	if h.message, err = v.LookupPath(cue.ParsePath("message")).String(); err != nil {
		return h, err
	}
	if level := v.LookupPath(cue.ParsePath("severity")); level.Exists() {
		if h.severity, err = level.String(); err != nil {
			return h, err
		}
		if _, ok := severityOf(h.severity); !ok {
			return h, fmt.Errorf("%q is no severity: write deny, warn or info", h.severity)
		}
	}
	path, err := v.LookupPath(cue.ParsePath("path")).List()
	if err != nil {
		return h, err
	}
	for path.Next() {
		if i, err := path.Value().Int64(); err == nil {
			h.path = append(h.path, int(i))
			continue
		}
		name, err := path.Value().String()
		if err != nil {
			return h, err
		}
		h.path = append(h.path, name)
	}
	return h, nil
}
