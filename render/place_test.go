package render

import (
	"testing"
	"testing/fstest"
)

// TestPlace says where a finding about a whole package stands.
func TestPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		why     string
		files   []string
		cluster string
		want    string
	}{
		"one file":                 {"nothing else can be meant", []string{"fleet.cue"}, "", "fleet.cue"},
		"settings beside it":       {"they are a package of their own", []string{"coppice.cue", "fleet.cue"}, "", "fleet.cue"},
		"several":                  {"it may be any of them", []string{"a.cue", "b.cue"}, "", "."},
		"a cluster's file":         {"nothing else can be meant", []string{"clusters/a/a.cue", "x.cue"}, "a", "clusters/a/a.cue"},
		"a cluster's files":        {"it may be any of them", []string{"clusters/a/a.cue", "clusters/a/b.cue"}, "a", "clusters/a"},
		"a cluster isn't there":    {"it would have to be", []string{"clusters/a/a.cue"}, "b", "clusters"},
		"a file that isn't CUE":    {"it isn't read", []string{"a.cue", "README.md", "x_tool.cue"}, "", "a.cue"},
		"a folder beside the file": {"another package", []string{"a.cue", "pools/b.cue"}, "", "a.cue"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for _, file := range tc.files {
				tree[file] = &fstest.MapFile{Data: []byte("package a\n")}
			}
			if got := Place(tree, tc.cluster); got.File != tc.want || got.Line != 0 {
				t.Errorf("%s: %v, want %s", tc.why, got, tc.want)
			}
		})
	}
}
