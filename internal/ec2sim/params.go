package ec2sim

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params is a query-protocol form as the tree that its dotted names spell:
// Filter.1.Value.2=x is the value x at Filter → 1 → Value → 2. A nil tree is
// empty, so look-ups chain.
type params struct {
	value string
	set   bool
	kids  map[string]*params
}

func parseParams(form url.Values) *params {
	root := &params{}
	for name, values := range form {
		at := root
		for part := range strings.SplitSeq(name, ".") {
			if at.kids == nil {
				at.kids = map[string]*params{}
			}
			kid := at.kids[part]
			if kid == nil {
				kid = &params{}
				at.kids[part] = kid
			}
			at = kid
		}
		at.value, at.set = values[0], true
	}
	return root
}

// at returns the tree at a dotted path, nil if there is none.
func (p *params) at(path string) *params {
	for part := range strings.SplitSeq(path, ".") {
		if p == nil {
			return nil
		}
		p = p.kids[part]
	}
	return p
}

func (p *params) has(path string) bool { return p.at(path) != nil }

func (p *params) str(path string) string {
	if at := p.at(path); at != nil {
		return at.value
	}
	return ""
}

func (p *params) bool(path string) bool { return p.str(path) == "true" }

// int reads a whole number, def if it is absent.
func (p *params) int(path string, def int) (int, error) {
	at := p.at(path)
	if at == nil || !at.set {
		return def, nil
	}
	n, err := strconv.Atoi(at.value)
	if err != nil {
		return 0, invalidParameter("Value (%s) for parameter %s is invalid. It is not an integer.", at.value, path)
	}
	return n, nil
}

// float reads a decimal number, def if it is absent.
func (p *params) float(path string, def float64) (float64, error) {
	at := p.at(path)
	if at == nil || !at.set {
		return def, nil
	}
	f, err := strconv.ParseFloat(at.value, 64)
	if err != nil {
		return 0, invalidParameter("Value (%s) for parameter %s is invalid. It is not a number.", at.value, path)
	}
	return f, nil
}

// time reads an ISO 8601 time, zero if it is absent.
func (p *params) time(path string) (time.Time, error) {
	at := p.at(path)
	if at == nil || !at.set {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, at.value)
	if err != nil {
		return time.Time{}, invalidParameter("Value (%s) for parameter %s is invalid. It is not a time.", at.value, path)
	}
	return t, nil
}

// list returns the members X.1, X.2, … of the list at path in order.
func (p *params) list(path string) []*params {
	at := p.at(path)
	if at == nil {
		return nil
	}
	// IAM and STS put their members one level down, at X.member.1.
	if m := at.kids["member"]; m != nil && len(at.kids) == 1 {
		at = m
	}
	type entry struct {
		index int
		tree  *params
	}
	var entries []entry
	for name, kid := range at.kids {
		if n, err := strconv.Atoi(name); err == nil {
			entries = append(entries, entry{n, kid})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.index, b.index) })
	trees := make([]*params, len(entries))
	for i, e := range entries {
		trees[i] = e.tree
	}
	return trees
}

// strs returns the values of the list at path.
func (p *params) strs(path string) []string {
	var values []string
	for _, m := range p.list(path) {
		values = append(values, m.value)
	}
	return values
}

// canonical spells the tree in one way, for comparing two requests.
func (p *params) canonical(skip ...string) string {
	var b strings.Builder
	p.write(&b, "", skip)
	return b.String()
}

func (p *params) write(b *strings.Builder, prefix string, skip []string) {
	if p == nil {
		return
	}
	if p.set {
		b.WriteString(prefix + "=" + strconv.Quote(p.value) + "\n")
	}
	names := make([]string, 0, len(p.kids))
	for name := range p.kids {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if prefix == "" && slices.Contains(skip, name) {
			continue
		}
		p.kids[name].write(b, prefix+"."+name, skip)
	}
}
