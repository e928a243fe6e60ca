package render

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"cuelang.org/go/cue"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
)

// trees returns the trees of testdata by name, with the cluster to render.
func trees(t *testing.T) map[string]struct {
	fsys    fstest.MapFS
	cluster string
} {
	t.Helper()
	paths, err := filepath.Glob("testdata/trees/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]struct {
		fsys    fstest.MapFS
		cluster string
	}{}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(a.Comment), "\n")
		cluster, _ := strings.CutPrefix(first, "cluster: ")
		if cluster == first {
			cluster = ""
		}
		out[path] = struct {
			fsys    fstest.MapFS
			cluster string
		}{archiveFS(a), cluster}
	}
	return out
}

// TestSameEachTime renders every tree several times: neither the order of maps nor
// that of goroutines may show.
func TestSameEachTime(t *testing.T) {
	judge := newJudge(t)
	for name, tree := range trees(t) {
		first, findings := Check(tree.fsys, tree.cluster, judge)
		for range 1 {
			again, found := Check(tree.fsys, tree.cluster, judge)
			if d := cmp.Diff(findings, found); d != "" {
				t.Errorf("%s: findings differ:\n%s", name, d)
			}
			if d := cmp.Diff(first, again, cmp.AllowUnexported(Object{}, place{})); d != "" {
				t.Errorf("%s: objects differ:\n%s", name, d)
			}
		}
	}
}

// TestOrderOfFilesDoesNotShow renders trees whose files are given other names, so
// that CUE reads them in another order. Positions move with the names; what is
// said doesn't change.
func TestOrderOfFilesDoesNotShow(t *testing.T) {
	split := func(names ...string) fstest.MapFS {
		return fstest.MapFS{
			names[0]: {Data: []byte("package cluster\n\nnodePools: b: _base & {spec: weight: 101}\nnodePools: a: _base\n")},
			names[1]: {Data: []byte("package cluster\n\n_base: spec: template: spec: {nodeClassRef: {group: \"a\", kind: \"b\", name: \"c\"}, requirements: []}\n")},
			names[2]: {Data: []byte("package cluster\n\nnodePools: c: _base & {spec: {weight: 5, wieght: 6}}\n")},
		}
	}
	said := func(l diag.List) []string {
		var out []string
		for _, f := range l {
			out = append(out, f.Object+" "+f.Path+" "+f.Code+" "+f.Message)
		}
		slices.Sort(out)
		return out
	}
	judge := newJudge(t)
	first, findings := Check(split("1.cue", "2.cue", "3.cue"), "", judge)
	want, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"3.cue", "2.cue", "1.cue"}, {"2.cue", "3.cue", "1.cue"}} {
		bundle, found := Check(split(names...), "", judge)
		got, err := bundle.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%v: objects differ:\n%s", names, d)
		}
		if d := cmp.Diff(said(findings), said(found)); d != "" {
			t.Errorf("%v: findings differ:\n%s", names, d)
		}
	}
}

// TestChecksMissNothing compares the check, which takes definitions apart and skips
// what it can, with CUE's own verdict on whole objects: they must agree on which
// objects are good. The objects are those of all trees, and each of them with each
// of its fields left out, emptied, and replaced in turn.
func TestChecksMissNothing(t *testing.T) {
	c, err := newChecker(schemas.CUE())
	if err != nil {
		t.Fatal(err)
	}
	good, bad := 0, 0
	judge := func(o Object) {
		s := c.shapes[o.GVK.String()]
		want := s.full.Unify(c.ctx.Encode(o.Value)).Validate(cue.Concrete(true)) == nil
		found := c.check(o).findings // Warnings are of what CUE accepts.
		if want == found.HasErrors() {
			t.Errorf("%s: CUE accepts: %t, the check finds:\n%s%v", o.ID(), want, describe(found), o.Value)
		}
		if want {
			good++
		} else {
			bad++
		}
	}
	seen := map[string]bool{}
	for _, tree := range trees(t) {
		bundle, _ := Render(tree.fsys, tree.cluster)
		for _, o := range bundle.Objects {
			if len(o.broken) > 0 || seen[o.ID()] {
				continue
			}
			seen[o.ID()] = true
			judge(o)
			for _, v := range variants(o.Value) {
				o.Value = v.(map[string]any)
				judge(o)
			}
		}
	}
	if good < 50 || bad < 200 {
		t.Errorf("only %d good and %d bad objects were compared", good, bad)
	}
}

// variants returns copies of a JSON tree, each with one part changed.
func variants(v any) []any {
	var out []any
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			with := func(x any) {
				c := maps.Clone(v)
				c[name] = x
				out = append(out, c)
			}
			for _, x := range variants(v[name]) {
				with(x)
			}
			for _, x := range []any{"x", int64(7), map[string]any{}, []any{}} {
				with(x)
			}
			less := maps.Clone(v)
			delete(less, name)
			out = append(out, less)
		}
		more := maps.Clone(v)
		more["unheardOf"] = true
		out = append(out, more)
	case []any:
		for i := range v {
			for _, x := range variants(v[i]) {
				c := slices.Clone(v)
				c[i] = x
				out = append(out, c)
			}
			out = append(out, slices.Delete(slices.Clone(v), i, i+1))
		}
	}
	return out
}
