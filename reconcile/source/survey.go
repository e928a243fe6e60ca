package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// rolloutDelay is the pause before a rollout is looked at again. A node takes
// about a minute to be replaced.
const rolloutDelay = 10 * time.Second

// survey sums up what isn't config drift: nodes that aren't as declared, and
// objects that no source has.
func (p *pass) survey(ctx context.Context) error {
	fleet, err := p.fleet(ctx)
	if err != nil {
		return kubeFailure(reasonDriftCheck, err)
	}
	orphans, err := p.orphans(ctx)
	if err != nil {
		return kubeFailure(reasonDriftCheck, err)
	}
	p.src.Status.Fleet, p.src.Status.Orphans = fleet, orphans
	if before := p.read.Status.Orphans; orphans != nil && (before == nil || !slices.Equal(before.Items, orphans.Items)) {
		p.warn(reasonOrphans, strings.Join(orphans.Items, " "), "%s; declare or delete them",
			enumerate(plural(int(orphans.Objects), "object is", "objects are")+" in no NodeSource: ", orphans.Items, ", ", valueBytes))
	}
	return nil
}

// pools are the names of the NodePools that the source has.
func (p *pass) pools() map[string]bool {
	out := map[string]bool{}
	for _, e := range p.entries() {
		if u, err := kube.Referenced(e); err == nil && u.GetKind() == "NodePool" {
			out[u.GetName()] = true
		}
	}
	return out
}

// fleetItems is the API's limit of items.
const fleetItems = 20

// fleet counts the nodes of the source's pools that either engine has found not to
// be as declared, nil for none.
func (p *pass) fleet(ctx context.Context) (*coppice.FleetSummary, error) {
	var claims karpenter.NodeClaimList
	if err := p.client.List(ctx, &claims); err != nil {
		return nil, fmt.Errorf("list NodeClaims: %w", err)
	}
	mine, counts := p.pools(), map[coppice.FleetItem]int32{}
	out := &coppice.FleetSummary{}
	for i := range claims.Items {
		c := &claims.Items[i]
		drifted := meta.FindStatusCondition(c.Status.Conditions, karpenter.ConditionDrifted)
		pool := c.Labels[karpenter.LabelNodePool]
		if mine[pool] && drifted != nil && drifted.Status == metav1.ConditionTrue {
			counts[coppice.FleetItem{Pool: pool, Reason: drifted.Reason}]++
			out.Drifted++
		}
	}
	if out.Drifted == 0 {
		return nil, nil
	}
	for item, n := range counts {
		item.Nodes = n
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(a, b coppice.FleetItem) int {
		return strings.Compare(a.Pool+"\x00"+a.Reason, b.Pool+"\x00"+b.Reason)
	})
	out.Items = out.Items[:min(len(out.Items), fleetItems)]
	return out, nil
}

