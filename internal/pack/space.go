package pack

import (
	"cmp"
	"maps"
	"slices"
)

// A space is all that new nodes may be. Each possibility is a column: a pool,
// the values chosen for labels that the pool leaves open, an instance type and
// one of its offerings. A column's labels, taints and room are settled, so that
// whether a pod fits it is a matter of comparing.
//
// Columns are numbered pool by pool, within a pool variant by variant, within a
// variant row by row:
//
//	pool 0                         pool 1
//	variant 0      variant 1       variant 0
//	row 0 1 2 ...  row 0 1 2 ...   row 0 1 2 ...
//
// A space is built once for a set of pools and daemons and then only gains
// answers: which columns a filter lets through.
type space struct {
	axis  *axis
	pools []poolSpace
	// cols is the number of columns and width that of the axis when it was built.
	cols, width int
	// prices and owners are each column's price and pool.
	prices []int64
	owners []int32
	// sorted are the columns by price, made when first needed.
	sorted []int32
	// menus are those made of late, by what was asked for.
	menus map[string]*menu
	// room is what each column leaves to pods, daemons being served already.
	room []int64
	// ports are those that daemons take on each column, nil if none does anywhere.
	ports [][]HostPort
	// answers are the columns that each filter lets through.
	answers map[*filter]bitset
}

// poolSpace is one pool's part of a space.
type poolSpace struct {
	pool     Pool
	table    *typeTable
	first    int
	variants []variant
	// rows are those that the pool's own requirements allow.
	rows bitset
	// sets are what the pool says about labels that its types do not define.
	sets map[string]Set
	// limits has an amount for each place on the axis, unlimited if none is set.
	limits    []int64
	nodeLimit int64
	minValues []minValue
}

// variant is one way to settle the labels that a pool leaves open.
type variant map[string]Set

// minValue is a pool's demand for distinct values of a key.
type minValue struct {
	key    string
	n      int
	column *labelColumn
}

// typeTable is a list of instance types with one row for each offering that is
// for sale. Pools with the same list share it.
type typeTable struct {
	// types are sorted by name.
	types []*InstanceType
	rows  []row
	// allocatable and capacity have one vector a type.
	allocatable, capacity []int64
	columns               map[string]*labelColumn
}

type row struct {
	typ int32
	off *Offering
}

// labelColumn has the value of one label in every row, as an index into values
// plus one, or zero where it is absent.
type labelColumn struct {
	values []string
	at     []uint16
}

