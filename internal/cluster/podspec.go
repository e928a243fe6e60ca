package cluster

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// PodSpec translates what a pod asks for. With an error comes what could be
// translated, the requests among it. Its surroundings are consulted only for
// pods with namespace selectors or claimed volumes.
func PodSpec(p *corev1.Pod, around Surroundings) (*pack.PodSpec, error) {
	e := podEncoder{pod: p, around: around}
	out := &pack.PodSpec{
		Requests:     Resources(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true})),
		NodeSelector: selectorRequirements(p.Spec.NodeSelector),
		Tolerations:  tolerations(p.Spec.Tolerations),
		HostPorts:    hostPorts(p),
	}
	if a := p.Spec.Affinity; a != nil {
		if n := a.NodeAffinity; n != nil {
			if req := n.RequiredDuringSchedulingIgnoredDuringExecution; req != nil {
				out.Affinity = [][]pack.Requirement{}
				for _, t := range req.NodeSelectorTerms {
					out.Affinity = append(out.Affinity, term(t))
				}
			}
			for _, pref := range n.PreferredDuringSchedulingIgnoredDuringExecution {
				out.Preferred = append(out.Preferred, pack.Preference{Weight: pref.Weight, Requirements: term(pref.Preference)})
			}
		}
		if x := a.PodAffinity; x != nil {
			out.PodAffinity = e.terms(x.RequiredDuringSchedulingIgnoredDuringExecution)
			out.PreferredPodAffinity = e.weighted(x.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if x := a.PodAntiAffinity; x != nil {
			out.PodAntiAffinity = e.terms(x.RequiredDuringSchedulingIgnoredDuringExecution)
			out.PreferredPodAntiAffinity = e.weighted(x.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	if text, ok := p.Annotations[AnnotationPreferencePolicy]; ok {
		policy, err := PreferencePolicy(text)
		if err != nil {
			e.fail(fmt.Errorf("annotation %s: %w", AnnotationPreferencePolicy, err))
		} else {
			out.Preferences = &policy
		}
	}
	for _, c := range p.Spec.TopologySpreadConstraints {
		out.Spread = append(out.Spread, e.spread(c))
	}
	var err error
	if out.Volumes, out.Beside, err = volumes(p, around); err != nil {
		e.fail(err)
	}
	return out, e.err
}

// podEncoder keeps the first error, so that the translation reads as a list.
type podEncoder struct {
	pod    *corev1.Pod
	around Surroundings
	err    error
}

func (e *podEncoder) fail(err error) {
	if e.err == nil {
		e.err = fmt.Errorf("pod %s/%s: %w", e.pod.Namespace, e.pod.Name, err)
	}
}

func (e *podEncoder) terms(in []corev1.PodAffinityTerm) []pack.PodTerm {
	var out []pack.PodTerm
	for _, t := range in {
		out = append(out, e.podTerm(t))
	}
	return out
}

func (e *podEncoder) weighted(in []corev1.WeightedPodAffinityTerm) []pack.WeightedPodTerm {
	var out []pack.WeightedPodTerm
	for _, t := range in {
		out = append(out, pack.WeightedPodTerm{Weight: t.Weight, PodTerm: e.podTerm(t.PodAffinityTerm)})
	}
	return out
}

func (e *podEncoder) podTerm(t corev1.PodAffinityTerm) pack.PodTerm {
	out := pack.PodTerm{
		TopologyKey: t.TopologyKey,
		Namespaces:  slices.Clone(t.Namespaces),
		Selector:    e.selector(t.LabelSelector, t.MatchLabelKeys, t.MismatchLabelKeys),
	}
	switch s := t.NamespaceSelector; {
	case s == nil:
	case len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0:
		out.AllNamespaces = true
	default:
		sel, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			e.fail(err)
			break
		}
		out.Namespaces = append(out.Namespaces, e.around.Namespaces(sel)...)
		if len(out.Namespaces) == 0 {
			out.Selector.Nothing = true // an empty list would mean the pod's own
		}
	}
	slices.Sort(out.Namespaces)
	return out
}

func (e *podEncoder) spread(c corev1.TopologySpreadConstraint) pack.Spread {
	out := pack.Spread{
		TopologyKey:    c.TopologyKey,
		MaxSkew:        c.MaxSkew,
		ScheduleAnyway: c.WhenUnsatisfiable == corev1.ScheduleAnyway,
		Selector:       e.selector(c.LabelSelector, c.MatchLabelKeys, nil),
		IgnoreAffinity: c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore,
		HonorTaints:    c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
	}
	if c.MinDomains != nil {
		out.MinDomains = *c.MinDomains
	}
	return out
}

// selector translates a label selector together with the label keys whose values
// the pod itself supplies.
func (e *podEncoder) selector(s *metav1.LabelSelector, match, mismatch []string) pack.Selector {
	if s == nil {
		return pack.Selector{Nothing: true}
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		e.fail(err)
		return pack.Selector{Nothing: true}
	}
	out := pack.Selector{Requirements: labelRequirements(sel)}
	for _, k := range match {
		if v, ok := e.pod.Labels[k]; ok {
			out.Requirements = append(out.Requirements, pack.Requirement{Key: k, Operator: pack.In, Values: []string{v}})
		}
	}
	for _, k := range mismatch {
		if v, ok := e.pod.Labels[k]; ok {
			out.Requirements = append(out.Requirements, pack.Requirement{Key: k, Operator: pack.NotIn, Values: []string{v}})
		}
	}
	return out
}

func labelRequirements(sel labels.Selector) []pack.Requirement {
	reqs, selectable := sel.Requirements()
	if !selectable {
		return []pack.Requirement{{Key: corev1.LabelHostname, Operator: pack.In}} // holds nowhere
	}
	var out []pack.Requirement
	for _, r := range reqs {
		values := slices.Sorted(maps.Keys(r.Values()))
		switch r.Operator() {
		case "in", "=", "==":
			out = append(out, pack.Requirement{Key: r.Key(), Operator: pack.In, Values: values})
		case "notin", "!=":
			out = append(out, pack.Requirement{Key: r.Key(), Operator: pack.NotIn, Values: values})
		case "exists":
			out = append(out, pack.Requirement{Key: r.Key(), Operator: pack.Exists})
		case "!":
			out = append(out, pack.Requirement{Key: r.Key(), Operator: pack.DoesNotExist})
		}
	}
	return out
}

func selectorRequirements(m map[string]string) []pack.Requirement {
	var out []pack.Requirement
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, pack.Requirement{Key: karpenter.NormalizedLabel(k), Operator: pack.In, Values: []string{m[k]}})
	}
	return out
}

func term(t corev1.NodeSelectorTerm) []pack.Requirement {
	var out []pack.Requirement
	for _, r := range t.MatchExpressions {
		out = append(out, pack.Requirement{Key: karpenter.NormalizedLabel(r.Key), Operator: operator(r.Operator), Values: r.Values})
	}
	for _, r := range t.MatchFields {
		out = append(out, pack.Requirement{Key: r.Key, Operator: operator(r.Operator), Values: r.Values})
	}
	return out
}

// Requirements translates a pool's or a claim's requirements.
func Requirements(in []karpenter.NodeSelectorRequirementWithMinValues) []pack.Requirement {
	out := make([]pack.Requirement, 0, len(in))
	for _, r := range in {
		q := pack.Requirement{Key: karpenter.NormalizedLabel(r.Key), Operator: operator(r.Operator), Values: r.Values}
		if r.MinValues != nil {
			q.MinValues = *r.MinValues
		}
		out = append(out, q)
	}
	return out
}

func operator(o corev1.NodeSelectorOperator) pack.Operator {
	op, err := pack.ParseOperator(string(o))
	if err != nil {
		panic(err) // the API server's validation admits no other
	}
	return op
}

// Taints translates a node's taints.
func Taints(in []corev1.Taint) []pack.Taint {
	var out []pack.Taint
	for _, t := range in {
		out = append(out, pack.Taint{Key: t.Key, Value: t.Value, Effect: effect(t.Effect)})
	}
	return out
}

func tolerations(in []corev1.Toleration) []pack.Toleration {
	var out []pack.Toleration
	for _, t := range in {
		out = append(out, pack.Toleration{
			Key: t.Key, Value: t.Value, Exists: t.Operator == corev1.TolerationOpExists, Effect: effect(t.Effect),
		})
	}
	return out
}

func effect(e corev1.TaintEffect) pack.Effect {
	switch e {
	case corev1.TaintEffectNoSchedule:
		return pack.NoSchedule
	case corev1.TaintEffectPreferNoSchedule:
		return pack.PreferNoSchedule
	case corev1.TaintEffectNoExecute:
		return pack.NoExecute
	}
	return pack.AnyEffect
}

func hostPorts(p *corev1.Pod) []pack.HostPort {
	var out []pack.HostPort
	for i, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways; i < len(p.Spec.InitContainers) && !sidecar {
			continue // the scheduler lets those that end share a port
		}
		for _, port := range c.Ports {
			if port.HostPort == 0 {
				continue
			}
			protocol := string(port.Protocol)
			if protocol == "" {
				protocol = string(corev1.ProtocolTCP)
			}
			out = append(out, pack.HostPort{IP: port.HostIP, Protocol: protocol, Port: port.HostPort})
		}
	}
	return out
}

// Resources translates amounts: cpu to thousandths of a core, everything else to
// whole units, both rounded up so that nothing is promised twice.
func Resources(in corev1.ResourceList) pack.Resources {
	out := make(pack.Resources, len(in))
	for name, q := range in {
		out[string(name)] = amount(name, q)
	}
	return out
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