// orphans lists pools and classes that no source has, nil for none, and nil unless
// this source is the one to tell.
func (p *pass) orphans(ctx context.Context) (*coppice.OrphanSummary, error) {
	var sources coppice.NodeSourceList
	if err := p.client.List(ctx, &sources); err != nil {
		return nil, fmt.Errorf("list sources: %w", err)
	}
	owned := map[string]bool{}
	for _, e := range p.entries() {
		owned[e.ID] = true
	}
	for i := range sources.Items {
		s := &sources.Items[i]
		if s.UID != p.src.UID && !s.Spec.Suspend && older(s, p.src) {
			return nil, nil
		}
		if s.UID != p.src.UID && s.Status.Inventory != nil {
			for _, e := range s.Status.Inventory.Entries {
				owned[e.ID] = true
			}
		}
	}
	var found []string
	for _, kind := range []struct{ group, version, kind string }{
		{karpenter.Group, karpenter.GroupVersion.Version, "NodePool"}, {aws.Group, aws.GroupVersion.Version, "EC2NodeClass"},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.APIVersion, list.Kind = kind.group+"/"+kind.version, kind.kind+"List"
		if err := p.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind.kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if id := strings.Join([]string{o.Namespace, o.Name, kind.group, kind.kind}, "_"); !owned[id] && o.DeletionTimestamp == nil {
				found = append(found, kind.kind+"/"+o.Name)
			}
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	slices.Sort(found)
	return &coppice.OrphanSummary{Objects: int32(len(found)), Items: found[:min(len(found), driftItems)]}, nil
}

// rollout waits, if the source asks for it, until what was applied is ready and no
// node is left to be replaced.
func (p *pass) rollout(ctx context.Context) error {
	if !p.src.Spec.Wait || p.rolledOut() {
		return nil
	}
	var claims karpenter.NodeClaimList
	if err := p.client.List(ctx, &claims); err != nil {
		return kubeFailure(reasonApply, fmt.Errorf("list NodeClaims: %w", err))
	}
	var pending []string
	for _, o := range p.memory.head.objects {
		why, err := p.pending(ctx, o, claims.Items)
		if err != nil {
			return kubeFailure(reasonApply, err)
		}
		if why != "" {
			pending = append(pending, planID(o.Object).String()+" "+why)
		}
	}
	if len(pending) == 0 {
		return nil
	}
	// The commit is applied; only its outcome is still open.
	p.memory.open = true
	return waiting(reasonRollout, rolloutDelay, errors.New(enumerate(p.head.Short()+" is being rolled out: ", pending, ", ", messageBytes)))
}

// rolledOut reports whether the source was Ready with this spec and commit already and
// nothing had to be done for it: nodes that drift since, as from a newer image, are no
// rollout of the commit.
func (p *pass) rolledOut() bool {
	ready := meta.FindStatusCondition(p.read.Status.Conditions, conditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == p.src.Generation &&
		p.read.Status.LastAppliedRevision == p.try.revision && p.deleted == 0 &&
		!slices.ContainsFunc(p.todo, func(t pending) bool { return t.writes })
}

// pending says why an object isn't rolled out, "" if it is. It reads past the
// cache, which may show the object as it was before it was applied.
func (p *pass) pending(ctx context.Context, o declared, claims []karpenter.NodeClaim) (string, error) {
	switch o.GVK.Kind {
	case "NodePool":
		pool := &karpenter.NodePool{}
		if err := p.reader.Get(ctx, client.ObjectKey{Name: o.Name}, pool); err != nil {
			return "", fmt.Errorf("read NodePool %s: %w", o.Name, err)
		}
		if why := unready(pool.Status.Conditions, karpenter.ConditionReady, pool.Generation); why != "" {
			return why, nil
		}
		total, old := 0, 0
		for i := range claims {
			c := &claims[i]
			if c.Labels[karpenter.LabelNodePool] != pool.Name {
				continue
			}
			total++
			if meta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionDrifted) || outdated(pool, c) {
				old++
			}
		}
		if old > 0 {
			return fmt.Sprintf("has %d of %s to replace", old, plural(total, "node", "nodes")), nil
		}
		// Our own engine says it before it has looked at each claim.
		if c := meta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionNodeClaimsDrifted); c != nil &&
			(c.Status != metav1.ConditionFalse || c.ObservedGeneration != pool.Generation) {
			return "has nodes to replace", nil
		}
	case "EC2NodeClass":
		class := &aws.EC2NodeClass{}
		if err := p.reader.Get(ctx, client.ObjectKey{Name: o.Name}, class); err != nil {
			return "", fmt.Errorf("read EC2NodeClass %s: %w", o.Name, err)
		}
		return unready(class.Status.Conditions, aws.ConditionReady, class.Generation), nil
	}
	return "", nil
}

// unready says why a condition isn't true of a generation, "" if it is.
func unready(list []metav1.Condition, kind string, generation int64) string {
	c := meta.FindStatusCondition(list, kind)
	switch {
	case c == nil, c.ObservedGeneration != generation && c.ObservedGeneration != 0:
		return "has not been looked at"
	case c.Status == metav1.ConditionTrue:
		return ""
	case c.Message != "":
		return "is not ready: " + c.Message
	}
	return "is not ready: " + c.Reason
}

// outdated reports whether a claim was made from another template than the pool's,
// as whoever hashes both says.
func outdated(pool *karpenter.NodePool, c *karpenter.NodeClaim) bool {
	hash, version := karpenter.AnnotationNodePoolHash, karpenter.AnnotationNodePoolHashVersion
	return pool.Annotations[hash] != "" && c.Annotations[hash] != "" &&
		pool.Annotations[version] == c.Annotations[version] && pool.Annotations[hash] != c.Annotations[hash]
}
