package forecast

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Input is everything that a plan depends on.
type Input struct {
	// Picture is the cluster.
	Picture *snapshot.Snapshot
	// Offline says that the picture is a file's, not the cluster's now.
	Offline bool
	// Head is what the commit declares, as a bundle without errors.
	Head render.Bundle
	// Base is what was applied last, nil if it can't be had, and BaseCommit its commit.
	Base       *render.Bundle
	BaseCommit string
	// Source is the NodeSource that applies the commit, nil if there is none.
	Source *coppice.NodeSource
	Judge  *admission.Judge
	// Settings are what the controller runs with; nil stands for what the picture says, or
	// for the defaults.
	Settings *snapshot.Settings
	// Types lists what a class can launch, at which prices. Nil stands for the embedded
	// catalogue, at the prices that the controller knows if the picture has them.
	Types func(*aws.EC2NodeClass) ([]cloud.InstanceType, error)
}

// Plan says what applying the commit would do.
func Plan(in Input) (*plan.Plan, error) {
	targets, left, forbidden := targetsOf(in)
	changes, drift := plan.Changes(targets, in.Judge, true, kube.Manager)
	against := plan.Against{Kind: plan.AgainstCluster, Commit: in.BaseCommit, At: in.Picture.TakenAt}
	if in.Offline {
		against.Kind = plan.AgainstSnapshot
	}
	if in.Source != nil {
		against.Source = in.Source.Namespace + "/" + in.Source.Name
	}
	p := plan.New(in.Head.Cluster, against, len(in.Head.Objects), changes, drift)
	p.Notes = append(p.Notes, notes(in, targets, p)...)
	for _, d := range forbidden {
		p.Refused = append(p.Refused, fmt.Sprintf("%s of %s was written by %s, and spec.conflicts of NodeSource %s says fail", d.Field, d.Object, d.Manager, against.Source))
	}
	for _, d := range left {
		p.Left = append(p.Left, fmt.Sprintf("%s of %s is left to %s by spec.conflicts of NodeSource %s: what the commit says of it has no effect", d.Field, d.Object, d.Manager, against.Source))
	}
	slices.Sort(p.Refused)
	slices.Sort(p.Left)
	f, err := fleet(in, targets, changes)
	if err != nil {
		return nil, fmt.Errorf("forecast what becomes of nodes: %w", err)
	}
	p.Fleet = f
	return p, nil
}

// SourceFor finds the NodeSource that applies a cluster's folder of a tree: the one that
// is named, as namespace/name, or the only one that names the cluster, or the only one
// there is. It is nil if there is none.
func SourceFor(all []coppice.NodeSource, cluster, name string) (*coppice.NodeSource, error) {
	if name != "" {
		for i := range all {
			if all[i].Namespace+"/"+all[i].Name == name || all[i].Name == name {
				return &all[i], nil
			}
		}
		return nil, fmt.Errorf("the cluster has no NodeSource %s; it has %s", name, sourceNames(all))
	}
	fits := all
	if cluster != "" {
		fits = slices.DeleteFunc(slices.Clone(all), func(s coppice.NodeSource) bool { return s.Spec.Cluster != "" && s.Spec.Cluster != cluster })
	}
	switch len(fits) {
	case 0:
		return nil, nil
	case 1:
		return &fits[0], nil
	}
	return nil, fmt.Errorf("several NodeSources may apply this tree: %s; say which by --source", sourceNames(fits))
}

