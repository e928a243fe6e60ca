package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// nodePool explains what a pool may still do.
func (a asker) nodePool(s record.Subject) (*Answer, error) {
	p, err := find(a.NodePools, s)
	if err != nil {
		return nil, err
	}
	out := &Answer{}
	a.told(out, s)
	counts := map[string]int{}
	total := 0
	for _, c := range a.NodeClaims {
		if c.Labels[karpenter.LabelNodePool] != p.Name {
			continue
		}
		total++
		if c.DeletionTimestamp != nil {
			counts["on their way out"]++
		}
		for _, cond := range c.Status.Conditions {
			switch {
			case cond.Type == karpenter.ConditionInitialized && cond.Status != metav1.ConditionTrue:
				counts["not initialized"]++
			case cond.Type == karpenter.ConditionDrifted && cond.Status == metav1.ConditionTrue:
				counts["drifted"]++
			case cond.Type == karpenter.ConditionConsolidatable && cond.Status == metav1.ConditionTrue:
				counts["consolidatable"]++
			}
		}
	}
	out.Summary = fmt.Sprintf("%d NodeClaims", total)
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		out.Summary += fmt.Sprintf(", %d %s", counts[k], k)
	}
	out.Holds = append(poolConditions(p), a.missing(p)...)
	for _, r := range slices.SortedFunc(maps.Keys(p.Spec.Limits), cmp.Compare[corev1.ResourceName]) {
		limit, used := p.Spec.Limits[r], p.Status.Resources[r]
		out.Facts = append(out.Facts, Fact{"Limit for " + string(r), fmt.Sprintf("%s, of which %s are used", limit.String(), used.String())})
		if used.Cmp(limit) >= 0 {
			out.Holds = append(out.Holds, record.Reason{
				Scope: "NodePool " + p.Name, Code: "LimitReached", Message: fmt.Sprintf("limit for %s is reached: %s of %s", r, used.String(), limit.String()),
				Remedy: "a higher limit, or fewer pods",
			})
		}
	}
	out.Holds = append(append(out.Holds, a.unable(p)...), a.refused(out.Decisions)...)
	out.Facts = append(out.Facts, conditions(p.Status.Conditions)...)
	return out, nil
}

// poolConditions are the pool's conditions that keep it from opening nodes.
func poolConditions(p *karpenter.NodePool) []record.Reason {
	var out []record.Reason
	scope := "NodePool " + p.Name
	if c := apimeta.FindStatusCondition(p.Status.Conditions, karpenter.ConditionReady); c == nil || c.Status != metav1.ConditionTrue {
		hold := record.Reason{Scope: scope, Code: "NotReady", Message: "isn't ready, so no nodes are opened from it", Remedy: "see its conditions and those of EC2NodeClass " + p.Spec.Template.Spec.NodeClassRef.Name}
		if c != nil && c.Message != "" {
			hold.Message += ": " + c.Message
		}
		out = append(out, hold)
	}
	if c := apimeta.FindStatusCondition(p.Status.Conditions, karpenter.ConditionNoCompatibleInstanceTypes); c != nil && c.Status == metav1.ConditionTrue {
		out = append(out, record.Reason{Scope: scope, Code: c.Type, Message: c.Message, Remedy: "wider requirements of the NodePool"})
	}
	if c := apimeta.FindStatusCondition(p.Status.Conditions, karpenter.ConditionLaunchBackOff); c != nil && c.Status == metav1.ConditionTrue {
		remedy := ""
		switch c.Reason {
		case "LaunchFailed":
			remedy = "more types, zones or capacity types in the pool, where there is no capacity; else it is tried again by itself"
		case "RegistrationFailed":
			remedy = "what the instances' console output says is amiss; a change of the NodePool or its class is tried at once"
		case "InitializationFailed":
			remedy = "what the message says is missing; a change of the NodePool or its class is tried at once"
		}
		out = append(out, record.Reason{Scope: scope, Code: c.Type, Message: "launches are held back: " + c.Message, Remedy: remedy})
	}
	return out
}

