package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/reconcile/disrupt"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// verdict is why a machine is out of date.
type verdict struct {
	reason string
	cause  []string
	// assumed: only the cloud could tell. already: it was before the change.
	assumed, already bool
}

// reasonDeleted stands for the end of a machine's pool.
const reasonDeleted = "Deleted"

// judge finds the machines that are out of date once the change is applied.
func (f *forecaster) judge() {
	for _, c := range f.claims {
		if c.DeletionTimestamp != nil {
			continue // it goes already
		}
		name := c.Labels[karpenter.LabelNodePool]
		if f.gone[name] {
			f.why[c.Name] = verdict{reason: reasonDeleted, cause: []string{"NodePool " + name + " is deleted"}}
			continue
		}
		if v, is := f.judgeOne(c, name); is {
			f.why[c.Name] = v
		}
	}
}

func (f *forecaster) judgeOne(c *karpenter.NodeClaim, name string) (verdict, bool) {
	now := apimeta.FindStatusCondition(c.Status.Conditions, karpenter.ConditionDrifted)
	already := now != nil && now.Status == "True"
	poolChange, poolChanged := f.changed("NodePool", name)
	classChange, classChanged := f.changed("EC2NodeClass", c.Spec.NodeClassRef.Name)
	pool := f.pools[name]
	if pool == nil {
		return verdict{}, false
	}
	class := f.classes[c.Spec.NodeClassRef.Name]
	if class != nil && (poolChanged || classChanged) {
		// It has its class's hash, if the class doesn't change and it wasn't drifted.
		follows := c.DeepCopy()
		if follows.Annotations == nil {
			follows.Annotations = map[string]string{}
		}
		if !classChanged && !already {
			follows.Annotations[aws.AnnotationEC2NodeClassHash] = class.Hash()
		}
		if disrupt.Follows(follows, pool, class) {
			f.out.InPlace++
			follows.Annotations[karpenter.AnnotationNodePoolHash] = pool.Hash()
			follows.Annotations[aws.AnnotationEC2NodeClassHash] = class.Hash()
			c = follows
		}
	}
	byPool := already && isOf(now.Reason, cluster.NodePoolDrifted, cluster.RequirementsDrifted)
	if poolChanged {
		if reason := f.poolDrift(c, pool); reason != "" {
			return verdict{reason: reason, cause: poolCause(reason, poolChange, pool, c), already: already}, true
		}
	} else if byPool {
		return verdict{reason: now.Reason, already: true}, true
	}
	if classChanged && class != nil {
		if v, is := f.classDrift(c, class, classChange); is {
			v.already = already
			return v, true
		}
	}
	// What the class's selectors find is as it was, if the class is.
	if already && !byPool && (!classChanged || now.Reason != cloud.NodeClassDrift) {
		return verdict{reason: now.Reason, already: true}, true
	}
	return verdict{}, false
}

func isOf(s string, list ...string) bool { return slices.Contains(list, s) }

func (f *forecaster) changed(kind, name string) (plan.Change, bool) {
	for id, c := range f.changes {
		if id.Kind == kind && id.Name == name {
			return c, c.Action == plan.Update
		}
	}
	return plan.Change{}, false
}

// poolDrift judges as the controller will. Annotations of the template that a picture
// doesn't show make the pool's hash another one: then a template counts as changed if it
// differs from what it was.
func (f *forecaster) poolDrift(c *karpenter.NodeClaim, pool *karpenter.NodePool) string {
	d := cluster.Declare(pool).Drift(c)
	hidden := func(p *karpenter.NodePool) bool {
		return p != nil && slices.ContainsFunc(slices.Collect(maps.Values(p.Spec.Template.Annotations)), snapshot.IsVeiled)
	}
	if d == cluster.NodePoolDrifted && hidden(pool) {
		f.note("NodePool %s has annotations in its template that Git doesn't hold and that aren't shown: its nodes are taken to match it as far as the fields that are.", pool.Name)
		plain := pool.DeepCopy()
		maps.DeleteFunc(plain.Spec.Template.Annotations, func(_, v string) bool { return snapshot.IsVeiled(v) })
		old := f.former[pool.Name]
		if old != nil && old.Hash() == plain.Hash() {
			copied := c.DeepCopy()
			delete(copied.Annotations, karpenter.AnnotationNodePoolHashVersion)
			return cluster.Declare(pool).Drift(copied)
		}
	}
	return d
}

