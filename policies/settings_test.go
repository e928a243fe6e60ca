package policies

import (
	"testing"
	"testing/fstest"

	"github.com/coppice-dev/coppice/render"
)

// TestDeletes writes deletions in forms that the controller refuses the commit for.
func TestDeletes(t *testing.T) {
	for name, c := range map[string]struct {
		why, deletes string
		line         int
	}{
		"right":    {"what is read", "[\n\"NodePool/a\",\n\"prod/NodePool/b\"]", 0},
		"name":     {"it says no kind", "[\n\"batch\"]", 4},
		"computed": {"nothing is evaluated", "[\n\"NodePool/a\",\n\"NodePool/\" + \"b\"]", 5},
		"text":     {"no list", "\"NodePool/a\"", 3},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{"coppice.cue": {Data: []byte("package coppice\n\ndeletes: " + c.deletes + "\n")}}
			found := New(tree, Options{At: at()}).Check(render.Bundle{}, nil)
			if c.line == 0 {
				if len(found) > 0 {
					t.Errorf("%s: %v", c.why, found)
				}
				return
			}
			if len(found) != 1 || found[0].Code != CodeSettings || found[0].Pos.Line != c.line || found[0].Help == "" {
				t.Errorf("%s: %v", c.why, found)
			}
		})
	}
}
