package render_test

import (
	"bytes"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/coppice-dev/coppice/render"
)

// TestBesideRefused has a file that isn't read beside one with a mistake: both are told,
// and nothing is rendered.
func TestBesideRefused(t *testing.T) {
	const mistake = "package cluster\n\nnodePools: a: spec: weight: \"much\"\nnodePools: b: spec: weight: elsewhere\n"
	for name, c := range map[string]struct {
		why   string
		stray fstest.MapFile
		code  string
	}{
		"link":  {"what it leads to may declare anything", fstest.MapFile{Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}, render.CodeTree},
		"large": {"nobody writes as much", fstest.MapFile{Data: slices.Concat([]byte("package cluster\n//"), bytes.Repeat([]byte("x"), 5<<20))}, render.CodeTree},
		"other": {"a package of its own", fstest.MapFile{Data: []byte("package other\n")}, render.CodeNoCluster},
	} {
		t.Run(name, func(t *testing.T) {
			b, found := render.Render(fstest.MapFS{
				"a.cue": {Data: []byte(mistake)}, "b.cue": &c.stray, "c.cue": {Data: []byte("package cluster\n")},
			}, "")
			var codes []string
			for _, f := range found {
				codes = append(codes, f.Code)
			}
			if !slices.Contains(codes, c.code) || !slices.Contains(codes, render.CodeType) {
				t.Errorf("%s: found %v", c.why, found)
			}
			if slices.Contains(codes, render.CodeConflict) || !found.HasErrors() || len(b.Objects) > 0 {
				t.Errorf("%s: %d objects, found %v", c.why, len(b.Objects), found)
			}
		})
	}
	if _, found := render.Render(fstest.MapFS{"a.cue": {Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}}, ""); len(found) != 1 || found[0].Code != render.CodeTree {
		t.Errorf("a link alone: %v", found)
	}
}
