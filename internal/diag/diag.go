// Package diag holds findings: what is wrong or worth knowing about text that
// somebody wrote, where it stands, and what to do about it.
//
// A finding is a value. Everything that judges authored input (CUE evaluation,
// the CRD's schema and CEL rules, policies) returns a List; only a renderer
// turns a List into text. A List reaches a renderer through Sorted, so that the
// same input gives the same bytes whatever order its parts were judged in.
//
// The package imports the standard library alone, so that every other package
// may import it.
package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a finding stops a change.
type Severity uint8

const (
	// Error stops a change: the object would be refused, or is denied by policy.
	Error Severity = iota
	// Warning lets a change pass, but somebody should look at it.
	Warning
	// Info explains; nobody has to act.
	Info
)

// String returns the lower-case name that every renderer uses.
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	case Info:
		return "info"
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// Position is a place in a file. Line and Col count from 1, Col in bytes; the
// zero Position means that the place is unknown. File is relative to the tree
// that was read and uses forward slashes on every system.
type Position struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Col  int    `json:"col,omitempty"`
}

// IsValid reports whether p names a file.
func (p Position) IsValid() bool { return p.File != "" }

// String formats p as file:line:col, leaving out what is unknown.
func (p Position) String() string {
	switch {
	case p.File == "":
		return "-"
	case p.Line == 0:
		return p.File
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Compare orders positions by file, line and column.
func (p Position) Compare(q Position) int {
	return cmp.Or(
		strings.Compare(p.File, q.File),
		cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.Col, q.Col),
	)
}

// Related is a second place that a finding refers to: the schema's line that a
// value breaks, or the other of two conflicting values.
type Related struct {
	Pos     Position `json:"pos"`
	Message string   `json:"message"`
}

// Finding is one thing to tell an author.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code is stable across releases and unique to a rule, as in "CUE001".
	Code string `json:"code"`
	// Message is one line that says what is wrong, without the position.
	Message string `json:"message"`
	// Pos is where the author wrote the value, or the nearest enclosing place.
	Pos Position `json:"pos"`
	// Object names what the finding is about, as in "NodePool/general".
	Object string `json:"object,omitempty"`
	// Cluster is the cluster of the object, where a tree has several.
	Cluster string `json:"cluster,omitempty"`
	// Path is the field inside the object, as in "spec.template.spec.taints[0].key".
	Path string `json:"path,omitempty"`
	// Help says what to do next, as a full clause.
	Help string `json:"help,omitempty"`
	// Related holds further places in the order in which they should be read.
	Related []Related `json:"related,omitempty"`
}

// about says what the finding is about: the object, the field and the cluster.
func (f Finding) about() string {
	about := strings.TrimSpace(f.Object + " " + f.Path)
	if f.Cluster != "" {
		about += " in " + f.Cluster
	}
	return about
}

// Rule describes what findings of one code have in common.
type Rule struct {
	// Title is what the code means, or what holds where the rule is kept.
	Title string `json:"title,omitempty"`
	// Why says at more length what is bad about it.
	Why string `json:"why,omitempty"`
	// Help says what to do about it.
	Help string `json:"help,omitempty"`
	// URI is the page that documents it.
	URI string `json:"uri,omitempty"`
}

// List is a set of findings. Its methods never change the receiver.
type List []Finding

// HasErrors reports whether any finding stops a change.
func (l List) HasErrors() bool {
	return slices.ContainsFunc(l, func(f Finding) bool { return f.Severity == Error })
}

// Count returns how many findings have severity s.
func (l List) Count(s Severity) int {
	n := 0
	for _, f := range l {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// Sorted returns the findings in reading order (file, line, column, severity,
// object, path, code, message, cluster) with exact repeats of one rule at one place removed.
func (l List) Sorted() List {
	out := slices.Clone(l)
	slices.SortStableFunc(out, compare)
	return slices.CompactFunc(out, func(a, b Finding) bool { return compare(a, b) == 0 })
}

func compare(a, b Finding) int {
	return cmp.Or(
		a.Pos.Compare(b.Pos),
		cmp.Compare(a.Severity, b.Severity),
		strings.Compare(a.Object, b.Object),
		strings.Compare(a.Path, b.Path),
		strings.Compare(a.Code, b.Code),
		strings.Compare(a.Message, b.Message),
		strings.Compare(a.Cluster, b.Cluster),
	)
}
