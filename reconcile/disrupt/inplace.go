package disrupt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// annotationTemplate holds on a claim what it last was made to follow of its pool and
// class, where the pool wants some of that changed in place: a hash alone doesn't say
// what has changed.
const annotationTemplate = coppice.Group + "/template"

// template is what can be changed on a running node.
type template struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []corev1.Taint    `json:"taints,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
}

func templateOf(pool *karpenter.NodePool, class *aws.EC2NodeClass) template {
	t := pool.Spec.Template
	return template{Labels: t.Labels, Annotations: t.Annotations, Taints: t.Spec.Taints, Tags: class.Spec.Tags}
}

func (t template) encode() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings have a JSON form
	}
	return string(text)
}

// rest is what of the template isn't changed in place. Labels that say what a node is
// never are, though a key that ends in * may stand for some.
func (t template) rest(o sugar.InPlace) template {
	without := func(m map[string]string, keys []string) map[string]string {
		out := map[string]string{}
		for k, v := range m {
			if !sugar.Names(keys, k) {
				out[k] = v
			}
		}
		return out
	}
	labels := without(t.Labels, o.Labels)
	for k, v := range t.Labels {
		if sugar.Fixed(k) {
			labels[k] = v
		}
	}
	out := template{Labels: labels, Annotations: without(t.Annotations, o.Annotations), Tags: without(t.Tags, o.Tags)}
	for _, x := range t.Taints {
		if !sugar.Names(o.Taints, x.Key) {
			out.Taints = append(out.Taints, x)
		}
	}
	return out
}

// follow is what a claim has to do to be as its pool and class are.
type follow uint8

const (
	// replaced: nothing can be done in place, or nothing is to be done.
	replaced follow = iota
	// adopt: it is as they are, but doesn't carry the template yet.
	adopt
	// change: all that has changed can be changed in place.
	change
)

// following compares a claim with its pool and class. last is what it followed so far.
func following(claim *karpenter.NodeClaim, pool *karpenter.NodePool, class *aws.EC2NodeClass, o sugar.InPlace) (what follow, last template) {
	a := claim.Annotations
	if a[karpenter.AnnotationNodePoolHashVersion] != karpenter.NodePoolHashVersion || a[aws.AnnotationEC2NodeClassHashVersion] != aws.EC2NodeClassHashVersion {
		return replaced, last // hashes of another algorithm can't be compared
	}
	want := templateOf(pool, class)
	poolHash, classHash := a[karpenter.AnnotationNodePoolHash], a[aws.AnnotationEC2NodeClassHash]
	if poolHash == pool.Hash() && classHash == class.Hash() {
		if a[annotationTemplate] == want.encode() {
			return replaced, last
		}
		return adopt, last
	}
	text, ok := a[annotationTemplate]
	if !ok || json.Unmarshal([]byte(text), &last) != nil || !equality.Semantic.DeepEqual(last.rest(o), want.rest(o)) {
		return replaced, last
	}
	for k := range last.Tags {
		if _, stays := want.Tags[k]; !stays {
			return replaced, last // Karpenter's IAM policy lets tags be set, not removed
		}
	}
	// Apart from what is changed in place they must be as at the launch.
	was, wasClass := pool.DeepCopy(), class.DeepCopy()
	was.Spec.Template.Labels, was.Spec.Template.Annotations, was.Spec.Template.Spec.Taints = last.Labels, last.Annotations, last.Taints
	wasClass.Spec.Tags = last.Tags
	if was.Hash() != poolHash || wasClass.Hash() != classHash {
		return replaced, last
	}
	return change, last
}

// Follows reports whether a claim's node is changed where it is, by its pool's choice,
// to be as pool and class declare.
func Follows(claim *karpenter.NodeClaim, pool *karpenter.NodePool, class *aws.EC2NodeClass) bool {
	o, err := sugar.Parse(pool.Annotations)
	if err != nil || o.InPlace == nil {
		return false
	}
	what, _ := following(claim, pool, class, *o.InPlace)
	return what == change
}

// overlay returns m with what differs between two templates changed.
func overlay(m, last, want map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range last {
		if _, stays := want[k]; !stays && out[k] == v {
			delete(out, k)
		}
	}
	for k, v := range want {
		if old, had := last[k]; !had || old != v {
			out[k] = v
		}
	}
	return out
}

// retaint returns taints with what differs between two templates changed.
func retaint(taints, last, want []corev1.Taint) []corev1.Taint {
	has := func(list []corev1.Taint, t corev1.Taint) bool {
		return slices.ContainsFunc(list, func(x corev1.Taint) bool { return x.MatchTaint(&t) && x.Value == t.Value })
	}
	var out []corev1.Taint
	for _, t := range taints {
		if !has(last, t) || has(want, t) {
			out = append(out, t)
		}
	}
	for _, t := range want {
		if has(last, t) {
			continue
		}
		out = slices.DeleteFunc(out, func(x corev1.Taint) bool { return x.MatchTaint(&t) })
		out = append(out, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return out
}

// inPlace changes on a running node what its pool wants changed there. It returns
// false if the claim was changed or has to wait, so that it isn't to be judged now.
func (r *drift) inPlace(ctx context.Context, claim *karpenter.NodeClaim, pool *karpenter.NodePool) (judge bool, err error) {
	o, _ := sugar.Parse(pool.Annotations) // a fault there keeps all nodes, see Pool.Err
	if o.InPlace == nil {
		return true, nil
	}
	var class aws.EC2NodeClass
	if err := r.kube.Get(ctx, types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}, &class); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	what, last := following(claim, pool, &class, *o.InPlace)
	if what == replaced {
		return true, nil
	}
	want := templateOf(pool, &class)
	changed := claim.DeepCopy()
	if what == change {
		if claim.Status.NodeName == "" {
			return false, nil // its registration is about to write what the claim says
		}
		if err := r.changeNode(ctx, claim, last, want); err != nil {
			return false, err
		}
		changed.Labels = overlay(claim.Labels, last.Labels, want.Labels)
		changed.Annotations = overlay(claim.Annotations, last.Annotations, want.Annotations)
	}
	changed.Annotations[annotationTemplate] = want.encode()
	changed.Annotations[karpenter.AnnotationNodePoolHash] = pool.Hash()
	changed.Annotations[aws.AnnotationEC2NodeClassHash] = class.Hash()
	if err := r.kube.Patch(ctx, changed, client.MergeFrom(claim)); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if what == change {
		r.events.Eventf(claim, nil, corev1.EventTypeNormal, "ChangedInPlace", "Update", "Labels, annotations, taints and tags follow NodePool %s without a replacement", pool.Name)
	}
	return false, nil
}

// changeNode lets a claim's Node and instance follow. It comes before the claim: after
// a crash in between it is done again, to no effect.
func (r *drift) changeNode(ctx context.Context, claim *karpenter.NodeClaim, last, want template) error {
	tags := map[string]string{}
	for k, v := range want.Tags {
		if last.Tags[k] != v {
			tags[k] = v
		}
	}
	if len(tags) > 0 {
		if err := r.cloud.Tag(ctx, claim.InstanceID(), tags); err != nil {
			return err
		}
	}
	var node corev1.Node
	if err := r.kube.Get(ctx, types.NamespacedName{Name: claim.Status.NodeName}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	changed := node.DeepCopy()
	changed.Labels = overlay(node.Labels, last.Labels, want.Labels)
	changed.Annotations = overlay(node.Annotations, last.Annotations, want.Annotations)
	// The label do-not-sync-taints is about what the kubelet registered with; this is
	// only what has changed since.
	changed.Spec.Taints = retaint(node.Spec.Taints, last.Taints, want.Taints)
	if equality.Semantic.DeepEqual(&node, changed) {
		return nil
	}
	// The list of taints is replaced as a whole.
	if err := r.kube.Patch(ctx, changed, client.MergeFromWithOptions(&node, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("change Node %s in place: %w", node.Name, err)
	}
	return nil
}
