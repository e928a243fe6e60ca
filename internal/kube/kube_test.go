package kube

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	return Object(u.GroupVersionKind(), u.Object)
}

const poolManifest = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: kube}
spec:
  limits: {cpu: 1000}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: kube}
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
`

// TestApplier runs against a real API server.
func TestApplier(t *testing.T) {
	env := testkit.Sandbox(t)
	ctrllog.SetLogger(logr.Discard())
	c := testkit.Client(t, env.REST)
	testkit.InstallCRDs(t, c)
	ctx := t.Context()
	a := NewApplier(c)
	pool := object(t, poolManifest)
	version := func() string {
		t.Helper()
		live, err := a.Live(ctx, pool)
		if err != nil || live == nil {
			t.Fatalf("read the pool: %v, %v", live, err)
		}
		return live.GetResourceVersion()
	}

	look, err := a.Preview(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	if look.Live != nil || !look.Writes || look.Want == nil {
		t.Errorf("preview of a new object: %+v", look)
	}
	if live, err := a.Live(ctx, pool); live != nil || err != nil {
		t.Fatalf("the preview made the object: %v, %v", live, err)
	}

	if _, err := a.Apply(ctx, pool); err != nil {
		t.Fatal(err)
	}
	before := version()
	if look, err = a.Preview(ctx, pool); err != nil || look.Writes {
		t.Errorf("a second apply would write: %+v, %v", look, err)
	}
	if look.Live.GetResourceVersion() != look.Want.GetResourceVersion() {
		t.Errorf("a dry run answers with version %s, the object has %s", look.Want.GetResourceVersion(), look.Live.GetResourceVersion())
	}
	if _, err := a.Apply(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if after := version(); after != before {
		t.Errorf("a second apply moved the object from version %s to %s", before, after)
	}

	// Others add what Git doesn't hold: nothing to write, nothing to lose.
	patch := func(body string, opts ...client.PatchOption) {
		t.Helper()
		live := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "kube"}}
		if err := c.Patch(ctx, live, client.RawPatch("application/merge-patch+json", []byte(body)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"metadata":{"annotations":{"example.com/note":"x"}},"spec":{"weight":7}}`, client.FieldOwner("somebody"))
	if look, err = a.Preview(ctx, pool); err != nil || look.Writes {
		t.Errorf("an addition of others would be written over: %+v, %v", look, err)
	}
	// They change what Git holds: a write, and Git wins.
	patch(`{"spec":{"limits":{"cpu":"2000"}}}`, client.FieldOwner("somebody"))
	if look, err = a.Preview(ctx, pool); err != nil || !look.Writes {
		t.Errorf("a changed field would not be written: %+v, %v", look, err)
	}
	live, err := a.Apply(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedFieldNoCopy(live.Object, "spec", "limits", "cpu"); got != int64(1000) {
		t.Errorf("cpu is %v", got)
	}
	if got, _, _ := unstructured.NestedFieldNoCopy(live.Object, "spec", "weight"); got != int64(7) {
		t.Errorf("weight is %v; Git doesn't hold it", got)
	}
	// They change it to the same value in other words: the store would change.
	patch(`{"spec":{"limits":{"cpu":"1k"}}}`, client.FieldOwner("somebody"))
	if look, err = a.Preview(ctx, pool); err != nil || !look.Writes {
		t.Errorf("another spelling is %+v, %v", look, err)
	}
	// An object of others with the same values is taken over, once.
	taken := object(t, strings.Replace(poolManifest, "name: kube}\nspec", "name: taken}\nspec", 1))
	if err := c.Create(ctx, taken.DeepCopy(), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	if look, err = a.Preview(ctx, taken); err != nil || !look.Writes {
		t.Errorf("ownership would not be taken: %+v, %v", look, err)
	}
	if _, err := a.Apply(ctx, taken); err != nil {
		t.Fatal(err)
	}
	if look, err = a.Preview(ctx, taken); err != nil || look.Writes {
		t.Errorf("ownership would be taken twice: %+v, %v", look, err)
	}

	t.Run("remove", func(t *testing.T) {
		patch(`{"metadata":{"labels":{"example.com/a":"b"}},"spec":{"weight":9}}`, client.FieldOwner("somebody"))
		live, err := a.Live(ctx, pool)
		if err != nil {
			t.Fatal(err)
		}
		gone := [][]string{{"metadata", "labels", "example.com/a"}, {"spec", "weight"}, {"spec", "nothing"}}
		after, err := a.Remove(ctx, live, gone)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(after.Object, "spec", "weight"); found || len(after.GetLabels()) != 0 {
			t.Errorf("still there: %v", after.Object)
		}
		again, err := a.Remove(ctx, after, gone)
		if err != nil || again.GetResourceVersion() != after.GetResourceVersion() {
			t.Errorf("nothing to remove was a write: %v", err)
		}
		patch(`{"spec":{"weight":9}}`, client.FieldOwner("somebody"))
		if _, err := a.Remove(ctx, live, gone); err == nil {
			t.Error("an old state was changed")
		}
	})

	t.Run("refusals", func(t *testing.T) {
		for name, tc := range map[string]struct {
			why      string
			manifest string
			path     []any
			say      string
		}{
			"schema":     {"a value that the schema refuses has its path", strings.Replace(poolManifest, "cpu: 1000", "cpu: [1]", 1), []any{"spec", "limits", "cpu"}, ""},
			"rule":       {"so has one that a CEL rule refuses", strings.Replace(poolManifest, "operator: In, values: [amd64]", "operator: In", 1), nil, "In"},
			"undeclared": {"and a field that doesn't exist", strings.Replace(poolManifest, "limits:", "wieght: 1\n  limits:", 1), []any{"spec", "wieght"}, "wieght"},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := a.Preview(ctx, object(t, tc.manifest))
				var invalid *InvalidError
				if !errors.As(err, &invalid) {
					t.Fatalf("%s: error is %v", tc.why, err)
				}
				if tc.path != nil {
					if diff := cmp.Diff(tc.path, invalid.Causes[0].Path); diff != "" {
						t.Errorf("%s: %s", tc.why, diff)
					}
				}
				if !strings.Contains(err.Error(), tc.say) {
					t.Errorf("error %q doesn't say %q", err, tc.say)
				}
				t.Log(err)
			})
		}
		_, err := a.Preview(ctx, object(t, "apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: x}\n"))
		var kind *NoKindError
		if !errors.As(err, &kind) {
			t.Errorf("error is %v, want a NoKindError", err)
		}
	})

	t.Run("delete", func(t *testing.T) {
		patch(`{"metadata":{"annotations":{"coppice.dev/prune":"disabled"}}}`)
		for _, step := range []struct {
			why  string
			want Deletion
			then func()
		}{
			{"an annotation keeps an object", Kept, func() { patch(`{"metadata":{"annotations":{"coppice.dev/prune":null}}}`) }},
			{"without it the object goes", Deleted, func() {}},
			{"and is gone", Gone, func() {}},
		} {
			got, err := a.Delete(ctx, pool)
			if err != nil || got != step.want {
				t.Errorf("%s: got %d, %v", step.why, got, err)
			}
			step.then()
		}
	})

	t.Run("status", func(t *testing.T) {
		src := &coppice.NodeSource{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kube"}, Spec: coppice.NodeSourceSpec{URL: "https://example.com/x"}}
		if err := c.Create(ctx, src); err != nil {
			t.Fatal(err)
		}
		read := src.DeepCopy()
		if changed, err := PatchStatus(ctx, c, read, src); changed || err != nil {
			t.Errorf("an unchanged status was written: %v, %v", changed, err)
		}
		src.Status.LastAppliedRevision = "main@sha1:0"
		if changed, err := PatchStatus(ctx, c, read, src); !changed || err != nil {
			t.Errorf("a changed status was not written: %v, %v", changed, err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(src), read); err != nil || read.Status.LastAppliedRevision != "main@sha1:0" || read.ResourceVersion != src.ResourceVersion {
			t.Errorf("the status is %+v, %v", read.Status, err)
		}
	})

	t.Run("namespaced", func(t *testing.T) {
		cm := object(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube, namespace: default}\ndata: {a: b}\n")
		if _, err := a.Apply(ctx, cm); err != nil {
			t.Fatal(err)
		}
		var have corev1.ConfigMap
		if err := c.Get(ctx, client.ObjectKeyFromObject(cm), &have); err != nil || have.Data["a"] != "b" {
			t.Errorf("have %v, %v", have.Data, err)
		}
	})
}

func TestInventory(t *testing.T) {
	pool, class := object(t, poolManifest), object(t, "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: kube}\n")
	entry := Entry(pool)
	if want := "_kube_karpenter.sh_NodePool"; entry.ID != want || entry.Version != "v1" || len(entry.Digest) != 16 {
		t.Errorf("entry is %+v, want id %s", entry, want)
	}
	back, err := Referenced(entry)
	if err != nil || back.GroupVersionKind() != pool.GroupVersionKind() || back.GetName() != "kube" {
		t.Errorf("%+v refers to %v, %v", entry, back, err)
	}
	for _, id := range []string{"", "a", "_a_b", "__b_C", "a_b_c_", "a_b_c_d_e"} {
		if u, err := Referenced(coppice.InventoryEntry{ID: id, Version: "v1"}); err == nil {
			t.Errorf("%q refers to %v", id, u)
		}
	}

	other := object(t, strings.Replace(poolManifest, "1000", "1001", 1))
	if Digest(other) == entry.Digest || Digest(pool.DeepCopy()) != entry.Digest {
		t.Error("a digest doesn't follow the content")
	}

	all := Merge(nil, []coppice.InventoryEntry{entry, Entry(class)})
	if diff := cmp.Diff([]string{"_kube_karpenter.k8s.aws_EC2NodeClass", "_kube_karpenter.sh_NodePool"}, ids(all)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"_kube_karpenter.sh_NodePool", "_kube_karpenter.k8s.aws_EC2NodeClass"}, ids(Left(all, nil))); diff != "" {
		t.Errorf("pools are deleted before the classes that they refer to: %s", diff)
	}
	if left := Left(all, all); len(left) != 0 {
		t.Errorf("nothing left, but %v", left)
	}
	merged := Merge(all, []coppice.InventoryEntry{Entry(other)})
	if got, _ := Find(merged, entry.ID); len(merged) != 2 || got.Digest != Digest(other) {
		t.Errorf("merged to %v", merged)
	}
}

func ids(entries []coppice.InventoryEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

func TestParsePath(t *testing.T) {
	for in, want := range map[string][]any{
		"":                                   nil,
		"<nil>":                              nil,
		"spec":                               {"spec"},
		"spec.template.spec.taints[0].key":   {"spec", "template", "spec", "taints", 0, "key"},
		"spec.limits[nvidia.com/gpu]":        {"spec", "limits", "nvidia.com/gpu"},
		`metadata.labels["example.com/a.b"]`: {"metadata", "labels", "example.com/a.b"},
		"spec.broken[":                       {"spec", "broken"},
	} {
		if diff := cmp.Diff(want, parsePath(in)); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}
