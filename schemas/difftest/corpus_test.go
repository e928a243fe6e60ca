package difftest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testCase is one object to judge, or one change of an object.
type testCase struct {
	name     string
	obj, old map[string]any
	// status says that status is to be judged as well.
	status bool
	// want is the verdict, where the case states it.
	want *bool
}

// rule has both sides of one rule: changes to a valid object after which it is
// accepted, and such after which it is refused. Changes are separated by ";".
type rule struct {
	name   string
	accept []string
	reject []string
}

// corpus returns every case: the bases, the examples in schemas/testdata, the
// rules' sides, and mutations of all that is accepted.
func corpus(t testing.TB) []testCase {
	t.Helper()
	yes, no := true, false
	var out []testCase
	for _, b := range bases() {
		base := parse(t, b.object)
		out = append(out, testCase{name: b.name, obj: base, want: &yes})
		add := func(r rule, change string, want *bool) {
			obj := clone(base)
			for c := range strings.SplitSeq(change, ";") {
				edit(t, obj, strings.TrimSpace(c))
			}
			c := testCase{name: b.name + ": " + r.name + ": " + change, obj: obj, want: want, status: has(obj, "status")}
			if b.update {
				c.old = base
			}
			out = append(out, c)
		}
		for _, r := range b.rules {
			for _, change := range r.accept {
				add(r, change, &yes)
			}
			for _, change := range r.reject {
				add(r, change, &no)
			}
		}
	}
	for name, obj := range examples(t) {
		out = append(out, testCase{name: name, obj: obj, want: &yes, status: true})
	}
	return append(out, mutations(out)...)
}

// examples returns the objects of Karpenter's kinds in schemas/testdata.
func examples(t testing.TB) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("../testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	out := map[string]map[string]any{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if obj := parse(t, string(text)); !strings.HasPrefix(obj["apiVersion"].(string), "coppice.dev/") {
			out[filepath.Base(f)] = obj
		}
	}
	return out
}
