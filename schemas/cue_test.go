package schemas_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/load"
	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
	"golang.org/x/tools/txtar"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas"
)

// cueModule evaluates the embedded CUE module.
type cueModule struct {
	t   testing.TB
	ctx *cue.Context
	fs  fs.FS
	// crds say where the definition of a kind is.
	crds []*apiextensionsv1.CustomResourceDefinition
	// packages by folder.
	packages map[string]cue.Value
}

// newCUE loads the module, with further files of the form folder/name.cue.
func newCUE(t testing.TB, files ...txtar.File) *cueModule {
	t.Helper()
	a := &txtar.Archive{Files: files}
	a.Files = append(a.Files, txtar.File{
		Name: "cue.mod/module.cue",
		Data: fmt.Appendf(nil, "module: \"%s@v0\"\nlanguage: version: \"v0.17.0\"\n", schemas.CUEModule),
	})
	tree := schemas.CUE()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		a.Files = append(a.Files, txtar.File{Name: name, Data: text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := txtar.FS(a)
	if err != nil {
		t.Fatal(err)
	}
	return &cueModule{t: t, ctx: cuecontext.New(), fs: all, crds: schemas.CRDs(), packages: map[string]cue.Value{}}
}

func (m *cueModule) pkg(dir string) cue.Value {
	m.t.Helper()
	if v, ok := m.packages[dir]; ok {
		return v
	}
	inst := load.Instances([]string{"./" + dir}, &load.Config{FS: m.fs, Dir: "/", Env: []string{}})[0]
	if inst.Err != nil {
		m.t.Fatal(errors.Details(inst.Err, nil))
	}
	v := m.ctx.BuildInstance(inst)
	if err := v.Err(); err != nil {
		m.t.Fatal(errors.Details(err, nil))
	}
	m.packages[dir] = v
	return v
}

// definition returns the definition of an object's kind.
func (m *cueModule) definition(obj map[string]any) cue.Value {
	m.t.Helper()
	for _, c := range m.crds {
		for _, v := range c.Spec.Versions {
			if obj["apiVersion"] != c.Spec.Group+"/"+v.Name || obj["kind"] != c.Spec.Names.Kind {
				continue
			}
			dir, _, _ := strings.Cut(c.Spec.Group, ".")
			if c.Spec.Group == "karpenter.k8s.aws" {
				dir = "aws"
			}
			return m.pkg(path.Join(dir, v.Name)).LookupPath(cue.MakePath(cue.Def(c.Spec.Names.Kind)))
		}
	}
	m.t.Fatalf("no definition for %v %v", obj["apiVersion"], obj["kind"])
	return cue.Value{}
}

// check judges an object by the definition of its kind.
func (m *cueModule) check(obj map[string]any) error {
	m.t.Helper()
	return m.definition(obj).Unify(m.ctx.Encode(obj)).Validate(cue.Concrete(true))
}

func TestCUEAcceptsExamplesAndAddsNothing(t *testing.T) {
	m := newCUE(t)
	for name, obj := range examples(t) {
		v := m.definition(obj).Unify(m.ctx.Encode(obj))
		if err := v.Validate(cue.Concrete(true)); err != nil {
			t.Errorf("%s: %s", name, errors.Details(err, nil))
			continue
		}
		text, err := v.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(obj, decode(t, text)); diff != "" {
			t.Errorf("%s: CUE changed the object (-before +after):\n%s", name, diff)
		}
	}
}

// A field that no CRD has is an error, wherever it is.
func TestCUEDefinitionsAreClosed(t *testing.T) {
	m := newCUE(t)
	for name, obj := range examples(t) {
		delete(obj, "status")
		for _, at := range structs(m.definition(obj), obj, nil) {
			changed := clone(obj)
			at.of(changed)["misspelt"] = "x"
			if m.check(changed) == nil {
				t.Errorf("%s: a misspelt field in %v is accepted", name, at)
			}
		}
	}
}

// Tools that explain a definition look into it without a value: every place must
// say what kind of value it takes. Fields that may never be there are errors.
func TestCUEDefinitionsCanBeExplored(t *testing.T) {
	m := newCUE(t)
	var visit func(v cue.Value, at string)
	visit = func(v cue.Value, at string) {
		switch v.IncompleteKind() {
		case cue.BottomKind:
			t.Errorf("%s is an error: %v", at, v.Err())
		case cue.StructKind:
			fields, err := v.Fields(cue.Optional(true))
			if err != nil {
				t.Errorf("the fields of %s: %v", at, err)
				return
			}
			for fields.Next() {
				if fields.Value().IncompleteKind() == cue.BottomKind && isForbidden(fields.Value()) {
					continue
				}
				visit(fields.Value(), at+"."+fields.Selector().String())
			}
		case cue.ListKind:
			if item := v.LookupPath(cue.MakePath(cue.AnyIndex)); item.Exists() {
				visit(item, at+"[]")
			}
		}
	}
	for name, obj := range examples(t) {
		visit(m.definition(obj), name)
	}
}

// isForbidden reports whether a definition says that a field can't be there.
func isForbidden(v cue.Value) bool {
	text := fmt.Sprint(v.Err())
	return slices.ContainsFunc([]string{"is set by", "can't have an empty key", "set the taints of the NodePool"}, func(s string) bool {
		return strings.Contains(text, s)
	})
}

type place []any

func (p place) of(obj map[string]any) map[string]any {
	var at any = obj
	for _, e := range p {
		switch e := e.(type) {
		case string:
			at = at.(map[string]any)[e]
		case int:
			at = at.([]any)[e]
		}
	}
	return at.(map[string]any)
}

// structs lists the places of obj where the definition names the fields.
func structs(def cue.Value, v any, at place) []place {
	var out []place
	switch v := v.(type) {
	case map[string]any:
		open := def.LookupPath(cue.MakePath(cue.AnyString)).Exists() || def.Allows(cue.Str("misspelt"))
		if !open {
			out = append(out, slices.Clone(at))
		}
		for k, e := range v {
			for _, s := range []cue.Selector{cue.Str(k), cue.Str(k).Optional(), cue.Str(k).Required()} {
				if f := def.LookupPath(cue.MakePath(s)); f.Exists() {
					out = append(out, structs(f, e, append(slices.Clone(at), k))...)
					break
				}
			}
		}
	case []any:
		for i, e := range v {
			out = append(out, structs(def.LookupPath(cue.MakePath(cue.AnyIndex)), e, append(slices.Clone(at), i))...)
		}
	}
	return out
}

func clone(obj map[string]any) map[string]any {
	text, err := json.Marshal(obj)
	if err != nil {
		panic(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

func TestCUEFilesAreFormatted(t *testing.T) {
	tree := schemas.CUE()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		want, err := format.Source(text)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(string(want), string(text)); diff != "" {
			t.Errorf("%s isn't formatted (-want +got):\n%s", name, diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What CUE says beyond the CRDs, one case for each rule.
func TestCUERules(t *testing.T) {
	m := newCUE(t)
	requirement := m.pkg("karpenter/v1").LookupPath(cue.ParsePath("#Requirement"))
	budget := m.pkg("karpenter/v1").LookupPath(cue.ParsePath("#Budget"))
	labels := m.pkg("karpenter/v1").LookupPath(cue.ParsePath("#NodeLabels"))
	annotations := m.pkg("karpenter/v1").LookupPath(cue.ParsePath("#NodeAnnotations"))
	duration := m.pkg("meta/v1").LookupPath(cue.ParsePath("#DurationOrNever"))
	kubelet := m.pkg("aws/v1").LookupPath(cue.ParsePath("#Kubelet"))
	image := m.pkg("aws/v1").LookupPath(cue.ParsePath("#AMISelectorTerm"))
	subnet := m.pkg("aws/v1").LookupPath(cue.ParsePath("#SubnetSelectorTerm"))
	group := m.pkg("aws/v1").LookupPath(cue.ParsePath("#SecurityGroupSelectorTerm"))
	class := m.pkg("aws/v1").LookupPath(cue.MakePath(cue.Def("EC2NodeClass"), cue.Str("spec").Optional()))
	name := m.pkg("meta/v1").LookupPath(cue.MakePath(cue.Def("ObjectMeta"), cue.Str("name").Required()))
	options := m.pkg("karpenter/v1").LookupPath(cue.ParsePath("#Options"))
	for _, tc := range []struct {
		def   cue.Value
		value string
		// at is where the first error is; "" means that the value is accepted.
		at string
	}{
		{requirement, `{key: a, operator: In, values: [b]}`, ""},
		{requirement, `{key: a, operator: In}`, "values"},
		{requirement, `{key: a, operator: In, values: []}`, "values"},
		{requirement, `{key: a, operator: NotIn, values: []}`, "values"},
		{requirement, `{key: a, operator: Exists}`, ""},
		{requirement, `{key: a, operator: Exists, values: []}`, ""},
		{requirement, `{key: a, operator: Exists, values: [b]}`, "values"},
		{requirement, `{key: a, operator: DoesNotExist, values: [b]}`, "values"},
		{requirement, `{key: a, operator: Gt, values: ["3"]}`, ""},
		{requirement, `{key: a, operator: Gt, values: ["-3"]}`, "values"},
		{requirement, `{key: a, operator: Lte, values: ["3", "4"]}`, "values"},
		{requirement, `{key: a, operator: Lt}`, "values"},
		{requirement, `{key: a, operator: In, values: [b, c], minValues: 2}`, ""},
		{requirement, `{key: a, operator: In, values: [b, c], minValues: 3}`, "minValues"},
		{requirement, `{key: a, operator: In, values: ["b c"]}`, "values.0"},
		{requirement, `{key: a b, operator: Exists}`, "key"},
		{requirement, `{key: example.com/` + strings.Repeat("a", 63) + `, operator: Exists}`, ""},
		{requirement, `{key: example.com/` + strings.Repeat("a", 64) + `, operator: Exists}`, "key"},
		{requirement, `{key: kubernetes.io/hostname, operator: Exists}`, "key"},
		{requirement, `{key: sub.karpenter.sh/x, operator: Exists}`, "key"},
		{requirement, `{key: karpenter.sh/capacity-type, operator: In, values: [on_demand]}`, "values.0"},
		{requirement, `{key: kubernetes.io/arch, operator: NotIn, values: [x86_64]}`, "values.0"},
		{requirement, `{key: kubernetes.io/os, operator: In, values: [Linux]}`, "values.0"},

		{budget, `{nodes: "0", schedule: "@daily", duration: 8h}`, ""},
		{budget, `{nodes: "0", schedule: "@daily"}`, "duration"},
		{budget, `{nodes: "0", duration: 8h}`, "schedule"},
		{budget, `{nodes: "0", schedule: "0 9 * * 7", duration: 8h}`, "schedule"},
		{budget, `{nodes: "0", schedule: "@daily", duration: 9999999999h}`, "duration"},

		{duration, `Never`, ""},
		{duration, `1h30m`, ""},
		{duration, `never`, "."},
		{duration, `99999999999h`, "."},

		{labels, `{a: b, example.com/c: d, karpenter.k8s.aws/instance-family: m7i}`, ""},
		{labels, `{"a b": c}`, "a b"},
		{labels, `{karpenter.sh/nodepool: x}`, "karpenter.sh/nodepool"},
		{labels, `{karpenter.sh/other: x}`, "karpenter.sh/other"},
		{labels, `{kubernetes.io/hostname: x}`, "kubernetes.io/hostname"},
		{annotations, `{Example.com/a: any text}`, ""},
		{annotations, `{a/b/c: x}`, "a/b/c"},

		{image, `{alias: al2023@v20250116}`, ""},
		{image, `{alias: windows2022@latest}`, ""},
		{image, `{alias: windows2022@1.2}`, "alias"},
		{image, `{alias: al2023@latest, tags: {a: b}}`, "tags"},
		{image, `{id: ami-1, name: x}`, "name"},
		{image, `{id: xami-1}`, "id"},
		{subnet, `{id: subnet-1}`, ""},
		{subnet, `{id: subnet-1, tags: {a: b}}`, "tags"},
		{group, `{name: x}`, ""},
		{group, `{name: x, tags: {a: b}}`, "tags"},
		{group, `{id: sg-1, name: x}`, "name"},
		{class, `{amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: a, instanceProfile: b}`, "instanceProfile"},
		{class, `{amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: a, tags: {aws:x: b}}`, "tags.aws:x"},
		{class, `{amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: a, blockDeviceMappings: [{ebs: {volumeSize: Ti}}]}`, "blockDeviceMappings.0.ebs.volumeSize"},

		{kubelet, `{maxPods: 110, kubeReserved: {cpu: 100m}, anything: [1]}`, ""},
		{kubelet, `{maxPods: "default_enis * 10"}`, ""},
		{kubelet, `{maxPods: -1}`, "maxPods"},
		{kubelet, `{clusterDNS: [dns]}`, "clusterDNS.0"},
		{kubelet, `{kubeReserved: {gpu: "1"}}`, "kubeReserved.gpu"},
		{kubelet, `{systemReserved: {cpu: "-1"}}`, "systemReserved.cpu"},
		{kubelet, `{evictionHard: {memory: 5%}}`, "evictionHard.memory"},
		{kubelet, `{evictionSoft: {memory.available: 5%}}`, "evictionSoftGracePeriod"},
		{kubelet, `{evictionSoftGracePeriod: {memory.available: 5m}}`, "evictionSoft"},
		{kubelet, `{evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {memory.available: 1m30s}}`, ""},
		{kubelet, `{imageGCHighThresholdPercent: 50, imageGCLowThresholdPercent: 50}`, "imageGCHighThresholdPercent"},
		{kubelet, `{registerWithTaints: []}`, "registerWithTaints"},

		{options, `{softExpireAfter: 240h, minSavings: 5%, minNodeLifetime: 1h, consolidateAfter: {empty: 30s, underutilized: Never}}`, ""},
		{options, `{pause: {until: "2026-12-24T18:00:00Z", author: ada, reason: incident}}`, ""},
		{options, `{pause: {until: tomorrow, author: ada, reason: incident}}`, "pause.until"},
		{options, `{pause: {until: "2026-12-24T18:00:00Z", author: ada}}`, "pause.reason"},
		{options, `{minSavings: $5}`, "minSavings"},
		{options, `{softExpireAfter: Never}`, "softExpireAfter"},
		{options, `{consolidateAfter: {drifted: 5s}}`, "consolidateAfter.drifted"},
		{options, `{budgets: [{nodes: "0", schedule: "@daily", duration: 8h, timeZone: America/Port-au-Prince, from: "2026-12-20", until: "2027-01-03"}]}`, ""},
		{options, `{budgets: [{nodes: "0", timeZone: "+01:00"}]}`, "budgets.0.timeZone"},
		{options, `{budgets: [{nodes: "0", from: "20.12.2026"}]}`, "budgets.0.from"},
		{options, `{budgets: [{nodes: "0", schedule: "@daily"}]}`, "budgets.0.duration"},
		{options, `{budgets: [{schedule: "@daily", duration: 8h}]}`, "budgets.0.nodes"},
		{options, `{budgets: []}`, "budgets"},

		{name, `a.b-c`, ""},
		{name, `A`, "."},
		{name, `a.`, "."},
	} {
		var value any
		if err := yaml.Unmarshal([]byte(tc.value), &value); err != nil {
			t.Fatalf("%s: %v", tc.value, err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		skip := len(tc.def.Path().Selectors())
		got := tc.def.Unify(m.ctx.CompileBytes(text)).Validate(cue.Concrete(true))
		var at []string
		for _, e := range errors.Errors(got) {
			p := e.Path()[min(skip, len(e.Path())):]
			for i := range p {
				p[i] = strings.Trim(p[i], `"`)
			}
			at = append(at, strings.Join(p, "."))
		}
		want := strings.TrimPrefix(tc.at, ".")
		switch {
		case tc.at == "" && got != nil:
			t.Errorf("%s is refused: %s", tc.value, errors.Details(got, nil))
		case tc.at != "" && !slices.Contains(at, want):
			t.Errorf("%s: errors at %q, want one at %q: %v", tc.value, at, want, got)
		}
	}
}

// Keys are names, and what needn't be written is filled in.
func TestClusterFillsNames(t *testing.T) {
	m := newCUE(t, txtar.File{Name: "prod/cluster.cue", Data: []byte(`package prod

import "coppice.dev/schemas/cluster"

cluster.#Cluster

nodePools: general: spec: template: spec: {
	nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default"}
	requirements: [{key: "kubernetes.io/arch", operator: "In", values: ["amd64"]}]
}
nodeClasses: default: spec: {
	role: "nodes"
	amiSelectorTerms: [{alias: "al2023@latest"}]
	subnetSelectorTerms: [{tags: a: "b"}]
	securityGroupSelectorTerms: [{tags: a: "b"}]
}
nodeOverlays: cheaper: spec: {
	priceAdjustment: "-10%"
	requirements: [{key: "karpenter.k8s.aws/instance-family", operator: "In", values: ["m7i"]}]
}
capacityBuffers: spare: {
	metadata: namespace: "web"
	spec: {scalableRef: {kind: "Deployment", name: "web"}, percentage: 10}
}
`)})
	v := m.pkg("prod")
	if err := v.Validate(cue.Concrete(true)); err != nil {
		t.Fatal(errors.Details(err, nil))
	}
	for field, want := range map[string][3]string{
		"nodePools.general":     {"karpenter.sh/v1", "NodePool", "general"},
		"nodeClasses.default":   {"karpenter.k8s.aws/v1", "EC2NodeClass", "default"},
		"nodeOverlays.cheaper":  {"karpenter.sh/v1alpha1", "NodeOverlay", "cheaper"},
		"capacityBuffers.spare": {"autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "spare"},
	} {
		var got [3]string
		for i, p := range []string{"apiVersion", "kind", "metadata.name"} {
			s, err := v.LookupPath(cue.ParsePath(field + "." + p)).String()
			if err != nil {
				t.Errorf("%s.%s: %v", field, p, err)
			}
			got[i] = s
		}
		if got != want {
			t.Errorf("%s: got %v, want %v", field, got, want)
		}
	}
}

// CUE's schedules are those of the library that Karpenter and our controller read
// them with. The pattern can't see a range that runs backwards, and it is stricter
// about the oddities that the library lets through.
func TestCronAgreesWithTheLibrary(t *testing.T) {
	m := newCUE(t)
	def := m.pkg("meta/v1").LookupPath(cue.ParsePath("#Cron"))
	parts := []string{"*", "?", "0", "1", "6", "7", "12", "13", "23", "24", "31", "32", "59", "60", "007", "1-5", "10-20", "*/5", "*/0", "3/10", "1,2,3", "1-3,5-7", "jan", "DEC", "mon", "SUN", "mon-fri", "foo", "", "-1", "1-", "/5", "1/", "1-2-3"}
	rnd := rand.New(rand.NewPCG(1, 2))
	seen := map[bool]int{}
	for range 4000 {
		fields := []string{"*", "*", "*", "*", "*"}
		for range 1 + rnd.IntN(2) {
			fields[rnd.IntN(len(fields))] = parts[rnd.IntN(len(parts))]
		}
		text := strings.Join(fields, " ")
		_, err := cron.ParseStandard(text)
		got := def.Unify(m.ctx.Encode(text)).Validate(cue.Concrete(true)) == nil
		if got != (err == nil) {
			t.Errorf("%q: CUE accepts it: %v; the library: %v", text, got, err)
		}
		seen[got]++
	}
	if seen[true] < 500 || seen[false] < 500 {
		t.Errorf("the cases are lopsided: %v", seen)
	}
	for text, want := range map[string]bool{
		"@daily": true, "@every 1h": false, "@reboot": false, "@daily x": false,
		"TZ=UTC 0 9 * * *": false, "0 9 * *": false, "0 9 * * * *": false, "5, * * * *": false, "*-5 * * * *": false, " 0  9 * * 1 ": true,
	} {
		if got := def.Unify(m.ctx.Encode(text)).Validate(cue.Concrete(true)) == nil; got != want {
			t.Errorf("%q: accepted: %v, want %v", text, got, want)
		}
	}
}
