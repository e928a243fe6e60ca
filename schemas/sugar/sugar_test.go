package sugar_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

func object(t *testing.T, text string) map[string]any {
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
metadata: {name: general, annotations: {example.com/kept: "yes"}}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
coppice:
`

const everything = pool + `
  budgets:
  - {nodes: "0", schedule: 0 9 * * mon-fri, duration: 8h, timeZone: Europe/Berlin, reasons: [Drifted]}
  - {nodes: 5%, from: 2026-12-20, until: 2027-01-03}
  softExpireAfter: 240h
  pause: {until: "2026-12-24T18:00:00Z", author: ada@example.com, reason: "incident <42>"}
  minSavings: 5%
  minNodeLifetime: 1h
  consolidateAfter: {empty: 30s, underutilized: Never}
  inPlace: {labels: [team, "example.com/*"], taints: ["*"]}
  driftApproval: 3f29ab04c1
  returnToHigherWeight: true
  preferencePolicy: Ignore
  repair: {reboot: true, tolerate: {Ready: 10m, StorageReady: 1h}}
`

func TestCompile(t *testing.T) {
	authored := object(t, everything)
	got, origins, faults := sugar.Compile(authored)
	if len(faults) > 0 {
		t.Fatalf("faults: %v", faults)
	}
	want := object(t, strings.TrimSuffix(pool, "coppice:\n"))
	want["metadata"].(map[string]any)["annotations"] = map[string]any{
		"example.com/kept":                            "yes",
		"coppice.dev/budgets":                         `[{"nodes":"0","reasons":["Drifted"],"schedule":"0 9 * * mon-fri","duration":"8h","timeZone":"Europe/Berlin"},{"nodes":"5%","from":"2026-12-20","until":"2027-01-03"}]`,
		"coppice.dev/soft-expire-after":               "240h",
		"coppice.dev/pause":                           `{"until":"2026-12-24T18:00:00Z","author":"ada@example.com","reason":"incident <42>"}`,
		"coppice.dev/min-savings":                     "5%",
		"coppice.dev/min-node-lifetime":               "1h",
		"coppice.dev/consolidate-after-empty":         "30s",
		"coppice.dev/consolidate-after-underutilized": "Never",
		"coppice.dev/in-place":                        `{"labels":["team","example.com/*"],"taints":["*"]}`,
		"coppice.dev/drift-approval":                  "3f29ab04c1",
		"coppice.dev/return-to-higher-weight":         "true",
		"coppice.dev/preference-policy":               "Ignore",
		"coppice.dev/repair":                          `{"reboot":true,"tolerate":{"Ready":"10m","StorageReady":"1h"}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("compiled object (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(object(t, everything), authored); diff != "" {
		t.Errorf("the authored object was changed (-before +after):\n%s", diff)
	}
	var lines []string
	for _, o := range origins {
		lines = append(lines, fmt.Sprint(o.Path[2], " from ", o.From))
	}
	if diff := cmp.Diff([]string{
		"coppice.dev/budgets from [coppice budgets]",
		"coppice.dev/consolidate-after-empty from [coppice consolidateAfter empty]",
		"coppice.dev/consolidate-after-underutilized from [coppice consolidateAfter underutilized]",
		"coppice.dev/drift-approval from [coppice driftApproval]",
		"coppice.dev/in-place from [coppice inPlace]",
		"coppice.dev/min-node-lifetime from [coppice minNodeLifetime]",
		"coppice.dev/min-savings from [coppice minSavings]",
		"coppice.dev/pause from [coppice pause]",
		"coppice.dev/preference-policy from [coppice preferencePolicy]",
		"coppice.dev/repair from [coppice repair]",
		"coppice.dev/return-to-higher-weight from [coppice returnToHigherWeight]",
		"coppice.dev/soft-expire-after from [coppice softExpireAfter]",
	}, lines); diff != "" {
		t.Errorf("origins (-want +got):\n%s", diff)
	}

	// What comes out is a plain NodePool.
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	if v := judge.Check(got, nil); !v.Accepted() || len(v.Pruned) > 0 {
		t.Errorf("the API server would say %v, and prune %v", v.Violations, v.Pruned)
	}

	// The controllers read from it what was authored.
	annotations := map[string]string{}
	for k, v := range got["metadata"].(map[string]any)["annotations"].(map[string]any) {
		annotations[k] = v.(string)
	}
	options, err := sugar.Parse(annotations)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	var back any
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(authored["coppice"], back); diff != "" {
		t.Errorf("options after compiling and parsing (-authored +parsed):\n%s", diff)
	}
}

func TestCompileLeavesPlainObjectsAlone(t *testing.T) {
	plain := object(t, strings.TrimSuffix(pool, "coppice:\n"))
	got, origins, faults := sugar.Compile(plain)
	if diff := cmp.Diff(plain, got); diff != "" || origins != nil || faults != nil {
		t.Errorf("changed: %s, origins %v, faults %v", diff, origins, faults)
	}
	options, err := sugar.Parse(map[string]string{"example.com/kept": "yes"})
	if diff := cmp.Diff(sugar.Options{}, options); diff != "" || err != nil {
		t.Errorf("parsed: %s, %v", diff, err)
	}
}

func TestCompileFindsFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		obj  string
		want []string
	}{
		"time zone": {
			why:  "CUE knows how a zone is spelt, not which there are",
			obj:  pool + `  budgets: [{nodes: "0", schedule: "@daily", duration: 8h, timeZone: Europe/Berln}]`,
			want: []string{"[coppice budgets 0 timeZone]"},
		},
		"local time": {
			why:  "it means another time on every machine",
			obj:  pool + `  budgets: [{nodes: "0", schedule: "@daily", duration: 8h, timeZone: Local}]`,
			want: []string{"[coppice budgets 0 timeZone]"},
		},
		"dates": {
			why:  "a budget that ends before it begins never counts",
			obj:  pool + `  budgets: [{nodes: "0", from: "2026-12-24", until: "2026-12-20"}, {nodes: "0", from: "2026-02-30"}]`,
			want: []string{"[coppice budgets 0 until]", "[coppice budgets 1 from]"},
		},
		"schedule": {
			why:  "a pattern can't see a range that runs backwards",
			obj:  pool + `  budgets: [{nodes: "0", schedule: 0 9 * * fri-mon, duration: 8h}, {nodes: "0", duration: 8h}]`,
			want: []string{"[coppice budgets 0 schedule]", "[coppice budgets 1 schedule]"},
		},
		"soft after hard expiry": {
			why:  "it would never happen: the default of expireAfter is 720h",
			obj:  pool + `  softExpireAfter: 720h`,
			want: []string{"[coppice softExpireAfter]"},
		},
		"soft expiry without a hard one": {
			why: "Never leaves all room",
			obj: strings.Replace(pool, "requirements: []", "expireAfter: Never, requirements: []", 1) + `  softExpireAfter: 9000h`,
		},
		"pause": {
			why:  "it ends, and somebody answers for it",
			obj:  pool + `  pause: {until: tomorrow, author: "", reason: ""}`,
			want: []string{"[coppice pause until]", "[coppice pause author]", "[coppice pause reason]"},
		},
		"numbers": {
			why:  "each text has one form",
			obj:  pool + "  minSavings: $5\n  minNodeLifetime: -1h\n  consolidateAfter: {empty: soon}\n",
			want: []string{"[coppice minSavings]", "[coppice minNodeLifetime]", "[coppice consolidateAfter empty]"},
		},
		"keys": {
			why:  "a star means something at the end alone",
			obj:  pool + "  inPlace: {labels: [a, \"\"], tags: [\"a*b\"]}\n  driftApproval: yes please\n",
			want: []string{"[coppice driftApproval]", "[coppice inPlace labels 1]", "[coppice inPlace tags 0]"},
		},
		"budget": {
			why:  "what the CRD says of its budgets holds for these",
			obj:  pool + `  budgets: [{nodes: 200%}, {nodes: "1", reasons: [Bored]}]`,
			want: []string{"[coppice budgets 0 nodes]", "[coppice budgets 1 reasons]"},
		},
		"repair": {
			why:  "a condition that isn't looked at is never tolerated nor repaired",
			obj:  pool + "  repair: {tolerate: {DiskPressure: 1h, KernelReady: 0s, Ready: 10m}}\n",
			want: []string{"[coppice repair tolerate DiskPressure]", "[coppice repair tolerate KernelReady]"},
		},
		"unknown option": {
			why:  "a misspelt option would do nothing",
			obj:  pool + `  softExpire: 240h`,
			want: []string{"[coppice]"},
		},
		"written twice": {
			why:  "one of the two would be lost",
			obj:  strings.Replace(pool, "example.com/kept", "coppice.dev/min-savings", 1) + `  minSavings: 5%`,
			want: []string{"[coppice minSavings]"},
		},
		"other kind": {
			why:  "no controller looks for it there",
			obj:  "{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: a}, coppice: {minSavings: 5%}}",
			want: []string{"[coppice]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := object(t, strings.Replace(tc.obj, "expireAfter: Never, requirements: []", "expireAfter: Never\n      requirements: []", 1))
			out, _, faults := sugar.Compile(obj)
			var got []string
			for _, f := range faults {
				got = append(got, fmt.Sprint(f.Path))
				if f.Message == "" {
					t.Errorf("%v has no message", f.Path)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: faults (-want +got):\n%s", tc.why, diff)
			}
			if _, there := out[sugar.Field]; there {
				t.Error("the field is still there")
			}
		})
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	options, err := sugar.Parse(map[string]string{
		sugar.AnnotationBudgets:         "not json",
		sugar.AnnotationMinSavings:      "lots",
		sugar.AnnotationSoftExpireAfter: "240h",
	})
	if err == nil || !strings.Contains(err.Error(), sugar.AnnotationBudgets) || !strings.Contains(err.Error(), sugar.AnnotationMinSavings) {
		t.Errorf("got %v, want an error that names the budgets and the savings", err)
	}
	if options.SoftExpireAfter != "240h" {
		t.Errorf("got %+v, want the annotation that can be read", options)
	}
}

func TestInPlaceKeys(t *testing.T) {
	for key, want := range map[string]bool{
		"labels team": true, "labels example.com/*": true, "labels *": true, "labels karpenter.sh/*": true,
		"labels karpenter.sh/capacity-type": false, "labels topology.kubernetes.io/zone": false, "labels kubernetes.io/hostname": false,
		"labels beta.kubernetes.io/arch": false, "labels karpenter.k8s.aws/instance-family": false, "labels a b": false,
		"annotations karpenter.sh/do-not-disrupt": true, "taints dedicated": true, "taints a/b/c": false,
		"tags cost centre": true, "tags aws:createdBy": false, "tags aws:*": false,
	} {
		field, name, _ := strings.Cut(key, " ")
		text, err := json.Marshal(map[string]any{field: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sugar.Parse(map[string]string{sugar.AnnotationInPlace: string(text)}); (err == nil) != want {
			t.Errorf("%s: %v", key, err)
		}
	}
}
