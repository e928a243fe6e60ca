package snapshot

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/buffer"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/overlay"
)

// declarable are the kinds that a tree can declare. A cluster may lack some.
func declarable() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		aws.GroupVersion.WithKind("EC2NodeClass"), karpenter.GroupVersion.WithKind("NodePool"),
		overlay.GroupVersion.WithKind("NodeOverlay"), buffer.GroupVersion.WithKind("CapacityBuffer"),
	}
}

// takeDeclared reads the objects of kinds that Git can declare as the API server holds
// them, with who wrote which field, which a plan needs. What may hold a secret is veiled.
func takeDeclared(ctx context.Context, c client.Reader) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for _, kind := range declarable() {
		for token := ""; ; {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			err := c.List(ctx, list, client.Limit(page), client.Continue(token))
			if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
			}
			for _, o := range list.Items {
				o.SetGroupVersionKind(kind)
				veil(&o)
				out = append(out, o)
			}
			if token = list.GetContinue(); token == "" {
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b unstructured.Unstructured) int {
		key := func(u unstructured.Unstructured) string {
			return u.GetKind() + "/" + u.GetNamespace() + "/" + u.GetName()
		}
		return strings.Compare(key(a), key(b))
	})
	return out, nil
}

// veil takes the status away, and puts what only tells whether a text is the same in the
// place of user data and of annotations of others.
func veil(o *unstructured.Unstructured) {
	unstructured.RemoveNestedField(o.Object, "status")
	if text, ok, err := unstructured.NestedString(o.Object, "spec", "userData"); ok && err == nil {
		put(o, Veiled(text), "spec", "userData")
	}
	for _, path := range [][]string{{"metadata", "annotations"}, {"spec", "template", "metadata", "annotations"}} {
		all, _, err := unstructured.NestedStringMap(o.Object, path...)
		if err != nil {
			unstructured.RemoveNestedField(o.Object, path...)
			continue
		}
		keep := cluster.Steering(all)
		for k, v := range all {
			at := append(path[:len(path):len(path)], k)
			switch _, ours := keep[k]; {
			case strings.HasPrefix(k, "kubectl.kubernetes.io/"):
				unstructured.RemoveNestedField(o.Object, at...)
			case !ours:
				put(o, Veiled(v), at...)
			}
		}
	}
}

func put(o *unstructured.Unstructured, text string, path ...string) {
	if err := unstructured.SetNestedField(o.Object, text, path...); err != nil {
		unstructured.RemoveNestedField(o.Object, path...)
	}
}

// veiled begins what stands for a text that isn't shown.
const veiled = "veiled:"

// Veiled stands for a text: its length in bytes and 64 bits of its SHA-256, enough to
// tell whether another is the same.
func Veiled(text string) string {
	sum := sha256.Sum256([]byte(text))
	return veiled + strconv.Itoa(len(text)) + fmt.Sprintf(":%x", sum[:8])
}

// IsVeiled reports whether a text stands for another.
func IsVeiled(text string) bool { return strings.HasPrefix(text, veiled) }

// Unveil returns live with the texts of git in place of what stands for them. What
// stands for something else stays. Neither is changed.
func Unveil(live, git any) any {
	switch l := live.(type) {
	case map[string]any:
		g, _ := git.(map[string]any)
		out := make(map[string]any, len(l))
		for k, v := range l {
			out[k] = Unveil(v, g[k])
		}
		return out
	case string:
		if text, ok := git.(string); ok && IsVeiled(l) && Veiled(text) == l {
			return text
		}
	}
	return live
}
