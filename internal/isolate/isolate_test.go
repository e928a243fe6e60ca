package isolate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/policies"
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
			everything := cmp.Exporter(func(reflect.Type) bool { return true })
			if d := cmp.Diff(want, got, everything, cmpopts.EquateEmpty()); d != "" {
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
		"shift":   {"an integer of 10^11 bits", files("a.cue", "package cluster\n\nimport \"math/bits\"\n\nx: bits.Lsh(1, 100000000000)\n"), []string{render.CodeConflict, CodeTime, CodeMemory, CodeCrash}},
		"join": {"a terabyte of text", files("a.cue", "package cluster\n\nimport (\"list\", \"strings\")\n\nl: strings.Repeat(\"x\", 1000000)\nx: strings.Join(list.Repeat([l], 1000000), \"\")\n"),
			[]string{CodeTime, CodeMemory}},
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
			var findings diag.List
			used, err := each(context.Background(), c.tree, []string{""}, Options{}, func(r render.Result) { findings = append(findings, r.Findings...) })
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
					// On a machine that does nothing else, that is what passes on the clock too.
					if used > 5*time.Second {
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

// TestOthersAreEvaluated has a cluster among others that the limits are too low for.
func TestOthersAreEvaluated(t *testing.T) {
	const hungry = "package c\n\nimport \"list\"\n\nx: [for a in list.Range(0, 3000, 1) for b in list.Range(0, 3000, 1) {\"\\(a) \\(b)\"}]\n"
	cases := map[string]struct {
		why     string
		options Options
		code    string
		// after is how many findings the cluster after it has.
		after int
	}{
		"memory": {"there is time for the others", Options{Memory: 160 << 20, Time: 20 * time.Second}, CodeMemory, 1},
		"time":   {"its time is that of all", Options{Memory: 4 << 30, Time: time.Second}, CodeTime, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []render.Result
			err := Each(context.Background(), tree(map[string]string{
				"clusters/a/a.cue": "package a\n\nnodePools: a: spec: 5\n",
				"clusters/b/b.cue": hungry,
				"clusters/c/c.cue": "package c\n\nnodePools: a: spec: 5\n",
			}), []string{"a", "b", "c"}, c.options, func(r render.Result) { got = append(got, r) })
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 3 {
				t.Fatalf("%d results", len(got))
			}
			for i, want := range []int{1, 1, c.after} {
				if got[i].Bundle.Cluster != string(rune('a'+i)) || len(got[i].Findings) != want {
					t.Errorf("%s: result %d: %+v", c.why, i, got[i])
				}
			}
			if f := got[1].Findings[0]; f.Code != c.code || f.Pos.File != "clusters/b/b.cue" || strings.Contains(f.Message, "no time was left for c") != (c.after == 0) {
				t.Errorf("finding: %+v", f)
			}
		})
	}
}

// TestLimitsGrow wants limits that a small tree can't use to take the machine down, and
// that a large one isn't refused by.
func TestLimitsGrow(t *testing.T) {
	for why, c := range map[string]struct {
		text   int64
		time   time.Duration
		memory int64
	}{
		"small":                  {2 << 10, 4160 * time.Millisecond, 516 << 20},
		"5,000 pools":            {680 << 10, 58400 * time.Millisecond, 1872 << 20},
		"padded with comments":   {64 << 20, time.Minute, 4 << 30},
		"nothing but the limits": {0, 4 * time.Second, 512 << 20},
	} {
		o, err := Options{}.withDefaults(c.text)
		if err != nil || o.Time != c.time || o.Memory != c.memory {
			t.Errorf("%s: %s and %d MiB, %v", why, o.Time, o.Memory>>20, err)
		}
	}
}

// large is the tree of one cluster with that many pools.
func large(pools int) fs.FS {
	text := "package cluster\n\n#P: {\n\t#class: string\n\tmetadata: labels: \"example.com/team\": \"a\"\n\tspec: {weight: int | *10, limits: cpu: int, template: spec: {\n" +
		"\t\tnodeClassRef: {group: \"karpenter.k8s.aws\", kind: \"EC2NodeClass\", name: #class}\n" +
		"\t\trequirements: [{key: \"kubernetes.io/arch\", operator: \"In\", values: [\"arm64\"]}, {key: \"karpenter.sh/capacity-type\", operator: \"In\", values: [\"spot\", \"on-demand\"]}]\n\t}}\n}\n" +
		"nodeClasses: c: spec: {role: \"r\", amiSelectorTerms: [{alias: \"al2023@latest\"}], subnetSelectorTerms: [{id: \"subnet-1\"}], securityGroupSelectorTerms: [{id: \"sg-1\"}]}\n"
	for i := range pools {
		text += fmt.Sprintf("nodePools: \"pool-%d\": #P & {#class: \"c\", spec: limits: cpu: %d}\n", i, 100+i)
	}
	return tree(map[string]string{"a.cue": text})
}

// TestLargeTree evaluates 2,000 pools of one cluster.
func TestLargeTree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const pools = 2000
	b, findings, err := Render(context.Background(), large(pools), "", Options{})
	if err != nil || len(findings) > 0 || len(b.Objects) != pools+1 {
		t.Errorf("%d objects, %v, findings: %v", len(b.Objects), err, findings)
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

// BenchmarkCheck is all of vet: evaluation in a child, validation, and every rule of the
// library.
func BenchmarkCheck(b *testing.B) {
	check, err := NewEvaluator(Options{Policies: func() policies.Options {
		return policies.Options{At: time.Unix(0, 0), Apply: []string{"all"}}
	}})
	if err != nil {
		b.Fatal(err)
	}
	for _, pools := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			fsys := large(pools)
			for b.Loop() {
				if bundle, _, err := check(context.Background(), fsys, ""); err != nil || len(bundle.Objects) != pools+1 {
					b.Fatal(len(bundle.Objects), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)/float64(pools), "ms/pool")
		})
	}
}

// TestRulesAreBounded has a rule of the tree that never ends: it is stopped like the
// rest of the tree, whether it judges or is only tested, and hides nothing else.
func TestRulesAreBounded(t *testing.T) {
	hostile := tree(map[string]string{
		"a.cue":          "package cluster\n\nnodePools: a: spec: wieght: 1\n",
		"coppice.cue":    "package coppice\n\npolicies: apply: [\"x\"]\n",
		"policies/x.cue": "package policies\n\nimport \"list\"\n\nrules: x: {severity: \"deny\", kind: \"NodePool\", title: \"t\", why: \"w\", help: \"h\", found: [for a in list.Range(0, 100000, 1) for b in list.Range(0, 100000, 1) {path: [], message: \"\\(a) \\(b)\"}]}\n",
	})
	o := Options{Time: time.Second, Policies: func() policies.Options { return policies.Options{At: time.Unix(0, 0)} }}
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	_, found, err := Check(context.Background(), hostile, "", judge, o)
	blamed := func(f diag.Finding) bool {
		return (f.Code == CodeTime || f.Code == CodeMemory) && f.Pos.File == "policies"
	}
	if err != nil || !slices.ContainsFunc(found, blamed) {
		t.Errorf("judging: %v, %v", found, err)
	}
	if !slices.ContainsFunc(found, func(f diag.Finding) bool { return f.Code == render.CodeUnknownField && f.Pos.Line == 3 }) {
		t.Errorf("judging: the misspelt field isn't told: %v", found)
	}
	report, err := Report(context.Background(), hostile, []string{""}, o)
	if err != nil || !slices.ContainsFunc(report.Findings, blamed) {
		t.Errorf("testing: %v, %v", report, err)
	}
}
