package pack

import (
	"fmt"
	"slices"
	"strconv"
)

// Operator relates a label's value to a requirement's values.
type Operator uint8

// Operators. The four that compare take one value, an integer.
const (
	In Operator = iota
	NotIn
	Exists
	DoesNotExist
	Gt
	Lt
	Gte
	Lte
)

var operatorNames = [...]string{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"}

// String returns the operator's name as the Kubernetes API spells it.
func (o Operator) String() string {
	if int(o) < len(operatorNames) {
		return operatorNames[o]
	}
	return fmt.Sprintf("operator(%d)", uint8(o))
}

// ParseOperator is the inverse of String.
func ParseOperator(name string) (Operator, error) {
	if i := slices.Index(operatorNames[:], name); i >= 0 {
		return Operator(i), nil
	}
	return 0, fmt.Errorf("unknown operator %q", name)
}

// Requirement bounds the value of one label.
type Requirement struct {
	Key      string
	Operator Operator
	Values   []string
	// MinValues, if more than zero, asks a new node to keep instance types with at
	// least so many distinct values of the key. It has a meaning in pools alone.
	MinValues int
}

// Set is the set of outcomes that a requirement, or several for one key, allow
// for a label: any of the values, and absent, are outcomes.
//
// Every set has one of four forms, and intersection never leaves them:
//
//	finite        the values listed                     In
//	absent        the label is absent                   DoesNotExist
//	cofinite      all values but those listed,          Exists, Gt, Lt, Gte, Lte
//	              integers between bounds if bounded
//	open          absent, or all values but those       NotIn
//	              listed
//
// The zero Set is the empty one.
type Set struct {
	// complement means that values lists what is excluded.
	complement bool
	// absent means that the label may be absent.
	absent bool
	// bounded means that only integers from lo to hi are in. It comes with
	// complement alone; a finite set has been filtered.
	bounded bool
	lo, hi  int64
	// values are sorted and distinct.
	values []string
}

// Bounds of a comparison on one side only.
const (
	minInt = -1 << 63
	maxInt = 1<<63 - 1
)

// Anything is the set of all outcomes.
func Anything() Set { return Set{complement: true, absent: true} }

// Absent is the set whose one outcome is that the label is absent.
func Absent() Set { return Set{absent: true} }

// OneOf is the set of the given values.
func OneOf(values ...string) Set {
	values = slices.Clone(values)
	slices.Sort(values)
	return Set{values: slices.Compact(values)}
}

// Set returns the outcomes that the requirement allows. A comparison with
// something other than one integer allows nothing.
func (r Requirement) Set() Set {
	switch r.Operator {
	case In:
		return OneOf(r.Values...)
	case NotIn:
		s := OneOf(r.Values...)
		s.complement, s.absent = true, true
		return s
	case Exists:
		return Set{complement: true}
	case DoesNotExist:
		return Absent()
	}
	if len(r.Values) != 1 {
		return Set{}
	}
	n, err := strconv.ParseInt(r.Values[0], 10, 64)
	if err != nil {
		return Set{}
	}
	s := Set{complement: true, bounded: true, lo: minInt, hi: maxInt}
	switch r.Operator {
	case Gt:
		if n == maxInt {
			return Set{}
		}
		s.lo = n + 1
	case Lt:
		if n == minInt {
			return Set{}
		}
		s.hi = n - 1
	case Gte:
		s.lo = n
	case Lte:
		s.hi = n
	default:
		return Set{}
	}
	return s
}

// Has reports whether a label with the value is allowed. Any spelling that
// parses as a decimal integer counts as one, as for the scheduler.
func (s Set) Has(value string) bool {
	_, listed := slices.BinarySearch(s.values, value)
	if !s.complement {
		return listed
	}
	return !listed && s.inBounds(value)
}

func (s Set) inBounds(value string) bool {
	if !s.bounded {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && s.lo <= n && n <= s.hi
}

// HasAbsent reports whether the label may be absent.
func (s Set) HasAbsent() bool { return s.absent }

// Empty reports whether no outcome is allowed. Between bounds only integers in
// their shortest spelling count.
func (s Set) Empty() bool {
	if s.absent {
		return false
	}
	if !s.complement {
		return len(s.values) == 0
	}
	if !s.bounded {
		return false
	}
	if s.lo > s.hi {
		return true
	}
	// As unsigned numbers, because the width of the bounds can exceed an int64.
	width := uint64(s.hi) - uint64(s.lo)
	if width >= uint64(len(s.values)) {
		return false
	}
	for i := uint64(0); i <= width; i++ {
		if _, out := slices.BinarySearch(s.values, strconv.FormatInt(int64(uint64(s.lo)+i), 10)); !out {
			return false
		}
	}
	return true
}

// Intersect returns the outcomes that both sets allow.
func (s Set) Intersect(t Set) Set {
	out := Set{absent: s.absent && t.absent}
	switch {
	case s.complement && t.complement:
		out.complement = true
		out.values = union(s.values, t.values)
		out.bounded = s.bounded || t.bounded
		if out.bounded {
			out.lo, out.hi = minInt, maxInt
			for _, b := range [...]Set{s, t} {
				if b.bounded {
					out.lo, out.hi = max(out.lo, b.lo), min(out.hi, b.hi)
				}
			}
		}
		if out.Empty() {
			return Set{}
		}
		return out
	case t.complement:
		out.values = sift(s.values, t.Has)
	default:
		out.values = sift(t.values, s.Has)
	}
	return out
}

// union merges two sorted lists.
func union(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

// sift returns the values that keep allows, sharing the list when it can.
func sift(values []string, keep func(string) bool) []string {
	for i, v := range values {
		if !keep(v) {
			out := slices.Clone(values[:i])
			for _, v := range values[i+1:] {
				if keep(v) {
					out = append(out, v)
				}
			}
			return out
		}
	}
	return values
}

// Values returns the values of a finite set, and false for any other. An absent
// set has none.
func (s Set) Values() ([]string, bool) { return s.values, !s.complement }

// Equal reports whether both sets allow the same outcomes.
func (s Set) Equal(t Set) bool {
	if s.Empty() || t.Empty() {
		return s.Empty() == t.Empty()
	}
	return s.complement == t.complement && s.absent == t.absent && s.bounded == t.bounded &&
		s.lo == t.lo && s.hi == t.hi && slices.Equal(s.values, t.values)
}

// Within reports whether every outcome of s is allowed by t.
func (s Set) Within(t Set) bool { return s.Intersect(t).Equal(s) }

// Example returns a value that the set allows: the first of a finite set, the
// least integer between bounds, else a small integer that is not excluded. It
// returns false if the label can only be absent.
func (s Set) Example() (string, bool) {
	if !s.complement {
		if len(s.values) == 0 {
			return "", false
		}
		return s.values[0], true
	}
	from, to := int64(0), int64(maxInt)
	if s.bounded {
		from, to = s.lo, s.hi
		if from == minInt {
			from = min(0, to)
		}
	}
	for n := from; n <= to; n++ {
		if v := strconv.FormatInt(n, 10); s.Has(v) {
			return v, true
		}
		if n == maxInt {
			break
		}
	}
	return "", false
}

// Requirements writes the set down for a key. It is the inverse of Set and
// Intersect; bounds come as Gte and Lte.
func (s Set) Requirements(key string) []Requirement {
	if !s.complement {
		if s.absent {
			return []Requirement{{Key: key, Operator: DoesNotExist}}
		}
		return []Requirement{{Key: key, Operator: In, Values: slices.Clone(s.values)}}
	}
	var out []Requirement
	switch {
	case len(s.values) > 0:
		if !s.absent && !s.bounded {
			out = append(out, Requirement{Key: key, Operator: Exists})
		}
		out = append(out, Requirement{Key: key, Operator: NotIn, Values: slices.Clone(s.values)})
	case s.absent:
		return nil
	case !s.bounded:
		return []Requirement{{Key: key, Operator: Exists}}
	}
	if s.bounded && (s.lo != minInt || s.hi == maxInt) {
		out = append(out, Requirement{Key: key, Operator: Gte, Values: []string{strconv.FormatInt(s.lo, 10)}})
	}
	if s.bounded && s.hi != maxInt {
		out = append(out, Requirement{Key: key, Operator: Lte, Values: []string{strconv.FormatInt(s.hi, 10)}})
	}
	return out
}
