package isolate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

func TestMain(m *testing.M) {
	if code, ok := Serve(os.Args[1:], os.Stdin, os.Stdout); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const good = `package cluster

nodePools: general: spec: template: spec: {
	nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default"}
	requirements: [{key: "kubernetes.io/arch", operator: "In", values: ["arm64"]}]
	%s
}
`

// TestSameAsInProcess compares with evaluation in this process: whatever a tree
// says, where it is evaluated makes no difference.
func TestSameAsInProcess(t *testing.T) {
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		why     string
		tree    fs.FS
		cluster string
	}{
		"good":    {"a clean tree", tree(map[string]string{"a.cue": fmt.Sprintf(good, "")}), ""},
		"faults":  {"findings cross with all their parts", tree(map[string]string{"a.cue": fmt.Sprintf(good, "wieght: 5, expireAfter: \"1d\"")}), ""},
		"rules":   {"rules are judged here, on positions from there", tree(map[string]string{"a.cue": fmt.Sprintf(good, "taints: [{key: \"a\", effect: \"NoSchedule\", value: 5.0}]")}), ""},
		"broken":  {"what couldn't be evaluated stays known", tree(map[string]string{"a.cue": fmt.Sprintf(good, "expireAfter: string")}), ""},
		"syntax":  {"no objects at all", tree(map[string]string{"a.cue": "package cluster\n{"}), ""},
		"missing": {"no such cluster", tree(map[string]string{"clusters/a/a.cue": "package a"}), "b"},
		"embedded": {"files that are embedded are passed on", tree(map[string]string{
			"a.cue":          "@extern(embed)\npackage cluster\n\nnodePools: general: _ @embed(file=\"data/pool.json\")\n",
			"data/pool.json": `{"spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"group": "a", "kind": "b", "name": "c"}}}}}`,
		}), ""},
		"example": {"a tree on disk", os.DirFS("../../examples/single-cluster"), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want, wantFindings := render.Check(c.tree, c.cluster, judge)
			got, findings, err := Check(context.Background(), c.tree, c.cluster, judge, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(wantFindings, findings); d != "" {
				t.Errorf("findings (-in process +isolated):\n%s", d)
			}
			a, err := want.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			b, err := got.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(a), string(b)); d != "" {
				t.Errorf("bundle (-in process +isolated):\n%s", d)
			}
		})
	}
}

// doubled returns n lines each of which has twice the size of the one before.
func doubled(first, next string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package cluster\n\n"+first+"\n", 0)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, strings.ReplaceAll(next, "PREV", fmt.Sprint(i-1))+"\n", i)
	}
	return b.String()
}

