package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Pool is a NodePool that nodes may be opened from, and what it can launch.
type Pool struct {
	*karpenter.NodePool
	// Class is the pool's node class.
	Class *aws.EC2NodeClass
	// Types is what the pool's node class offers. It is shared and read-only.
	Types []cloud.InstanceType
}

// PodKey is the name by which a problem knows a pod.
func PodKey(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// podName is the pod's name of which PodKey made key.
func podName(key string) types.NamespacedName {
	ns, name, _ := strings.Cut(key, "/")
	return types.NamespacedName{Namespace: ns, Name: name}
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// WellKnown reports whether a node has the label whether or not its pool names it.
func WellKnown(label string) bool {
	_, found := slices.BinarySearch(wellKnown(), label)
	return found
}

func wellKnown() []string {
	out := slices.Concat(karpenter.WellKnownLabels(), aws.WellKnownLabels(), []string{corev1.LabelHostname})
	slices.Sort(out)
	return slices.Compact(out)
}

func pool(p Pool, types []pack.InstanceType) pack.Pool {
	out := pack.Pool{
		Name:         p.Name,
		Requirements: Requirements(p.Spec.Template.Spec.Requirements),
		Labels:       p.Spec.Template.Labels,
		Taints:       Taints(p.Spec.Template.Spec.Taints),
		Types:        types,
	}
	if p.Spec.Weight != nil {
		out.Weight = int(*p.Spec.Weight)
	}
	out.Limits = limitsOf(corev1.ResourceList(p.Spec.Limits))
	// A word that isn't known leaves the controller's policy.
	if policy, err := PreferencePolicy(p.Annotations[AnnotationPreferencePolicy]); err == nil {
		out.Preferences = &policy
	}
	return out
}

// limitsOf translates limits; none at all is nil.
func limitsOf(in corev1.ResourceList) pack.Resources {
	if len(in) == 0 {
		return nil
	}
	return Resources(in)
}

// node translates a machine. One that isn't launched yet is as small as the
// smallest type that it may become, so that nothing is promised that its launch
// may not keep.
func (s *State) node(n Node, pool Pool) pack.Node {
	out := pack.Node{
		Name: n.Name(), Pool: n.Pool(),
		Labels: n.Labels(), Taints: Taints(n.Taints()),
		Capacity: Resources(n.Capacity()), Allocatable: Resources(n.Allocatable()),
		Initialized: n.Initialized(),
		Closed:      n.Node != nil && n.Node.Spec.Unschedulable,
	}
	if n.Node != nil {
		out.Attach = s.attachOf(n.Node)
	}
	if n.Claim == nil {
		return out
	}
	if n.Node == nil || !n.Registered() {
		out.Requirements = Requirements(n.Claim.Spec.Requirements)
	}
	if n.Claim.Status.ProviderID == "" {
		types := cloud.Acceptable(pool.Types, n.Claim.Spec.Requirements)
		for i, t := range types {
			c, a := Resources(t.Capacity), Resources(t.Allocatable)
			if i == 0 {
				out.Capacity, out.Allocatable = c, a
				continue
			}
			maximum(out.Capacity, c)
			minimum(out.Allocatable, a)
		}
		out.Requirements = append(out.Requirements, outcomes(types, out.Labels)...)
		out.Attach = s.attach.of(types)
	}
	for _, t := range pool.Types {
		if t.Name != out.Labels[corev1.LabelInstanceTypeStable] {
			continue
		}
		for _, o := range t.Offerings {
			if o.Zone == out.Labels[corev1.LabelTopologyZone] && o.CapacityType == out.Labels[karpenter.LabelCapacityType] {
				out.MicroUSD = o.MicroUSD
			}
		}
	}
	return out
}

// outcomes says what labels a machine may get from the type that it becomes, other
// than those that it has. Daemons that choose by them may come.
func outcomes(types []cloud.InstanceType, has map[string]string) []pack.Requirement {
	values, carriers := map[string]map[string]bool{}, map[string]int{}
	for _, t := range types {
		for k, v := range t.Labels {
			if _, ok := has[k]; ok {
				continue
			}
			if values[k] == nil {
				values[k] = map[string]bool{}
			}
			values[k][v] = true
			carriers[k]++
		}
	}
	var out []pack.Requirement
	for _, k := range slices.Sorted(maps.Keys(values)) {
		r := pack.Requirement{Key: k, Operator: pack.In, Values: slices.Sorted(maps.Keys(values[k]))}
		if carriers[k] < len(types) {
			// Some don't have it: nothing is known.
			r.Operator, r.Values = pack.NotIn, nil
		}
		out = append(out, r)
	}
	return out
}

func minimum(into, other pack.Resources) {
	for k, v := range into {
		into[k] = min(v, other[k])
	}
}

func maximum(into, other pack.Resources) {
	for k, v := range other {
		into[k] = max(v, into[k])
	}
}

func (a *attachments) instanceTypes(in []cloud.InstanceType) []pack.InstanceType {
	out := make([]pack.InstanceType, 0, len(in))
	for _, t := range in {
		p := pack.InstanceType{
			Name: t.Name, Labels: maps.Clone(t.Labels),
			Capacity: Resources(t.Capacity), Allocatable: Resources(t.Allocatable), Attach: a.least[t.Name],
		}
		for _, o := range t.Offerings {
			q := pack.Offering{
				CapacityType: o.CapacityType, Zone: o.Zone, MicroUSD: o.MicroUSD, Available: o.Available,
				ReservationID: o.ReservationID, ReservedCount: o.ReservedCount,
			}
			if o.ZoneID != "" {
				q.Labels = map[string]string{aws.LabelTopologyZoneID: o.ZoneID}
			}
			p.Offerings = append(p.Offerings, q)
		}
		out = append(out, p)
	}
	return out
}

// Explain says in one line why a pool has no place for a pod.
func Explain(r pack.Reason) string {
	pool := ""
	if r.Pool != "" {
		pool = fmt.Sprintf("NodePool %q: ", r.Pool)
	}
	return pool + cause(r)
}

func cause(r pack.Reason) string {
	near := ""
	if r.Nearest != "" {
		near = "; nearest type " + r.Nearest
	}
	switch r.Cause {
	case pack.NoPools:
		return "no NodePool is ready"
	case pack.Untolerated:
		return fmt.Sprintf("taint %s=%s isn't tolerated", r.Taint.Key, r.Taint.Value)
	case pack.Incompatible:
		return fmt.Sprintf("requirement on label %s excludes what the pool allows", r.Key)
	case pack.UndefinedLabel:
		if r.Hint != "" {
			return fmt.Sprintf("label %s isn't defined by the pool (did you mean %s?)", r.Key, r.Hint)
		}
		return fmt.Sprintf("label %s isn't defined by the pool", r.Key)
	case pack.NoType:
		if r.Key != "" {
			return fmt.Sprintf("no instance type meets all requirements; %s stands in the way%s", r.Key, near)
		}
		return "no instance type meets all requirements" + near
	case pack.TooLarge:
		return fmt.Sprintf("no instance type has enough %s: %s wanted, %s free at most%s", r.Resource, Amount(r.Resource, r.Want), Amount(r.Resource, r.Have), near)
	case pack.NoOffering:
		return "instance types fit, but none can be had now in a zone and capacity type that suit" + near
	case pack.MinValuesUnmet:
		return fmt.Sprintf("minValues of %s isn't met: %d wanted, %d left", r.Key, r.Want, r.Have)
	case pack.LimitReached:
		return fmt.Sprintf("limit for %s: %s left, %s needed", r.Resource, Amount(r.Resource, r.Have), Amount(r.Resource, r.Want))
	case pack.ClusterLimitReached:
		return fmt.Sprintf("limit over all pools for %s: %s left, %s needed", r.Resource, Amount(r.Resource, r.Have), Amount(r.Resource, r.Want))
	case pack.SpreadSkew:
		return fmt.Sprintf("every reachable %s would exceed the topology spread's maxSkew", r.Key)
	case pack.AffinityUnmet:
		return fmt.Sprintf("no reachable %s has a pod that the pod affinity asks for", r.Key)
	case pack.AntiAffinityBlocked:
		return fmt.Sprintf("every reachable %s has a pod that the anti-affinity excludes", r.Key)
	case pack.NotBeside:
		return "a volume of the pod can be attached to one node only, and the one of the other pods that use it has no room"
	case pack.VolumeElsewhere:
		return "the pod's volumes can't be attached where it may run"
	case pack.AttachLimit:
		return fmt.Sprintf("no instance type attaches as many volumes of %s", r.Resource)
	case pack.PortTaken:
		return "a daemon takes the host port on every node"
	}
	panic(fmt.Sprintf("cause %d has no words", r.Cause))
}