// newTypeTable lays out types. The axis has to know their resources.
func newTypeTable(types []InstanceType, a *axis) *typeTable {
	t := &typeTable{columns: map[string]*labelColumn{}}
	for i := range types {
		t.types = append(t.types, &types[i])
	}
	slices.SortFunc(t.types, func(a, b *InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	width := len(a.names)
	t.allocatable = make([]int64, len(types)*width)
	t.capacity = make([]int64, len(types)*width)
	for i, typ := range t.types {
		a.supply(t.allocatable[i*width:(i+1)*width], typ.Allocatable, typ.Attach)
		a.supply(t.capacity[i*width:(i+1)*width], typ.Capacity, nil)
		from := len(t.rows)
		for j := range typ.Offerings {
			if typ.Offerings[j].Available {
				t.rows = append(t.rows, row{int32(i), &typ.Offerings[j]})
			}
		}
		slices.SortFunc(t.rows[from:], func(a, b row) int { return compareOfferings(a.off, b.off) })
	}
	return t
}

func compareOfferings(a, b *Offering) int {
	return cmp.Or(cmp.Compare(a.MicroUSD, b.MicroUSD), cmp.Compare(a.CapacityType, b.CapacityType),
		cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.ReservationID, b.ReservationID))
}

// label returns the value of a label in a row.
func (r row) label(t *typeTable, key string) (string, bool) {
	switch key {
	case LabelInstanceType:
		return t.types[r.typ].Name, true
	case LabelZone:
		return r.off.Zone, true
	case LabelCapacityType:
		return r.off.CapacityType, true
	}
	if v, ok := r.off.Labels[key]; ok {
		return v, true
	}
	v, ok := t.types[r.typ].Labels[key]
	return v, ok
}

// column returns the values of a label, or nil if no type or offering has it.
func (t *typeTable) column(key string) *labelColumn {
	if c, ok := t.columns[key]; ok {
		return c
	}
	var values symbols
	c := &labelColumn{at: make([]uint16, len(t.rows))}
	for i, r := range t.rows {
		if v, ok := r.label(t, key); ok {
			c.at[i] = uint16(values.id(v)) + 1
		}
	}
	c.values = values.names
	if len(c.values) == 0 && !t.defines(key) {
		c = nil
	}
	t.columns[key] = c
	return c
}

// defines reports whether a type or offering has the label, for sale or not.
func (t *typeTable) defines(key string) bool {
	switch key {
	case LabelInstanceType, LabelZone, LabelCapacityType:
		return true
	}
	for _, typ := range t.types {
		if _, ok := typ.Labels[key]; ok {
			return true
		}
		for i := range typ.Offerings {
			if _, ok := typ.Offerings[i].Labels[key]; ok {
				return true
			}
		}
	}
	return false
}

// restrict removes the rows from b in which the label is not in the set.
func (c *labelColumn) restrict(b bitset, set Set) {
	ok := make([]bool, len(c.values)+1)
	ok[0] = set.HasAbsent()
	for i, v := range c.values {
		ok[i+1] = set.Has(v)
	}
	for i := b.next(0); i >= 0; i = b.next(i + 1) {
		if !ok[c.at[i]] {
			b.clear(i)
		}
	}
}

// newSpace lays out pools, the heaviest first, then by name. Tables are kept by
// the list that they were made from. Mentions are the values that pods ask for
// of labels that pools may leave open.
func newSpace(pools []Pool, daemons []*filter, demands [][]int64, a *axis, tables map[*InstanceType]*typeTable, wellKnown map[string]bool, mentions map[string]*mention) *space {
	sp := &space{axis: a, width: len(a.names), menus: map[string]*menu{}, answers: map[*filter]bitset{}}
	pools = slices.Clone(pools)
	slices.SortFunc(pools, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Name, b.Name))
	})
	for _, pool := range pools {
		ps := poolSpace{pool: pool, first: sp.cols, sets: map[string]Set{}}
		if len(pool.Types) == 0 {
			ps.table = newTypeTable(nil, a)
		} else if ps.table = tables[&pool.Types[0]]; ps.table == nil || len(ps.table.types) != len(pool.Types) {
			ps.table = newTypeTable(pool.Types, a)
			tables[&pool.Types[0]] = ps.table
		}
		ps.setLimits(a)
		ps.rows = newBitset(len(ps.table.rows))
		ps.rows.fill(len(ps.table.rows))
		for _, cl := range clauses(pool.Requirements) {
			if c := ps.table.column(cl.key); c != nil {
				c.restrict(ps.rows, cl.set)
			} else {
				ps.sets[cl.key] = cl.set
			}
		}
		for _, r := range pool.Requirements {
			if r.MinValues > 0 {
				ps.minValues = append(ps.minValues, minValue{r.Key, r.MinValues, ps.table.column(r.Key)})
			}
		}
		ps.variants = ps.settle(wellKnown, mentions)
		sp.cols += len(ps.variants) * len(ps.table.rows)
		sp.pools = append(sp.pools, ps)
	}
	sp.serve(daemons, demands)
	return sp
}

func (ps *poolSpace) setLimits(a *axis) {
	ps.limits = limitVector(ps.pool.Limits, a)
	ps.nodeLimit = unlimited
	if n, ok := ps.pool.Limits[NodeCount]; ok {
		ps.nodeLimit = n
	}
}

// limitVector returns a limit for each place on the axis, nil if there is none.
func limitVector(limits Resources, a *axis) []int64 {
	var v []int64
	for i, name := range a.names {
		if q, ok := limits[name]; ok {
			if v == nil {
				v = make([]int64, len(a.names))
				for j := range v {
					v[j] = unlimited
				}
			}
			v[i] = q
		}
	}
	return v
}

// maxVariants bounds how many combinations of open labels are told apart. Beyond
// it labels are settled one at a time, so that a node no longer gets chosen
// values for two of them; a made-up case, as nobody is known to leave more than
// two labels open.
const maxVariants = 64

// settle lists the ways to settle the labels that the pool leaves open and that
// some pod mentions.
func (ps *poolSpace) settle(wellKnown map[string]bool, mentions map[string]*mention) []variant {
	base := variant{}
	type open struct {
		key    string
		values []Set
	}
	var opens []open
	total := 1
	for _, key := range slices.Sorted(maps.Keys(mentions)) {
		have, ok := ps.sets[key]
		if _, fixed := ps.pool.Labels[key]; fixed || key == LabelPool || isNameKey(key) || ps.table.column(key) != nil {
			continue
		}
		if !ok {
			if !wellKnown[key] {
				continue
			}
			have = Anything()
		}
		values := outcomes(have, mentions[key].sets)
		if len(values) == 0 {
			return nil
		}
		base[key] = values[0]
		if len(values) > 1 {
			opens = append(opens, open{key, values})
			total = min(total*len(values), maxVariants+1)
		}
	}
	out := []variant{base}
	for _, o := range opens {
		from := out
		if total > maxVariants {
			from = out[:1]
		}
		for _, v := range from {
			for _, set := range o.values[1:] {
				w := maps.Clone(v)
				w[o.key] = set
				out = append(out, w)
			}
		}
	}
	return out
}

