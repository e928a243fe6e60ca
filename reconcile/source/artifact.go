package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// fluxKind returns one of Flux's kinds of sources.
func fluxKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: kind}
}

// fluxKinds are those that a source may refer to.
func fluxKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{fluxKind("GitRepository"), fluxKind("OCIRepository")}
}

func fluxObject(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// artifactDelay is the pause before an object of Flux that has no artifact is
// looked at again, if nothing tells of one.
const artifactDelay = 10 * time.Second

// resolveArtifact reads what Flux has fetched.
func (p *pass) resolveArtifact(ctx context.Context) error {
	ref := p.src.Spec.SourceRef
	obj := fluxObject(fluxKind(ref.Kind))
	err := p.reader.Get(ctx, client.ObjectKey{Namespace: p.src.Namespace, Name: ref.Name}, obj)
	switch {
	case meta.IsNoMatchError(err):
		return waiting(reasonNoKind, kindDelay, fmt.Errorf("the cluster has no kind %s in %s; install Flux's source-controller, or give spec.url instead of spec.sourceRef", ref.Kind, fluxKind(ref.Kind).GroupVersion()))
	case apierrors.IsNotFound(err):
		return terminally(reasonRepository, fmt.Errorf("there is no %s %q in this namespace", ref.Kind, ref.Name))
	case err != nil:
		return retrying(reasonFetch, fmt.Errorf("read %s %q: %w", ref.Kind, ref.Name, err))
	}
	found, ok := artifactOf(obj)
	if !ok {
		return waiting(reasonArtifact, artifactDelay, fmt.Errorf("%s %q has no artifact yet; see its conditions", ref.Kind, ref.Name))
	}
	if found.digest == "" {
		return terminally(reasonRepository, fmt.Errorf("the artifact of %s %q has no digest, so that nobody can tell whether it is the one that is meant", ref.Kind, ref.Name))
	}
	rev, err := git.ParseRevision(found.revision)
	if err != nil {
		return terminally(reasonRepository, fmt.Errorf("the artifact of %s %q: %w", ref.Kind, ref.Name, err))
	}
	p.head, p.artifact, p.try.content = rev, git.Artifact{URL: found.url, Digest: found.digest}, found.digest
	return nil
}

// artifact is what status.artifact says of one.
type artifact struct{ url, digest, revision string }

func artifactOf(obj *unstructured.Unstructured) (artifact, bool) {
	get := func(field string) string {
		text, _, _ := unstructured.NestedString(obj.Object, "status", "artifact", field)
		return text
	}
	a := artifact{get("url"), get("digest"), get("revision")}
	return a, a.url != "" && a.revision != ""
}

// artifactTree downloads the artifact, if it is the revision's.
func (p *pass) artifactTree(ctx context.Context, rev git.Revision) (fs.FS, error) {
	if p.head != rev {
		// The drift part asks for what was applied. Flux keeps nothing but the last.
		if err := p.resolveArtifact(ctx); err != nil {
			return nil, err
		}
		if p.head != rev {
			return nil, waiting(reasonArtifact, p.interval(), fmt.Errorf("%s is what was applied, and Flux has no artifact of it any more; drift is looked for when the present one is applied", rev.Short()))
		}
	}
	tree, err := p.artifact.Get(ctx, p.src.Spec.Path)
	switch {
	case errors.Is(err, git.ErrDigest):
		// The announcement may be newer than what was downloaded; the next look tells.
		return nil, retrying(reasonFetch, err)
	case err != nil:
		return nil, gitFailure(err)
	}
	return tree, nil
}

// watchArtifacts makes every source whose artifact changed due. Kinds that aren't
// installed are left to the interval.
func (r *Reconciler) watchArtifacts(mgr ctrl.Manager, b *ctrl.Builder) *ctrl.Builder {
	for _, gvk := range fluxKinds() {
		if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			continue
		}
		b = b.Watches(fluxObject(gvk), handler.EnqueueRequestsFromMapFunc(r.sourcesFrom), builder.WithPredicates(fetched()))
	}
	return b
}

// fetched lets changes of an object of Flux through that are another artifact.
func fetched() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*unstructured.Unstructured)
		after, ok2 := e.ObjectNew.(*unstructured.Unstructured)
		if !ok || !ok2 {
			return true
		}
		a, _ := artifactOf(before)
		b, _ := artifactOf(after)
		return a != b
	}}
}

// sourcesFrom returns the sources that refer to an object of Flux.
func (r *Reconciler) sourcesFrom(ctx context.Context, o client.Object) []reconcile.Request {
	var list coppice.NodeSourceList
	if err := r.client.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
		return nil
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	var out []reconcile.Request
	for i := range list.Items {
		if ref := list.Items[i].Spec.SourceRef; ref != nil && ref.Kind == kind && ref.Name == o.GetName() {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}})
		}
	}
	return out
}
