package difftest

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"
	"golang.org/x/tools/txtar"

	"github.com/coppice-dev/coppice/schemas"
)

// definitions evaluates the CUE definition of each kind, by apiVersion and kind.
func definitions(t testing.TB) (*cue.Context, map[string]cue.Value) {
	t.Helper()
	archive := &txtar.Archive{Files: []txtar.File{{
		Name: "cue.mod/module.cue",
		Data: fmt.Appendf(nil, "module: \"%s@v0\"\nlanguage: version: \"v0.17.0\"\n", schemas.CUEModule),
	}}}
	tree := schemas.CUE()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := txtar.FS(archive)
	if err != nil {
		t.Fatal(err)
	}
	ctx := cuecontext.New()
	out := map[string]cue.Value{}
	for _, c := range ours() {
		for _, v := range c.Spec.Versions {
			dir, _, _ := strings.Cut(c.Spec.Group, ".")
			if c.Spec.Group == "karpenter.k8s.aws" {
				dir = "aws"
			}
			inst := load.Instances([]string{"./" + path.Join(dir, v.Name)}, &load.Config{FS: files, Dir: "/", Env: []string{}})[0]
			if inst.Err != nil {
				t.Fatal(errors.Details(inst.Err, nil))
			}
			def := ctx.BuildInstance(inst).LookupPath(cue.MakePath(cue.Def(c.Spec.Names.Kind)))
			if err := def.Err(); err != nil {
				t.Fatal(errors.Details(err, nil))
			}
			out[c.Spec.Group+"/"+v.Name+" "+c.Spec.Names.Kind] = def
		}
	}
	return ctx, out
}

// stricter is a rule that CUE has and the CRDs have not. at names the place of
// the error that it gives, its list indices left out.
type stricter struct {
	why string
	at  func(place string) bool
}

func at(places ...string) func(string) bool {
	return func(place string) bool {
		for _, p := range places {
			if strings.HasSuffix(place, p) {
				return true
			}
		}
		return false
	}
}

func under(places ...string) func(string) bool {
	return func(place string) bool {
		for _, p := range places {
			if strings.Contains(place+".", p+".") {
				return true
			}
		}
		return false
	}
}

// stricterRules lists, in full, what authors may not write though the API server
// would take it.
func stricterRules() []stricter {
	return []stricter{
		{"null is written by leaving the field out", nil},
		{"a field that the schema doesn't have is an error; the API server drops it", nil},
		{"an object has a name of its own: generateName isn't enough", at("metadata.name")},
		{"a namespace has a namespace's name", at("metadata.namespace")},
		{"a schedule has the cron library's syntax", at("budgets.schedule")},
		{"a duration is one that Go can hold", at("consolidateAfter", "expireAfter", "terminationGracePeriod", "budgets.duration")},
		{"NotIn has a value, Exists and DoesNotExist have none, numbers have no sign, and values are label values", under("requirements.values")},
		{"the name in a label's key has at most 63 characters", at("requirements.key")},
		{"keys of a template's labels and annotations are such keys", under("template.metadata.labels", "template.metadata.annotations")},
		{"keys and values of tags have EC2's limits", under("spec.tags")},
		{"an id is the whole id", at("SelectorTerms.id")},
		{"'id' and other exclusive fields aren't combined in any term, where the CRD finds it only if all terms do", under("SelectorTerms.tags", "SelectorTerms.name", "SelectorTerms.ssmParameter")},
		{"a volume's size has a number", at("ebs.volumeSize")},
		{"known fields of the kubelet's configuration are checked", under("spec.kubelet")},
	}
}

// Whatever the CRDs accept, CUE accepts, apart from what stricterRules lists. What
// CUE refuses, the list explains.
func TestCUEAgreesWithTheCRDs(t *testing.T) {
	ctx, defs := definitions(t)
	plain, status := judge(t, ours(), false), judge(t, ours(), true)
	rules := stricterRules()
	used := make([]int, len(rules))
	agreed, both := 0, 0
	for _, c := range corpus(t) {
		j := plain
		if c.status {
			j = status
		}
		verdict := j.Check(c.obj, c.old)
		if !verdict.Accepted() {
			continue
		}
		def, ok := defs[fmt.Sprint(c.obj["apiVersion"], " ", c.obj["kind"])]
		if !ok {
			t.Fatalf("%s: no definition", c.name)
		}
		both++
		err := def.Unify(ctx.Encode(c.obj)).Validate(cue.Concrete(true))
		if err == nil {
			agreed++
			continue
		}
		known := false
		switch {
		case hasNull(c.obj):
			used[0]++
			known = true
		case len(verdict.Pruned) > 0:
			used[1]++
			known = true
		}
		for _, e := range errors.Errors(err) {
			place := placeOf(e)
			for i, r := range rules {
				if r.at != nil && r.at(place) {
					used[i]++
					known = true
				}
			}
		}
		if !known {
			t.Errorf("%s: the CRD accepts what CUE refuses: %s\n%s", c.name, errors.Details(err, nil), show(c.obj))
		}
	}
	for i, r := range rules {
		if used[i] == 0 {
			t.Errorf("no case needs the listed rule: %s", r.why)
		}
	}
	t.Logf("of %d objects that the CRDs accept, CUE accepts %d", both, agreed)
}

func hasNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, e := range v {
			if hasNull(e) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if hasNull(e) {
				return true
			}
		}
	}
	return false
}

// placeOf returns where an error is, without the definition and list indices.
func placeOf(e errors.Error) string {
	var out []string
	for _, p := range e.Path() {
		p = strings.Trim(p, `"`)
		if strings.HasPrefix(p, "#") || strings.Trim(p, "0123456789") == "" {
			continue
		}
		out = append(out, p)
	}
	return strings.Join(out, ".")
}
