package pullrequest

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// letters is a tree of files whose lines are letters.
func letters(files map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(text, " ", "\n") + "\n")}
	}
	return out
}

func TestMerge(t *testing.T) {
	type tree = map[string]string
	for name, tt := range map[string]struct {
		why                      string
		base, ours, theirs, want tree
		conflicts                []string
	}{
		"theirs":        {"", tree{"a": "1"}, tree{"a": "1"}, tree{"a": "2"}, tree{"a": "2"}, nil},
		"ours":          {"what the branch has got since isn't undone", tree{"a": "1"}, tree{"a": "2"}, tree{"a": "1"}, tree{"a": "2"}, nil},
		"both add":      {"", tree{}, tree{"a": "1"}, tree{"x/b": "2"}, tree{"a": "1", "x/b": "2"}, nil},
		"one deletes":   {"", tree{"a": "1", "b": "1"}, tree{"b": "1"}, tree{"a": "1", "b": "2"}, tree{"b": "2"}, nil},
		"same":          {"the same change twice is one", tree{"a": "1"}, tree{"a": "2"}, tree{"a": "2"}, tree{"a": "2"}, nil},
		"other places":  {"", tree{"a": "1 2 3 4 5"}, tree{"a": "1 x 3 4 5"}, tree{"a": "1 2 3 y z 5"}, tree{"a": "1 x 3 y z 5"}, nil},
		"both grow":     {"", tree{"a": "1 2 3 4"}, tree{"a": "0 1 2 3 4"}, tree{"a": "1 2 3 4 5 6"}, tree{"a": "0 1 2 3 4 5 6"}, nil},
		"one shrinks":   {"", tree{"a": "1 2 3 4 5 6"}, tree{"a": "1 2 3 6"}, tree{"a": "0 2 3 4 5 6"}, tree{"a": "0 2 3 6"}, nil},
		"same place":    {"theirs is shown", tree{"a": "1 2 3"}, tree{"a": "1 x 3"}, tree{"a": "1 y 3"}, tree{"a": "1 y 3"}, []string{"a"}},
		"next to":       {"neighbours are for people", tree{"a": "1 2 3 4"}, tree{"a": "1 x 3 4"}, tree{"a": "1 2 y 4"}, tree{"a": "1 2 y 4"}, []string{"a"}},
		"edit, delete":  {"", tree{"a": "1", "b": "1"}, tree{"b": "1"}, tree{"a": "2", "b": "1"}, tree{"a": "2", "b": "1"}, []string{"a"}},
		"added by both": {"", tree{}, tree{"a": "1"}, tree{"a": "2"}, tree{"a": "2"}, []string{"a"}},
		"file, folder":  {"one side's file is the other's folder", tree{}, tree{"a": "1", "b/c/d": "1"}, tree{"a/x": "2", "b": "2"}, tree{"a/x": "2", "b": "2"}, []string{"a", "b"}},
		"hidden":        {"", tree{}, tree{".git/x": "1"}, tree{"a": "2"}, tree{"a": "2"}, nil},
	} {
		got, conflicts, err := merge(letters(tt.base), letters(tt.ours), letters(tt.theirs))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tt.conflicts, conflicts); diff != "" {
			t.Errorf("%s (%s): conflicts (-want +got):\n%s", name, tt.why, diff)
		}
		if same, err := equalFiles(letters(tt.want), got); err != nil || !same {
			all, _ := files(got)
			t.Errorf("%s (%s): %q, want %v", name, tt.why, all, tt.want)
		}
		var names []string
		for n := range tt.want {
			names = append(names, n)
		}
		if err := fstest.TestFS(got, names...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
