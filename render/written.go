package render

import (
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"

	"github.com/coppice-dev/coppice/internal/diag"
)

// written is a field or a list's element in the author's files.
type written struct {
	// field is nil for an element.
	field *ast.Field
	node  ast.Node
	// up is the field or element that it is written in, nil at the top of a file.
	up *written
}

// indexFile makes everything that is written in a file findable by its syntax.
func (e *evaluator) indexFile(f *ast.File) {
	var stack []*written
	top := func() *written {
		if len(stack) == 0 {
			return nil
		}
		return stack[len(stack)-1]
	}
	elements := map[ast.Node]bool{}
	ast.Walk(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			x := &written{field: n, node: n, up: top()}
			e.index[n] = x
			stack = append(stack, x)
			return true
		case *ast.ListLit:
			for _, elt := range n.Elts {
				elements[elt] = true
			}
		}
		if elements[n] {
			x := &written{node: n, up: top()}
			e.index[n] = x
			stack = append(stack, x)
		}
		return true
	}, func(n ast.Node) {
		if x := top(); x != nil && x.node == n {
			stack = stack[:len(stack)-1]
		}
	})
}

// byPattern reports whether a field is matched by a pattern, or is part of one that is.
func (x *written) byPattern() bool {
	for ; x != nil; x = x.up {
		if x.field != nil {
			if _, pattern := x.field.Label.(*ast.ListLit); pattern {
				return true
			}
		}
	}
	return false
}

// placeOf is where something stands; of nothing, nowhere.
func (e *evaluator) placeOf(x *written) place {
	switch {
	case x == nil:
		return place{}
	case x.field == nil:
		return place{value: e.tree.position(x.node.Pos())}
	}
	return place{key: e.tree.position(x.field.Label.Pos()), value: e.tree.position(x.field.Value.Pos())}
}

// containerPlace is the place of a struct or list: a brace or a reference says
// less than the name before it.
func containerPlace(at place) place {
	if at.key.IsValid() {
		at.value = at.key
	}
	return at
}

// sourceOf finds what the author wrote as v. Of several places that set a value it
// takes the best: one that states a value rather than a constraint, names the
// field rather than matching it by a pattern, and stands in the cluster's own
// package; then the first.
func (e *evaluator) sourceOf(v cue.Value) *written {
	if x := e.index[v.Source()]; x != nil {
		return x
	}
	op, parts := v.Expr()
	if op != cue.AndOp {
		if src := v.Source(); src != nil && !foreign(src.Pos().Filename()) {
			return &written{node: src}
		}
		return nil
	}
	best := choice{rank: -1}
	for _, part := range parts {
		x := e.index[part.Source()]
		if x == nil {
			if src := part.Source(); src != nil && src.Pos().IsValid() && !foreign(src.Pos().Filename()) {
				x = &written{node: src}
			} else {
				continue
			}
		}
		rank := e.rank(x)
		if part.IsConcrete() || part.Kind() == cue.BottomKind && part.IncompleteKind() == cue.BottomKind {
			rank += 4
		}
		best = best.or(choice{x, rank, e.placeOf(x).value})
	}
	return best.written
}

// containerOf is sourceOf for a struct or list at path. Taking a struct's conjuncts
// apart costs as much as evaluating it again, so that what its parts are written in
// is looked at first.
func (e *evaluator) containerOf(v cue.Value, path []any, parts []*written) *written {
	if x := e.index[v.Source()]; x != nil {
		return x
	}
	name := ""
	if len(path) > 0 {
		name, _ = path[len(path)-1].(string)
	}
	best := choice{rank: -1}
	for _, part := range parts {
		if part == nil || part.up == nil {
			continue
		}
		x := part.up
		if x.field != nil && name != "" {
			// A struct that is referred to has a name of its own.
			if label, _, err := ast.LabelName(x.field.Label); err == nil && label != name {
				continue
			}
		}
		best = best.or(choice{x, e.rank(x), e.placeOf(x).value})
	}
	if best.written != nil {
		return best.written
	}
	return e.sourceOf(v)
}

// choice is a candidate for the place of a value.
type choice struct {
	*written
	rank int
	at   diag.Position
}

func (c choice) or(d choice) choice {
	if d.rank > c.rank || d.rank == c.rank && d.at.Compare(c.at) < 0 {
		return d
	}
	return c
}

// rank prefers names to patterns, also of what something is written in, and then the
// cluster's own package.
func (e *evaluator) rank(x *written) int {
	rank := 0
	if x.field != nil && !x.byPattern() {
		rank += 2
	}
	file := strings.TrimPrefix(x.node.Pos().Filename(), "/")
	if strings.HasPrefix(file, e.dir+"/") || e.dir == "." && !strings.Contains(file, "/") {
		rank++
	}
	return rank
}