// TestHostile evaluates trees that want to take the machine down. Each ends
// within five seconds of work, with a finding.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("each case may take seconds")
	}
	disjunctions := "package cluster\n\n"
	for i := range 16 {
		disjunctions += fmt.Sprintf("x: {a%d: 1} | {b%d: 1} | {c%d: 1}\n", i, i, i)
	}
	link := tree(map[string]string{"a.cue": "@extern(embed)\npackage cluster\n\nx: _ @embed(file=\"secret.json\")\n"})
	link["secret.json"] = &fstest.MapFile{Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}
	linkedFile := tree(map[string]string{"b.cue": "package cluster\n"})
	linkedFile["a.cue"] = &fstest.MapFile{Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}
	files := func(name, text string) fs.FS { return tree(map[string]string{name: text}) }

	cases := map[string]struct {
		why  string
		tree fs.FS
		// codes are those that the finding may have: which limit is hit first depends
		// on the machine.
		codes []string
	}{
		"disjunctions": {"3^16 combinations of structs", files("a.cue", disjunctions), []string{CodeTime, CodeMemory}},
		"comprehensions": {"400^3 elements", files("a.cue", "package cluster\n\nimport \"list\"\n\nr: list.Range(0, 400, 1)\nx: [for a in r for b in r for c in r {a + b + c}]\n"),
			[]string{CodeTime, CodeMemory}},
		"range":          {"a list of a billion numbers", files("a.cue", "package cluster\n\nimport \"list\"\n\nx: list.Range(0, 1000000000, 1)\n"), []string{CodeTime, CodeMemory}},
		"doubledStrings": {"a string of 2^40 bytes", files("a.cue", doubled("s%d: \"x\"", "s%d: \"\\(sPREV)\\(sPREV)\"", 40)), []string{CodeTime, CodeMemory}},
		"doubledStructs": {"a tree of 2^26 structs", files("a.cue", doubled("s%d: {x: 1}", "s%d: {a: sPREV, b: sPREV}", 26)+"nodePools: a: spec: s26\n"), []string{render.CodeTooLarge, CodeTime, CodeMemory}},
		"doubledLists":   {"a tree of 2^30 lists", files("a.cue", doubled("s%d: [1]", "s%d: [sPREV, sPREV]", 30)+"nodePools: a: spec: limits: s30\n"), []string{render.CodeTooLarge, CodeTime, CodeMemory}},
		"objects": {"a million objects", files("a.cue", "package cluster\n\nimport \"list\"\n\nfor i in list.Range(0, 1000000, 1) {nodePools: \"p\\(i)\": spec: weight: i}\n"),
			[]string{CodeTime, CodeMemory, CodeSize}},
		"linkedData":  {"data outside of the tree", link, []string{render.CodeTree}},
		"linkedFile":  {"a file of the package that is a link", linkedFile, []string{render.CodeTree}},
		"localModule": {"a module outside of the tree", tree(map[string]string{"a.cue": "package cluster\n", "cue.mod/module.cue": "module: \"a.b@v0\"\nlanguage: version: \"v0.17.0\"\n", "cue.mod/local-module.cue": "deps: \"x.y@v0\": {v: \"v0.0.1\", replaceWith: \"../../etc\"}\n"}), []string{render.CodeModule}},
		"toolExec":    {"a package that runs commands", files("a.cue", "package cluster\n\nimport \"tool/exec\"\n\nx: exec.Run & {cmd: \"id\"}\n"), []string{render.CodeImport}},
		"registry": {"a module from a registry", tree(map[string]string{"a.cue": "package cluster\n\nimport \"evil.example.com/x\"\n\ny: x.y\n", "cue.mod/module.cue": "module: \"a.b@v0\"\nlanguage: version: \"v0.17.0\"\ndeps: \"evil.example.com/x@v0\": v: \"v0.0.1\"\n"}),
			[]string{render.CodeImport}},
		"deepNesting":  {"a hundred thousand braces", files("a.cue", "package cluster\n\nx: "+strings.Repeat("{a: ", 100_000)+"1"+strings.Repeat("}", 100_000)), []string{render.CodeSyntax, CodeCrash, CodeTime, CodeMemory}},
		"deepBrackets": {"a hundred thousand parentheses", files("a.cue", "package cluster\n\nx: "+strings.Repeat("(", 100_000)+"1"+strings.Repeat(")", 100_000)), []string{render.CodeSyntax, CodeCrash, CodeTime, CodeMemory}},
		"hugeFile":     {"50 MB of CUE", tree(map[string]string{"a.cue": "package cluster\n", "b.cue": "package cluster\n//" + strings.Repeat("x", 50_000_000)}), []string{render.CodeTree}},
		"cycle": {"packages that import each other", tree(map[string]string{
			"cue.mod/module.cue": "module: \"a.b@v0\"\nlanguage: version: \"v0.17.0\"\n",
			"a.cue":              "package cluster\n\nimport \"a.b/p\"\n\nx: p.x\n",
			"p/p.cue":            "package p\n\nimport \"a.b/q\"\n\nx: q.x\n",
			"q/q.cue":            "package q\n\nimport \"a.b/p\"\n\nx: p.x\n",
		}), []string{render.CodeImport}},
		"submodule": {"a package that isn't part of the commit", tree(map[string]string{
			".gitmodules":        "[submodule \"lib\"]\n\tpath = lib\n\turl = https://example.com/lib\n",
			"cue.mod/module.cue": "module: \"a.b@v0\"\nlanguage: version: \"v0.17.0\"\n",
			"a.cue":              "package cluster\n\nimport \"a.b/lib\"\n\nx: lib.x\n",
			"lib/lib.cue":        "package lib\n\nx: 1\n",
		}), []string{render.CodeTree}},
		"regexp":  {"a repetition of a repetition", files("a.cue", "package cluster\n\nx: =~\"((a{1,1000}){1,1000}){1,1000}\"\nx: \"b\"\n"), []string{render.CodeSyntax, render.CodeConflict, CodeTime, CodeMemory}},
		"numbers": {"a power with a million digits", files("a.cue", "package cluster\n\nimport \"math\"\n\nx: math.Pow(10, 1000000000)\ny: x * x\n"), []string{render.CodeConflict, CodeTime, CodeMemory, CodeCrash}},
		"manyFiles": {"a tree of 30,000 files", func() fs.FS {
			files := map[string]string{}
			for i := range 30_000 {
				files[fmt.Sprintf("d%d/f%d.cue", i%100, i)] = "package d\n"
			}
			return tree(files)
		}(), []string{CodeSize}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, findings, used, err := evaluate(context.Background(), c.tree, "", Options{})
			took := time.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			if !findings.HasErrors() {
				t.Fatal("no finding")
			}
			for _, f := range findings {
				if f.Severity == diag.Error && f.Pos.IsValid() && f.Help != "" && contains(c.codes, f.Code) {
					t.Logf("%s after %s, %s of work: %s: %s", f.Code, took.Round(time.Millisecond), used.Round(time.Millisecond), f.Pos, f.Message)
					// On a machine that does nothing else, the two are the same.
					if used > 5*time.Second || took > 15*time.Second {
						t.Errorf("took %s, %s of work", took, used)
					}
					return
				}
			}
			t.Errorf("none of %d findings has one of the codes %v, a position and help; the first: %+v", len(findings), c.codes, findings[0])
		})
	}
}

