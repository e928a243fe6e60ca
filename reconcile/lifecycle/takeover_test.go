package lifecycle

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestTakeover registers a Node that somebody else has written since it was read.
func TestTakeover(t *testing.T) {
	c := claim(func(c *karpenter.NodeClaim) {
		c.Annotations = map[string]string{"a/b~c": "d"}
		c.Spec.StartupTaints = []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoExecute}}
	})
	tests := map[string]struct {
		why     string
		read    func(*corev1.Node)
		other   func(*corev1.Node)
		refused bool
	}{
		"nobody":             {"the usual", func(*corev1.Node) {}, func(*corev1.Node) {}, false},
		"bare":               {"a Node without labels and taints", func(n *corev1.Node) { n.Labels, n.Spec.Taints = nil, nil }, func(*corev1.Node) {}, false},
		"a kubelet's status": {"what isn't written may change", func(*corev1.Node) {}, func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{"cpu": {}} }, false},
		"another's label":    {"labels are written one by one", func(*corev1.Node) {}, func(n *corev1.Node) { n.Labels["new"] = "stays" }, false},
		"a taint is gone":    {"it stays so", func(*corev1.Node) {}, func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1] }, false},
		"a taint has come": {"it stays", func(*corev1.Node) {}, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "not-ready", Effect: "NoSchedule"})
		}, false},
		"taints have moved":    {"or another would be removed", func(*corev1.Node) {}, func(n *corev1.Node) { n.Spec.Taints[0], n.Spec.Taints[1] = n.Spec.Taints[1], n.Spec.Taints[0] }, true},
		"the first taint":      {"or it would be lost", func(n *corev1.Node) { n.Spec.Taints = nil }, func(n *corev1.Node) { n.Spec.Taints = node().Spec.Taints }, true},
		"another's finalizer":  {"or it would be lost", func(*corev1.Node) {}, func(n *corev1.Node) { n.Finalizers = []string{"other/one"} }, true},
		"finalizer was there":  {"it is kept", func(n *corev1.Node) { n.Finalizers = []string{"other/one"} }, func(*corev1.Node) {}, false},
		"annotations were too": {"they are written one by one", func(n *corev1.Node) { n.Annotations = map[string]string{"x": "y"} }, func(n *corev1.Node) { n.Annotations["z"] = "stays" }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			start := node(tc.read)
			kube := fake.NewClientBuilder().WithObjects(start).Build()
			read, other := &corev1.Node{}, &corev1.Node{}
			for _, n := range []*corev1.Node{read, other} {
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(start), n); err != nil {
					t.Fatal(err)
				}
			}
			tc.other(other)
			if err := kube.Update(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			want := registration(c, read)
			patch, err := takeover(read, want)
			if err != nil {
				t.Fatal(err)
			}
			got := want.DeepCopy()
			err = kube.Patch(t.Context(), got, patch)
			if (err != nil) != tc.refused {
				t.Fatalf("patch: %v, want it refused: %t (%s)", err, tc.refused, tc.why)
			}
			if tc.refused {
				return
			}
			full := registration(c, other)
			full.ResourceVersion = got.ResourceVersion
			if diff := cmp.Diff(full, got, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "TypeMeta" }, cmp.Ignore())); diff != "" {
				t.Errorf("Node (-want +got):\n%s", diff)
			}
			if !metav1.IsControlledBy(got, c) && len(got.OwnerReferences) != 1 {
				t.Errorf("owners %v", got.OwnerReferences)
			}
		})
	}
}

func TestOvertaken(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"a test of the patch failed": {apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", nodes, "n", "testing value /spec/taints/0 failed", 0, false), true},
		"the Node is invalid":        {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", field.ErrorList{field.Required(field.NewPath("spec"), "")}), false},
		"a webhook refuses it":       {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: "admission webhook denied the request"}}, false},
		"it is gone":                 {apierrors.NewNotFound(nodes, "n"), false},
	} {
		if got := overtaken(tc.err); got != tc.want {
			t.Errorf("%s: overtaken is %t, want %t", name, got, tc.want)
		}
	}
}
