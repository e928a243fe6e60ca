package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// atOnce is how many nodes are opened at once where speed isn't measured.
const atOnce = 50

// fill creates the NodeClaims, and when their Nodes have come the pods on these: each node
// has a ReplicaSet of its own. It says how that went.
func (b *bench) fill(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, growLimit, fmt.Errorf("%s is over", growLimit))
	defer cancel()
	began := time.Now()
	pool, class := &karpenter.NodePool{}, &aws.EC2NodeClass{}
	for _, o := range []client.Object{pool, class} {
		if err := b.client.Get(ctx, client.ObjectKey{Name: "default"}, o); err != nil {
			return "", fmt.Errorf("read pool and class: %w", err)
		}
	}
	// Nodes that wait for their pods would be taken for empty.
	if err := b.consolidate(ctx, pool, "Never"); err != nil {
		return "", err
	}
	var names []string
	for made := 0; made < b.cfg.Nodes; {
		some := min(atOnce, b.cfg.Nodes-made)
		if err := errors.Join(kube.Each(some, func(int) error {
			return b.client.Create(ctx, provision.NewClaim(pool, class, provision.TemplateNode(pool)))
		})...); err != nil {
			return "", fmt.Errorf("create NodeClaims: %w", err)
		}
		made += some
		if err := await.Objects(ctx, b.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
			names = nil
			for _, c := range claims {
				if meta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionInitialized) {
					names = append(names, c.Status.NodeName)
				}
			}
			return len(names) == made, fmt.Sprintf("%d nodes initialized", len(names))
		}); err != nil {
			return "", fmt.Errorf("wait for the nodes: %w", err)
		}
		b.say("%d nodes are initialized", made)
	}
	nodes := time.Since(began)
	if err := errors.Join(kube.Each(len(names), func(i int) error {
		return b.client.Create(ctx, b.replicaSet(i, names[i]))
	})...); err != nil {
		return "", fmt.Errorf("create ReplicaSets: %w", err)
	}
	if err := await.Objects(ctx, b.client, &appsv1.ReplicaSetList{}, func(sets []*appsv1.ReplicaSet) (bool, string) {
		n := 0
		for _, s := range sets {
			n += int(s.Status.ReadyReplicas)
		}
		return n == b.cfg.Pods, fmt.Sprintf("%d pods ready", n)
	}); err != nil {
		return "", fmt.Errorf("wait for the pods: %w", err)
	}
	if err := b.consolidate(ctx, pool, "30s"); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nodes were initialized within %.1f s, and %d pods ran on them %.1f s later",
		len(names), nodes.Seconds(), b.cfg.Pods, (time.Since(began) - nodes).Seconds()), nil
}

func (b *bench) consolidate(ctx context.Context, pool *karpenter.NodePool, after string) error {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"disruption":{"consolidateAfter":%q}}}`, after))
	if err := b.client.Patch(ctx, pool, patch); err != nil {
		return fmt.Errorf("set the pool's consolidateAfter: %w", err)
	}
	return nil
}

// replicaSet is that of a node, with the pods of a Deployment.
func (b *bench) replicaSet(number int, node string) *appsv1.ReplicaSet {
	d := b.deployment(number, b.cfg.Pods/b.cfg.Nodes)
	d.Spec.Template.Spec.NodeName = node
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: d.Name},
		Spec:       appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
}