func contains(codes []string, code string) bool {
	for _, c := range codes {
		if c == code {
			return true
		}
	}
	return false
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped")
	time.AfterFunc(200*time.Millisecond, func() { cancel(stopped) })
	text := "package cluster\n\nimport \"list\"\n\nx: list.Range(0, 1000000000, 1)\n"
	start := time.Now()
	_, _, err := Render(ctx, tree(map[string]string{"a.cue": text}), "", Options{Time: time.Minute, Memory: 4 << 30})
	if !errors.Is(err, stopped) {
		t.Errorf("error %v, want the context's cause", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("ended %s after its start", took)
	}
}

func TestChildSeesNoEnvironment(t *testing.T) {
	t.Setenv("COPPICE_SECRET", "hush")
	text := "package cluster\n\nimport \"tool/os\"\n\nx: os.Getenv & {COPPICE_SECRET: string}\n"
	_, findings, err := Render(context.Background(), tree(map[string]string{"a.cue": text}), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !findings.HasErrors() || strings.Contains(fmt.Sprint(findings), "hush") {
		t.Errorf("findings: %v", findings)
	}
}

func TestProgramThatDoesNotServe(t *testing.T) {
	for why, program := range map[string]string{
		"it doesn't exist":    "/nonexistent/coppice",
		"it prints no answer": "/bin/true",
	} {
		_, _, err := Render(context.Background(), tree(map[string]string{"a.cue": "package cluster\n"}), "", Options{Executable: program})
		if err == nil || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: error %v, want one that names %s", why, err, program)
		}
	}
}

// BenchmarkOverhead compares a good tree of a hundred pools evaluated here and in a
// child.
func BenchmarkOverhead(b *testing.B) {
	text := `package cluster

nodeClasses: default: spec: {
	amiSelectorTerms: [{alias: "al2023@latest"}]
	role: "nodes"
	subnetSelectorTerms: [{id: "subnet-1"}]
	securityGroupSelectorTerms: [{id: "sg-1"}]
}
`
	for i := range 100 {
		text += fmt.Sprintf("nodePools: p%d: spec: template: spec: {nodeClassRef: {group: \"karpenter.k8s.aws\", kind: \"EC2NodeClass\", name: \"default\"}, requirements: []}\n", i)
	}
	fsys := tree(map[string]string{"a.cue": text})
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			if _, findings := render.Render(fsys, ""); len(findings) > 0 {
				b.Fatal(findings)
			}
		}
	})
	b.Run("isolated", func(b *testing.B) {
		for b.Loop() {
			if _, findings, err := Render(context.Background(), fsys, "", Options{}); err != nil || len(findings) > 0 {
				b.Fatal(err, findings)
			}
		}
	})
}
