package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/diag"
)

// TestKubelet moves what pools had for their kubelets to the classes that they refer to.
func TestKubelet(t *testing.T) {
	const class = "\n---\napiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec: {amiFamily: AL2023}\n"
	pool := func(name, kubelet string) string {
		if kubelet != "" {
			kubelet = ", kubelet: " + kubelet
		}
		return "\n---\napiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: " + name + "}\nspec: {template: {spec: {nodeClassRef: {name: default}, requirements: []" + kubelet + "}}}\n"
	}
	provisioner := func(name, kubelet string) string {
		return "\n---\napiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: " + name + "}\nspec: {providerRef: {name: default}, kubeletConfiguration: " + kubelet + "}\n"
	}
	type m = map[string]any
	for name, tc := range map[string]struct {
		why, in string
		refused []string
		// classes are the kubelet's settings of each class, refs the class of each pool.
		classes map[string]any
		refs    map[string]string
	}{
		"one pool": {
			why: "the class gets what the pool had, wherever it stands", in: pool("a", "{maxPods: 20}") + class,
			classes: m{"default": m{"maxPods": int64(20)}}, refs: map[string]string{"a": "default"},
		},
		"a provisioner": {
			why: "v1alpha5 has another name for it", in: class + provisioner("a", "{maxPods: 20}"),
			classes: m{"default": m{"maxPods": int64(20)}}, refs: map[string]string{"a": "default"},
		},
		"two that agree": {
			why: "one class says it for both", in: class + pool("a", "{maxPods: 20}") + provisioner("b", "{maxPods: 20}"),
			classes: m{"default": m{"maxPods": int64(20)}}, refs: map[string]string{"a": "default", "b": "default"},
		},
		"two that differ": {
			why: "a class has one set of settings", in: class + pool("a", "{maxPods: 20}") + pool("b", "{maxPods: 30}") + pool("c", "{maxPods: 30}"),
			classes: m{"default": m{"maxPods": int64(20)}, "default-b": m{"maxPods": int64(30)}},
			refs:    map[string]string{"a": "default", "b": "default-b", "c": "default-b"},
		},
		"one without": {
			why: "its nodes must not change", in: class + pool("a", "") + pool("b", "{maxPods: 30}"),
			classes: m{"default": nil, "default-b": m{"maxPods": int64(30)}}, refs: map[string]string{"a": "default", "b": "default-b"},
		},
		"the copy's name is taken": {
			why: "no class is overwritten", in: class + strings.Replace(class, "name: default", "name: default-b", 1) + pool("a", "") + pool("b", "{maxPods: 30}"),
			classes: m{"default": nil, "default-b": nil, "default-b-2": m{"maxPods": int64(30)}}, refs: map[string]string{"a": "default", "b": "default-b-2"},
		},
		"the class has its own": {
			why: "what v1 says stays", in: strings.Replace(class, "AL2023}", "AL2023, kubelet: {maxPods: 10}}", 1) + pool("a", "{maxPods: 20}") + pool("b", "{maxPods: 10}"),
			classes: m{"default": m{"maxPods": int64(10)}, "default-a": m{"maxPods": int64(20)}}, refs: map[string]string{"a": "default-a", "b": "default"},
		},
		"no class": {
			why: "there is nothing to move it to", in: pool("a", "{maxPods: 20}"), refused: []string{"spec.template.spec.kubelet"},
			classes: m{}, refs: map[string]string{"a": "default"},
		},
		"a runtime": {
			why: "v1 has none", in: class + provisioner("a", "{containerRuntime: containerd, maxPods: 20}"), refused: []string{"spec.kubeletConfiguration.containerRuntime"},
			classes: m{"default": m{"maxPods": int64(20)}}, refs: map[string]string{"a": "default"},
		},
		"twice in one pool": {
			why: "only one of them can hold", in: class + strings.Replace(pool("a", "{maxPods: 20}"), "spec: {template", "spec: {kubeletConfiguration: {maxPods: 30}, template", 1),
			refused: []string{"spec.kubeletConfiguration"}, classes: m{"default": m{"maxPods": int64(20)}}, refs: map[string]string{"a": "default"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := given()
			o.AllowLossy = true
			result, found := Convert([]Source{{"a.yaml", []byte(tc.in)}}, o)
			var refused []string
			said := 0
			for _, f := range found {
				switch {
				case f.Code == CodeLossy:
					refused = append(refused, f.Path)
				case f.Code == CodeMoved && strings.Contains(f.Message, "kubelet's settings"):
					said++
					if f.Pos.Line == 0 {
						t.Errorf("%s: a note without a line: %+v", tc.why, f)
					}
				case f.Severity == diag.Error:
					t.Errorf("%s: %+v", tc.why, f)
				}
			}
			if !cmp.Equal(tc.refused, refused) {
				t.Errorf("%s: refused at %q, want %q", tc.why, refused, tc.refused)
			}
			if want := strings.Count(tc.in, "maxPods") - strings.Count(tc.in, "AL2023, kubelet") - strings.Count(tc.in, "spec: {kubeletConfiguration"); len(tc.classes) > 0 && said != want {
				t.Errorf("%s: %d notes, want %d: %v", tc.why, said, want, found)
			}
			classes, refs := map[string]any{}, map[string]string{}
			for name, v := range result.objects["nodeClasses"] {
				classes[name] = sub(v, "spec")["kubelet"]
			}
			for name, v := range result.objects["nodePools"] {
				refs[name], _ = reference(sub(v, "spec"))["name"].(string)
			}
			if diff := cmp.Diff(tc.classes, classes); diff != "" {
				t.Errorf("%s: classes (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(tc.refs, refs); diff != "" {
				t.Errorf("%s: references (-want +got):\n%s", tc.why, diff)
			}
			out, err := result.CUE()
			if err != nil {
				t.Fatal(err)
			}
			if _, wrong := rendered(t, out, judge(t)); len(wrong) > 0 {
				t.Errorf("%s: %v\n%s", tc.why, wrong, out)
			}
		})
	}
}

// TestNotObjects imports documents, and parts of objects, that have the wrong form. None
// passes without a word.
func TestNotObjects(t *testing.T) {
	const pool = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: a}\n"
	for name, tc := range map[string]struct {
		in, code string
		line     int
	}{
		"a number":          {"--- 42\n", "SCH002", 1},
		"a string":          {pool + "---\nhello\n", "SCH002", 5},
		"a list":            {"- hello\n", CodeMissing, 1},
		"an empty list":     {"[]\n", CodeMissing, 1},
		"an empty object":   {"{}\n", CodeMissing, 1},
		"nothing":           {"---\n# nothing\n---\n", CodeSkipped, 1},
		"null":              {"null\n", CodeSkipped, 1},
		"spec is text":      {pool + "spec: hello\n", CodeLossy, 4},
		"template is text":  {pool + "spec:\n  template: hello\n", CodeLossy, 5},
		"a list as a spec":  {pool + "spec:\n  template:\n    spec: [a]\n", CodeLossy, 6},
		"requirements":      {"apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec:\n  requirements: {a: b}\n", CodeLossy, 5},
		"limits":            {"apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec:\n  limits: {resources: 5}\n", CodeLossy, 5},
		"quoted":            {"apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec:\n  consolidation: {enabled: \"true\"}\n", CodeLossy, 5},
		"a selector":        {"apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: a}\nspec:\n  subnetSelector: {a: [b]}\n", CodeLossy, 5},
		"no groups":         {"{\"AutoScalingGroups\": []}\n", CodeMissing, 1},
		"options are a int": {"apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec: {metadataOptions: 5}\n", CodeLossy, 4},
	} {
		t.Run(name, func(t *testing.T) {
			_, found := Convert([]Source{{"a.yaml", []byte(tc.in)}}, given())
			for _, f := range found {
				if f.Code == tc.code && f.Pos.Line == tc.line {
					return
				}
			}
			t.Errorf("no %s at line %d: %v", tc.code, tc.line, found)
		})
	}
}

func TestIsPackageName(t *testing.T) {
	for name, want := range map[string]bool{
		"prod": true, "prod_eu": true, "p1": true, "größe": true,
		"foo-bar": false, "": false, "_": false, "1a": false, "a b": false, "a\nb: 1": false, "for": false, "#a": false, "a.b": false, "a//b": false,
	} {
		if got := IsPackageName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