// poolCause names the fields of a pool that put a machine out of date.
func poolCause(reason string, change plan.Change, pool *karpenter.NodePool, c *karpenter.NodeClaim) []string {
	var out []string
	if reason == cluster.RequirementsDrifted {
		sets := cloud.Sets(pool.Spec.Template.Spec.Requirements)
		for _, key := range slices.Sorted(maps.Keys(sets)) {
			value, has := c.Labels[key]
			switch {
			case has && !sets[key].Has(value):
				out = append(out, fmt.Sprintf("%s excludes %s", key, value))
			case !has && !sets[key].HasAbsent():
				out = append(out, key+" is missing")
			}
		}
		return out
	}
	for _, f := range change.Fields {
		if strings.HasPrefix(f.Path, "spec.template.") && !strings.HasPrefix(f.Path, "spec.template.spec.requirements") {
			out = append(out, f.Path)
		}
	}
	return out
}

// selectors are the fields of a class of which only the cloud knows the meaning, with
// what drifts if that is another.
func selectors() []struct{ field, reason string } {
	return []struct{ field, reason string }{
		{"spec.amiSelectorTerms", cloud.AMIDrift},
		{"spec.securityGroupSelectorTerms", cloud.SecurityGroupDrift},
		{"spec.subnetSelectorTerms", cloud.SubnetDrift},
		{"spec.capacityReservationSelectorTerms", cloud.CapacityReservationDrift},
	}
}

// classDrift judges the part of a class that is in its hash as the controller will. Of
// the selectors, the worst is assumed where their terms change.
func (f *forecaster) classDrift(c *karpenter.NodeClaim, class *aws.EC2NodeClass, change plan.Change) (verdict, bool) {
	// Without what the cloud says of the instance only the hash counts.
	hashed := class.DeepCopy()
	hashed.Status = aws.EC2NodeClassStatus{}
	if cloud.Drifted(hashed, c, cloud.Instance{}) == cloud.NodeClassDrift {
		var cause []string
		for _, x := range change.Fields {
			if strings.HasPrefix(x.Path, "spec.") && !slices.ContainsFunc(selectors(), func(s struct{ field, reason string }) bool { return strings.HasPrefix(x.Path, s.field) }) {
				cause = append(cause, x.Path)
			}
		}
		return verdict{reason: cloud.NodeClassDrift, cause: cause}, true
	}
	for _, s := range selectors() {
		var cause []string
		for _, x := range change.Fields {
			if strings.HasPrefix(x.Path, s.field) {
				cause = append(cause, x.Path)
			}
		}
		switch {
		case len(cause) == 0:
			continue
		case s.reason == cloud.CapacityReservationDrift && c.Labels[karpenter.LabelCapacityType] != cloud.Reserved:
			continue
		case s.reason == cloud.AMIDrift:
			// Terms that name images are as good as the cloud's answer.
			if ids, all := imageIDs(class); all && c.Status.ImageID != "" {
				if slices.Contains(ids, c.Status.ImageID) {
					continue
				}
				return verdict{reason: s.reason, cause: cause}, true
			}
		}
		return verdict{reason: s.reason, cause: cause, assumed: true}, true
	}
	return verdict{}, false
}

// imageIDs are the images that a class names, and whether it names images alone.
func imageIDs(class *aws.EC2NodeClass) (ids []string, all bool) {
	for _, t := range class.Spec.AMISelectorTerms {
		if t.ID == "" {
			return nil, false
		}
		ids = append(ids, t.ID)
	}
	return ids, len(ids) > 0
}

// zoneRegion is a zone's region: us-west-2a lies in us-west-2.
func zoneRegion(zone string) string { return strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz") }

// region is where the cluster's nodes are, or its classes' subnets, "" if nothing tells.
func (f *forecaster) region() string {
	for _, n := range f.in.Picture.Nodes {
		if r := n.Labels[corev1.LabelTopologyRegion]; r != "" {
			return r
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.classes)) {
		for _, s := range f.classes[name].Status.Subnets {
			if s.Zone != "" {
				return zoneRegion(s.Zone)
			}
		}
	}
	return ""
}
