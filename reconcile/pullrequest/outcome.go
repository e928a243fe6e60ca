package pullrequest

import (
	"context"
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// outcome says what has become of a merged pull request, until there is nothing more
// to come. One that nothing was said in before stays without a word.
func (r *Reconciler) outcome(ctx context.Context, v *view, m *pullMemory) error {
	if m.done {
		return nil
	}
	marker, there, err := forge.Find(ctx, v.forge, v.pull.Number, v.ClusterName, v.name())
	if err != nil {
		return err
	}
	if !there || marker.Phase == forge.Done {
		m.done = true
		return nil
	}
	if m.merged == nil {
		whole, err := v.forge.Pull(ctx, v.pull.Number)
		if err != nil {
			return err
		}
		m.merged = &whole
	}
	v.pull = *m.merged
	text, phase, err := v.progress(ctx)
	if err != nil {
		return err
	}
	if phase == forge.Done && !m.settled {
		// A class that has just been applied may not have been compared with nodes yet.
		m.settled = true
		return nil
	}
	m.settled = phase == forge.Done
	body := forge.Body{Cluster: v.ClusterName, Source: v.name(), Head: v.pull.Head, Outcome: text}
	_, err = forge.Stick(ctx, v.forge, v.pull.Number, forge.Post{
		Marker: v.marker(phase), Quiet: true,
		Text: func(room int) string { return body.Text(v.forge.Limits(), room) },
	}, &m.comment)
	m.done = err == nil && phase == forge.Done
	return err
}

// progress says in words how far a merged change has come. Of one from a fork it says
// no more than that: why it isn't applied and what nodes do is of the cluster.
func (v *view) progress(ctx context.Context) (string, forge.Phase, error) {
	merged := "**Merged** as " + forge.Code(forge.Short(v.pull.MergeCommit))
	applied, err := v.reached(ctx, v.src.Status.LastAppliedRevision)
	if err != nil {
		return "", "", err
	}
	if !applied {
		tried, err := v.reached(ctx, v.src.Status.LastAttemptedRevision)
		if err != nil {
			return "", "", err
		}
		ready := apimeta.FindStatusCondition(v.src.Status.Conditions, "Ready")
		if tried && ready != nil && ready.Status == metav1.ConditionFalse {
			if v.pull.Fork {
				return merged + ", **not applied**.", forge.Merged, nil
			}
			return merged + ", **not applied**: " + forge.Code(ready.Message), forge.Merged, nil
		}
		return merged + ", waits to be applied.", forge.Merged, nil
	}
	if v.pull.Fork {
		return merged + ", **applied**. Done.", forge.Done, nil
	}
	pools, settled, err := v.pools(ctx)
	if err != nil {
		return "", "", err
	}
	if !settled {
		return merged + ", **applied**. Nodes are being replaced:\n\n" + pools, forge.Merged, nil
	}
	return merged + ", **applied**, and the nodes are as declared. Done.", forge.Done, nil
}

// reached reports whether a revision of the source holds what was merged.
func (v *view) reached(ctx context.Context, revision string) (bool, error) {
	rev, err := git.ParseRevision(revision)
	if err != nil || v.pull.MergeCommit == "" {
		return false, nil // nothing was applied yet
	}
	ok, err := v.forge.Contains(ctx, v.pull.MergeCommit, rev.Hash)
	if err != nil {
		return false, fmt.Errorf("ask whether %s holds %s: %w", forge.Short(rev.Hash), forge.Short(v.pull.MergeCommit), err)
	}
	return ok, nil
}

// pools lists the source's pools with nodes that aren't as declared. settled is false
// too while a pool hasn't been looked at since it changed.
func (v *view) pools(ctx context.Context) (text string, settled bool, err error) {
	settled = true
	if v.src.Status.Inventory == nil {
		return "", true, nil
	}
	var b strings.Builder
	if v.EngineOff {
		// The engine that there is says of NodeClaims what has drifted, and nothing of pools.
		if v.src.Status.Fleet == nil {
			return "", true, nil
		}
		for _, i := range v.src.Status.Fleet.Items {
			fmt.Fprintf(&b, "- %s: %d NodeClaims are not as declared (%s)\n", forge.Code(i.Pool), i.Nodes, forge.Code(i.Reason))
		}
		return b.String(), false, nil
	}
	for _, e := range v.src.Status.Inventory.Entries {
		u, err := kube.Referenced(e)
		if err != nil || u.GetKind() != "NodePool" {
			continue
		}
		var pool karpenter.NodePool
		if err := v.reader.Get(ctx, client.ObjectKey{Name: u.GetName()}, &pool); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return "", false, fmt.Errorf("read NodePool %s: %w", u.GetName(), err)
		}
		c := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionNodeClaimsDrifted)
		switch {
		case c == nil || c.ObservedGeneration < pool.Generation:
			settled = false
			fmt.Fprintf(&b, "- %s: not looked at yet\n", forge.Code(pool.Name))
		case c.Status == metav1.ConditionTrue:
			settled = false
			fmt.Fprintf(&b, "- %s: %s\n", forge.Code(pool.Name), forge.Code(c.Message))
		}
	}
	return b.String(), settled, nil
}