func sourceNames(all []coppice.NodeSource) string {
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// targetsOf joins what the commit declares with what is live and what the source has
// applied. left and forbidden are what the source's conflict rules say of it.
func targetsOf(in Input) (targets []plan.Target, left, forbidden []plan.Difference) {
	targets = plan.Targets(in.Head, in.Base)
	at := map[plan.ID]int{}
	for i, t := range targets {
		at[t.ID] = i
	}
	kinds := map[plan.ID]schema.GroupVersionKind{}
	for _, o := range in.Head.Objects {
		kinds[plan.Of(o.Value)] = o.GVK
	}
	inventory := map[plan.ID]coppice.InventoryEntry{}
	if in.Source != nil && in.Source.Status.Inventory != nil {
		for _, e := range in.Source.Status.Inventory.Entries {
			u, err := kube.Referenced(e)
			if err != nil {
				continue
			}
			id := plan.ID{Group: u.GroupVersionKind().Group, Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
			inventory[id] = e
			if _, ok := at[id]; !ok {
				at[id] = len(targets)
				targets = append(targets, plan.Target{ID: id})
			}
		}
	}
	for i := range in.Picture.Declared {
		live := in.Picture.Declared[i].Object
		if j, ok := at[plan.Of(live)]; ok {
			targets[j].Live = live
		}
	}
	for i := range targets {
		t := &targets[i]
		entry, applied := inventory[t.ID]
		if t.Live != nil {
			live := snapshot.Unveil(snapshot.Unveil(t.Live, t.Head), t.Base)
			t.Live, _ = live.(map[string]any)
		}
		if t.Head == nil {
			t.Kept = kept(in.Source, applied, t.Live)
			continue
		}
		if in.Source == nil {
			continue
		}
		t.Judge = plan.Rules(in.Source.Spec.Conflicts, t.ID, kube.Manager, in.Picture.TakenAt)
		// Where a source only warns it applies what Git has changed, and nothing else.
		same := applied && t.Live != nil && entry.Digest == kube.Digest(kube.Object(kinds[t.ID], t.Head))
		t.Untouched = same && plan.DriftMode(t.Head, in.Source.Spec.DriftMode) != coppice.DriftCorrect
		if !same {
			l, f := plan.Ruled(*t, in.Judge, kube.Manager)
			left, forbidden = append(left, l...), append(forbidden, f...)
		}
	}
	return targets, left, forbidden
}

// kept says why an object that the commit doesn't declare stays, "" if it goes.
func kept(source *coppice.NodeSource, applied bool, live map[string]any) string {
	meta, _ := live["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	switch {
	case source == nil:
		return "no NodeSource has applied it"
	case !applied:
		return fmt.Sprintf("NodeSource %s/%s hasn't applied it", source.Namespace, source.Name)
	case !source.Prunes():
		return fmt.Sprintf("NodeSource %s/%s doesn't prune", source.Namespace, source.Name)
	case annotations[kube.PruneAnnotation] == "disabled" || annotations[kube.FluxPruneAnnotation] == "disabled":
		return "its annotation forbids it"
	}
	return ""
}

// bears reports whether a pool or class has nodes.
func bears(claims []karpenter.NodeClaim, id plan.ID) bool {
	return slices.ContainsFunc(claims, func(c karpenter.NodeClaim) bool {
		ref := c.Spec.NodeClassRef
		return id.Kind == "NodePool" && c.Labels[karpenter.LabelNodePool] == id.Name ||
			id.Kind == "EC2NodeClass" && ref != nil && ref.Kind == id.Kind && ref.Name == id.Name
	})
}

// notes say what the plan of objects leaves open.
func notes(in Input, targets []plan.Target, p *plan.Plan) []string {
	var out []string
	for _, t := range targets {
		if t.Head == nil && t.Live != nil && t.Kept != "" {
			out = append(out, fmt.Sprintf("%s isn't declared, and stays: %s.", t.ID, t.Kept))
		}
	}
	if s := in.Source; s != nil {
		name := s.Namespace + "/" + s.Name
		if limit := s.Deletions(); p.Summary.Delete > limit {
			out = append(out, fmt.Sprintf("NodeSource %s will refuse the commit, unless coppice.cue confirms deletions: it deletes %d objects, and spec.maxDeletes is %d.", name, p.Summary.Delete, limit))
		}
		for _, t := range targets {
			if t.Head == nil && t.Live != nil && t.Kept == "" && bears(in.Picture.NodeClaims, t.ID) {
				out = append(out, fmt.Sprintf("%s has nodes: where their deletion exceeds spec.maxDeletedNodes, the commit waits until coppice.cue lists it under deletes.", t.ID))
			}
		}
		if s.Spec.Suspend {
			out = append(out, fmt.Sprintf("NodeSource %s is suspended: nothing is applied before it is resumed.", name))
		}
	} else {
		out = append(out, "No NodeSource applies this tree yet: nothing is deleted, whatever the commit leaves out.")
	}
	if in.Base == nil && in.Source != nil && in.Source.Status.LastAppliedRevision != "" {
		out = append(out, fmt.Sprintf("The commit that is applied, %s, isn't at hand: drift is told from change by who wrote a field last.", in.Source.Status.LastAppliedRevision))
	}
	return out
}