// outcomes lists the outcomes of an open label that pods can tell apart: absent
// first if allowed, then values, sorted.
func outcomes(have Set, mentioned map[string]*mentionedSet) []Set {
	var values []string
	if v, ok := have.Values(); ok {
		values = v
	} else {
		for _, m := range mentioned {
			both := m.set.Intersect(have)
			if v, ok := both.Values(); ok {
				values = append(values, v...)
			} else if v, ok := both.Example(); ok {
				values = append(values, v)
			}
		}
		if v, ok := have.Example(); ok && !have.HasAbsent() {
			values = append(values, v)
		}
		slices.Sort(values)
		values = slices.Compact(values)
	}
	var out []Set
	if have.HasAbsent() {
		out = append(out, Absent())
	}
	for _, v := range values {
		out = append(out, OneOf(v))
	}
	return out
}

// freshName stands for a name that no requirement can know.
const freshName = "\x00"

// label returns what a label that the types do not define is on a node of the
// variant.
func (ps *poolSpace) label(v variant, key string) Set {
	if key == LabelPool {
		return OneOf(ps.pool.Name)
	}
	if isNameKey(key) {
		return OneOf(freshName)
	}
	if value, ok := ps.pool.Labels[key]; ok {
		return OneOf(value)
	}
	if set, ok := v[key]; ok {
		return set
	}
	if set, ok := ps.sets[key]; ok {
		return set
	}
	return Absent()
}

// columns returns the columns that the filter lets through.
func (sp *space) columns(f *filter) bitset {
	if b, ok := sp.answers[f]; ok {
		return b
	}
	out := newBitset(sp.cols)
	for p := range sp.pools {
		ps := &sp.pools[p]
		if f.untolerated(ps.pool.Taints) >= 0 {
			continue
		}
		for v, vr := range ps.variants {
			from := ps.first + v*len(ps.table.rows)
			rows := ps.pass(f, vr)
			for i := rows.next(0); i >= 0; i = rows.next(i + 1) {
				if len(f.ports) == 0 || sp.ports == nil || !anyConflict(f.ports, sp.ports[from+i]) {
					out.set(from + i)
				}
			}
		}
	}
	sp.answers[f] = out
	return out
}

func anyConflict(a, b []HostPort) bool {
	for _, p := range a {
		if slices.ContainsFunc(b, p.conflicts) {
			return true
		}
	}
	return false
}

// pass returns the rows of a variant in which the filter's choices hold.
func (ps *poolSpace) pass(f *filter, v variant) bitset {
	rows := slices.Clone(ps.rows)
	some, all := newBitset(len(ps.table.rows)), newBitset(len(ps.table.rows))
	for _, c := range f.choices {
		some.zero()
		for _, alt := range c {
			copy(all, rows)
			for _, cl := range alt {
				if col := ps.table.column(cl.key); col != nil {
					col.restrict(all, cl.set)
				} else if ps.label(v, cl.key).Intersect(cl.set).Empty() {
					all.zero()
				}
			}
			some.or(all)
		}
		rows.and(some)
	}
	return rows
}

// serve takes what daemons ask for from each column's room.
func (sp *space) serve(daemons []*filter, demands [][]int64) {
	w := sp.width
	sp.room = make([]int64, sp.cols*w)
	sp.prices, sp.owners = make([]int64, sp.cols), make([]int32, sp.cols)
	for p := range sp.pools {
		ps := &sp.pools[p]
		for v := range ps.variants {
			for i, r := range ps.table.rows {
				c := ps.first + v*len(ps.table.rows) + i
				copy(sp.room[c*w:(c+1)*w], ps.table.allocatable[int(r.typ)*w:])
				sp.prices[c], sp.owners[c] = r.off.MicroUSD, int32(p)
			}
		}
	}
	ports := make([][]HostPort, sp.cols)
	some := false
	for d, f := range daemons {
		// The daemon's own ports must not keep it away from where it runs.
		bare := *f
		bare.ports = nil
		b := sp.columns(&bare)
		delete(sp.answers, &bare)
		for c := b.next(0); c >= 0; c = b.next(c + 1) {
			for r, q := range demands[d] {
				sp.room[c*w+r] -= q
			}
			if len(f.ports) > 0 {
				ports[c] = append(ports[c], f.ports...)
				some = true
			}
		}
	}
	if some {
		sp.ports = ports
	}
}

// locate returns the pool, variant and row of a column.
func (sp *space) locate(c int) (*poolSpace, variant, row) {
	ps := &sp.pools[sp.owners[c]]
	at, n := c-ps.first, len(ps.table.rows)
	return ps, ps.variants[at/n], ps.table.rows[at%n]
}

// rowOf returns a column's type and offering.
func (sp *space) rowOf(c int32) row {
	ps := &sp.pools[sp.owners[c]]
	return ps.table.rows[(int(c)-ps.first)%len(ps.table.rows)]
}

// poolOf returns the number of a column's pool.
func (sp *space) poolOf(c int) int32 { return sp.owners[c] }

// price returns a column's price per hour in millionths of a dollar.
func (sp *space) price(c int) int64 { return sp.prices[c] }

// at returns the column's room.
func (sp *space) at(c int) []int64 { return sp.room[c*sp.width : (c+1)*sp.width] }
