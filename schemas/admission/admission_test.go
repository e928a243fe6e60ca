package admission_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

func newJudge(t testing.TB) *admission.Judge {
	t.Helper()
	j, err := admission.New(schemas.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

const pool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  limits: {cpu: 1000}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
`

// lines prints violations as PATH: KIND: MESSAGE.
func lines(violations []admission.Violation) string {
	var b strings.Builder
	for _, v := range violations {
		var p strings.Builder
		for _, e := range v.Path {
			switch e := e.(type) {
			case int:
				fmt.Fprintf(&p, "[%d]", e)
			default:
				fmt.Fprintf(&p, "<%v>", e)
			}
		}
		fmt.Fprintf(&b, "%s: %s: %s\n", p.String(), strings.TrimPrefix(v.Kind, "FieldValue"), v.Message)
	}
	return b.String()
}

func TestCheck(t *testing.T) {
	judge := newJudge(t)
	for name, tc := range map[string]struct {
		why    string
		obj    string
		old    string
		want   string
		pruned []string
	}{
		"valid": {
			why: "the least that a pool needs",
			obj: pool,
		},
		"every kind of fault at its place": {
			why: "one run must find all that the schema can find",
			obj: `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: Bad_, labels: {a/b/c: x}}
spec:
  weight: 1000
  wieght: 3
  limits: {cpu: abc}
  disruption: {budgets: [{nodes: "200%"}, {reasons: [Empty, Empty]}]}
  template:
    metadata: {labels: {example.com/a.b: "a b"}}
    spec:
      nodeClassRef: {group: a/b, kind: EC2NodeClass, name: x}
      requirements: []
`,
			want: `<metadata><labels>: Invalid: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
<metadata><name>: Invalid: "Bad_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
<spec><disruption><budgets>[0]<nodes>: Invalid: "200%": should match '^((100|[0-9]{1,2})%|[0-9]+)$'
<spec><disruption><budgets>[1]<reasons>[1]: Duplicate: duplicate value "Empty"
<spec><limits><cpu>: Invalid: "abc": should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'
<spec><template><metadata><labels><example.com/a.b>: Invalid: "a b": should match '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$'
<spec><template><spec><nodeClassRef><group>: Invalid: "a/b": should match '^[^/]*$'
<spec><weight>: Invalid: should be less than or equal to 100
`,
			pruned: []string{"spec.wieght"},
		},
		"rules wait for the schema": {
			why: "the server doesn't ask a rule about an object of the wrong shape",
			obj: `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  replicas: 1
  weight: 1
  template:
    spec:
      nodeClassRef: {group: g, kind: k}
      requirements: []
`,
			want: "<spec><template><spec><nodeClassRef><name>: Required: is required\n",
		},
		"rule over numbers": {
			why: "numbers must reach CEL as integers, whatever decoded them",
			obj: strings.Replace(pool, "spec:\n", "spec:\n  replicas: 1\n  weight: 1\n", 1),
			want: `<spec>: Invalid: a NodePool with replicas can limit nothing but 'nodes'
<spec>: Invalid: a NodePool with replicas takes no 'weight': it isn't chosen by pods
`,
		},
		"rule at a field": {
			why:  "a rule of an element points at the field that is wrong",
			obj:  strings.Replace(pool, "operator: In, values: [amd64]", "operator: In", 1),
			want: "<spec><template><spec><requirements>[0]<values>: Invalid: operator In needs at least one value\n",
		},
		"rule that can't be evaluated": {
			why:  "the author reads the rule's own words, not the evaluator's",
			obj:  strings.Replace(pool, "operator: In, values: [amd64]", "operator: Gt, values: [many]", 1),
			want: "<spec><template><spec><requirements>[0]: Invalid: operators Gt, Lt, Gte and Lte need one value, a whole number that isn't negative\n",
		},
		"number or string": {
			why:  "the validator tries both and reports three faults where there is one",
			obj:  strings.Replace(pool, "{cpu: 1000}", "{cpu: 0.5, memory: true, nodes: 3}", 1),
			want: "<spec><limits><cpu>: TypeInvalid: must be of type integer,string: \"number\"\n<spec><limits><memory>: TypeInvalid: must be of type integer,string: \"boolean\"\n",
		},
		"metadata that isn't strings": {
			why: "decoding fails as a whole; the author needs the place",
			obj: strings.Replace(pool, "name: general", `name: general, labels: {example.com/a: 1}, annotations: {b: true}`, 1),
			want: `<metadata><annotations><b>: TypeInvalid: must be a string
<metadata><labels><example.com/a>: TypeInvalid: must be a string
`,
		},
		"metadata that isn't an object": {
			why:  "nothing can be said about the rest",
			obj:  "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: 3}",
			want: "<metadata>: TypeInvalid: must be an object\n",
		},
		"no name": {
			why:  "the name is the registry's rule, not the CRD's",
			obj:  strings.Replace(pool, "name: general", "labels: {}", 1),
			want: "<metadata><name>: Required: name or generateName is required\n",
		},
		"status is ignored": {
			why: "it is a subresource: a create or an update doesn't touch it",
			obj: pool + "status: {nodes: x}\n",
		},
		"namespace of a cluster-scoped object": {
			why:    "the server drops it without a word",
			obj:    strings.Replace(pool, "name: general", "name: general, namespace: kube-system", 1),
			pruned: []string{"metadata.namespace"},
		},
		"namespace left out": {
			why: "whoever applies a namespaced object says where",
			obj: "{apiVersion: coppice.dev/v1alpha1, kind: NodeSource, metadata: {name: a}, spec: {url: https://example.com/a.git}}",
		},
		"webhook of pull requests": {
			why: "Flux fetches, but it doesn't look at pull requests",
			obj: "{apiVersion: coppice.dev/v1alpha1, kind: NodeSource, metadata: {name: a}, spec: {sourceRef: {kind: GitRepository, name: fleet}, webhook: {type: bitbucket, secretRef: {name: hook}}, pullRequests: {url: 'https://bitbucket.org/a/b', branch: main, secretRef: {name: comments}}}}",
		},
		"webhook of nothing": {
			why:  "what is fetched is Flux's to hear of",
			obj:  "{apiVersion: coppice.dev/v1alpha1, kind: NodeSource, metadata: {name: a}, spec: {sourceRef: {kind: GitRepository, name: fleet}, webhook: {type: bitbucket, secretRef: {name: hook}}}}",
			want: "<spec>: Invalid: 'webhook' belongs to the object that 'sourceRef' names, unless it tells of 'pullRequests'\n",
		},
		"unknown version": {
			why:  "old manifests are the commonest mistake",
			obj:  strings.Replace(pool, "karpenter.sh/v1", "karpenter.sh/v1beta1", 1),
			want: "<apiVersion>: NotSupported: \"karpenter.sh/v1beta1\" is not supported: supported values: \"karpenter.sh/v1\"\n",
		},
		"unknown kind": {
			why:  "a misspelt kind",
			obj:  strings.Replace(pool, "kind: NodePool", "kind: Nodepool", 1),
			want: "<kind>: NotSupported: \"Nodepool\" is not supported: supported values: \"CapacityBuffer\", \"EC2NodeClass\", \"NodeClaim\", \"NodeOverlay\", \"NodePool\", \"NodeSource\"\n",
		},
		"replicas beyond 32 bits": {
			why:  "the scale subresource has 32 bits for them",
			obj:  strings.Replace(strings.Replace(pool, "limits: {cpu: 1000}", "replicas: 3000000000", 1), "general", "g", 1),
			want: "<spec><replicas>: Invalid: should be less than or equal to 2147483647\n",
		},
		"transition refused": {
			why:  "rules may compare with the live object",
			obj:  strings.Replace(pool, "limits: {cpu: 1000}", "replicas: 1", 1),
			old:  pool,
			want: "<spec>: Invalid: a NodePool stays static (with replicas) or dynamic (without): replicas can be neither added nor removed later\n",
		},
		"transition of a reference": {
			why:  "kind and group of the node class are fixed, its name isn't",
			obj:  strings.Replace(pool, "kind: EC2NodeClass, name: default", "kind: Other, name: other", 1),
			old:  pool,
			want: "<spec><template><spec><nodeClassRef>: Invalid: nodeClassRef.kind can't be changed\n",
		},
		"transition of a claim": {
			why: "a claim's spec never changes, defaults included",
			obj: `{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: a}, spec: {requirements: [], nodeClassRef: {group: g, kind: k, name: x}}}`,
			old: `{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: a}, spec: {expireAfter: 720h, requirements: [], nodeClassRef: {group: g, kind: k, name: x}}}`,
		},
		"unchanged values are not judged again": {
			why: "what was valid when it was stored doesn't stop other changes",
			obj: strings.Replace(pool, "limits: {cpu: 1000}", "limits: {cpu: abc}\n  weight: 3", 1),
			old: strings.Replace(pool, "limits: {cpu: 1000}", "limits: {cpu: abc}", 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := object(t, tc.obj)
			var old map[string]any
			if tc.old != "" {
				old = object(t, tc.old)
			}
			got := judge.Check(obj, old)
			if diff := cmp.Diff(tc.want, lines(got.Violations)); diff != "" {
				t.Errorf("%s: violations (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(tc.pruned, got.Pruned); diff != "" {
				t.Errorf("%s: pruned (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(object(t, tc.obj), obj); diff != "" {
				t.Errorf("the object was changed (-before +after):\n%s", diff)
			}
			if again := judge.Check(obj, old); lines(again.Violations) != lines(got.Violations) {
				t.Errorf("a second check differs:\n%s", cmp.Diff(lines(got.Violations), lines(again.Violations)))
			}
		})
	}
}

func TestCheckSetsDefaults(t *testing.T) {
	got := newJudge(t).Check(object(t, pool+"status: {nodes: 3}\n"), nil).Defaulted
	want := object(t, `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  limits: {cpu: 1000}
  disruption:
    budgets: [{nodes: 10%}]
    consolidateAfter: 0s
    consolidationPolicy: WhenEmptyOrUnderutilized
  template:
    spec:
      expireAfter: 720h
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
`)
	want["spec"].(map[string]any)["limits"].(map[string]any)["cpu"] = int64(1000)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaulted object (-want +got):\n%s", diff)
	}
}

// Many checks at once share the compiled rules.
func TestCheckIsSafeForConcurrentUse(t *testing.T) {
	judge := newJudge(t)
	bad := strings.Replace(pool, "operator: In, values: [amd64]", "operator: In", 1)
	want := lines(judge.Check(object(t, bad), nil).Violations)
	fresh := newJudge(t)
	var wg sync.WaitGroup
	for range 8 {
		obj := object(t, bad)
		wg.Go(func() {
			for range 20 {
				if got := lines(fresh.Check(obj, nil).Violations); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
	wg.Wait()
}

// The API server itself would take our CRDs.
func TestCRDsAreValid(t *testing.T) {
	for _, c := range schemas.CRDs() {
		if err := admission.Validate(c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func TestNewRefusesDamagedCRDs(t *testing.T) {
	crds := schemas.CRDs()
	root := crds[0].Spec.Versions[0].Schema.OpenAPIV3Schema
	spec := root.Properties["spec"]
	spec.Type = ""
	root.Properties["spec"] = spec
	if _, err := admission.New(crds); err == nil || !strings.Contains(err.Error(), crds[0].Name) {
		t.Errorf("got %v, want an error that names %s", err, crds[0].Name)
	}
}

func BenchmarkCheck(b *testing.B) {
	judge := newJudge(b)
	obj := object(b, pool)
	judge.Check(obj, nil)
	b.ReportAllocs()
	for b.Loop() {
		judge.Check(obj, nil)
	}
}

func BenchmarkNewAndFirstCheck(b *testing.B) {
	crds := schemas.CRDs()
	obj := object(b, pool)
	for b.Loop() {
		j, err := admission.New(crds)
		if err != nil {
			b.Fatal(err)
		}
		j.Check(obj, nil)
	}
}