// missing says how many of a static pool's replicas aren't there, with what the controller
// last told of them.
func (a asker) missing(p *karpenter.NodePool) []record.Reason {
	if p.Spec.Replicas == nil {
		return nil
	}
	there := int64(0)
	for _, c := range a.NodeClaims {
		if c.Labels[karpenter.LabelNodePool] == p.Name && c.DeletionTimestamp == nil {
			there++
		}
	}
	if there >= *p.Spec.Replicas {
		return nil
	}
	hold := record.Reason{Scope: "NodePool " + p.Name, Code: "ReplicasMissing", Message: fmt.Sprintf("%d of %d replicas are missing", *p.Spec.Replicas-there, *p.Spec.Replicas)}
	var told time.Time
	for _, e := range a.Events {
		if r := e.Regarding; r.Kind == "NodePool" && r.Name == p.Name && e.Reason == "LimitReached" && !when(e).Before(told) {
			told = when(e)
			_, why, _ := strings.Cut(e.Note, ": ")
			hold.Message = fmt.Sprintf("%d of %d replicas are missing: %s", *p.Spec.Replicas-there, *p.Spec.Replicas, why)
			hold.Remedy = "a higher limit, or fewer nodes"
		}
	}
	return []record.Reason{hold}
}

// namedClaims is how many of the claims are named that are kept by the same.
const namedClaims = 3

// unable says what keeps the pool's claims from becoming nodes: those that can't be
// launched, and Nodes that are there and don't become ready for pods. What merely takes
// its time isn't among it.
func (a asker) unable(p *karpenter.NodePool) []record.Reason {
	type key struct{ code, message string }
	var order []key
	claims := map[key][]string{}
	for _, c := range a.NodeClaims {
		if c.Labels[karpenter.LabelNodePool] != p.Name || c.DeletionTimestamp != nil {
			continue
		}
		x := stuck(c.Status.Conditions)
		if x == nil {
			continue
		}
		k := key{x.Reason, x.Message}
		if claims[k] == nil {
			order = append(order, k)
		}
		claims[k] = append(claims[k], c.Name)
	}
	var out []record.Reason
	for _, k := range order {
		names := claims[k]
		scope := "NodeClaim " + strings.Join(names[:min(namedClaims, len(names))], ", ")
		if more := len(names) - namedClaims; more > 0 {
			scope += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, record.Reason{Scope: scope, Code: k.code, Message: k.message})
	}
	return out
}

// stuck returns the condition that a claim won't leave by itself, nil for none.
func stuck(list []metav1.Condition) *metav1.Condition {
	for _, step := range []struct {
		condition string
		reasons   []string
	}{
		{karpenter.ConditionLaunched, []string{"LaunchRefused", "LaunchFailed", "NodeClassNotReady"}},
		{karpenter.ConditionInitialized, []string{"StartupTaintsExist", "KnownEphemeralTaintsExist", "ResourceNotRegistered"}},
	} {
		if c := apimeta.FindStatusCondition(list, step.condition); c != nil && c.Status != metav1.ConditionTrue && slices.Contains(step.reasons, c.Reason) {
			return c
		}
	}
	return nil
}

// fresh is how old what the planner said may be to hold still: it plans every ten seconds
// while pods wait.
const fresh = 30 * time.Second

// refused are the reasons for which the last plan had no place in the pool for some pods,
// as far as they aren't among a pool's own, which its status tells.
func (a asker) refused(decisions []record.Decision) []record.Reason {
	for _, d := range slices.Backward(decisions) {
		if d.Verdict == "NoPlace" && a.TakenAt.Sub(d.Last) <= fresh {
			return slices.DeleteFunc(slices.Clone(d.Reasons), func(r record.Reason) bool { return r.Code == "LimitReached" })
		}
	}
	return nil
}
