package disrupt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

var now = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// scene is a cluster at one moment.
type scene struct {
	state *cluster.State
	clock *clocktesting.FakePassiveClock
	pools []*karpenter.NodePool
	pdbs  []policyv1.PodDisruptionBudget
	alter func(*Input)
}

func size(cpu int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(cpu<<32, resource.BinarySI),
		corev1.ResourcePods: *resource.NewQuantity(58, resource.DecimalSI),
	}
}

// offers are sold at 0.05 $ a core.
func offers() []cloud.InstanceType {
	var out []cloud.InstanceType
	for _, cpu := range []int64{1, 2, 4, 8} {
		name := fmt.Sprintf("m.%d", cpu)
		out = append(out, cloud.InstanceType{
			Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: name}, Capacity: size(cpu), Allocatable: size(cpu),
			Offerings: []cloud.Offering{{CapacityType: cloud.OnDemand, Zone: "z1", MicroUSD: 50_000 * cpu, Available: true}},
		})
	}
	return out
}

func newScene(alter ...func(*karpenter.NodePool)) *scene {
	c := clocktesting.NewFakePassiveClock(now.Add(-time.Hour))
	s := &scene{state: cluster.NewState(c), clock: c}
	s.pool("a", alter...)
	return s
}

func (s *scene) pool(name string, alter ...func(*karpenter.NodePool)) {
	p := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Disruption.ConsolidateAfter = karpenter.After(30 * time.Second)
	p.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicyWhenEmptyOrUnderutilized
	for _, f := range alter {
		f(p)
	}
	s.pools = append(s.pools, p)
}

// machine adds an initialized node of a pool that has been up for an hour.
func (s *scene) machine(pool, name string, cpu int64, alter ...func(*karpenter.NodeClaim, *corev1.Node)) {
	up := metav1.NewTime(now.Add(-time.Hour))
	labels := map[string]string{
		karpenter.LabelNodePool: pool, corev1.LabelInstanceTypeStable: fmt.Sprintf("m.%d", cpu), corev1.LabelTopologyZone: "z1",
		karpenter.LabelCapacityType: "on-demand", karpenter.LabelInitialized: "true", karpenter.LabelRegistered: "true", corev1.LabelHostname: name,
	}
	claim := &karpenter.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID(name), Labels: labels, CreationTimestamp: up, Annotations: map[string]string{}},
		Status: karpenter.NodeClaimStatus{ProviderID: "id/" + name, Conditions: []metav1.Condition{
			{Type: karpenter.ConditionInitialized, Status: metav1.ConditionTrue, LastTransitionTime: up},
		}},
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{}}, Spec: corev1.NodeSpec{ProviderID: "id/" + name},
		Status: corev1.NodeStatus{Capacity: size(cpu), Allocatable: size(cpu), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, f := range alter {
		f(claim, node)
	}
	s.state.SetClaim(claim)
	s.state.SetNode(node)
}

// run adds a running pod that asks for cores.
func (s *scene) run(node, name string, cpu int64, alter ...func(*corev1.Pod)) {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "d", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "x"}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range alter {
		f(p)
	}
	s.state.SetPod(p)
}

func (s *scene) decide(t *testing.T) Decision {
	t.Helper()
	sold := offers()
	in := Input{Now: now, Pools: map[string]Pool{}, Guards: NewGuards(s.pdbs), Quiet: true}
	var open []cluster.Pool
	for _, p := range s.pools {
		in.Pools[p.Name] = NewPool(p)
		open = append(open, cluster.Pool{NodePool: p, Types: sold})
	}
	m := cluster.NewModel()
	if err := m.Sync(s.state, open); err != nil {
		t.Fatal(err)
	}
	in.Nodes, in.Core = s.state.Snapshot().Nodes, m.Core()
	if s.alter != nil {
		s.alter(&in)
	}
	return Decide(in)
}

// begun lists what was begun with, as "Reason: claims -> types".
func begun(d Decision) []string {
	var out []string
	for _, c := range d.Start {
		text := string(c.Reason) + ": " + strings.Join(c.Claims, " ")
		for _, n := range c.New {
			if len(n.Options) == 0 {
				text += " -> any"
				continue
			}
			text += " -> " + n.Options[0].Type
		}
		out = append(out, text)
	}
	return out
}

func code(d Decision, node string, reason karpenter.DisruptionReason) string {
	for _, v := range d.Verdicts {
		if v.Node == node && v.Reason == reason {
			return v.Code
		}
	}
	return "none"
}

func is(condition string, at time.Time) func(*karpenter.NodeClaim, *corev1.Node) {
	return func(c *karpenter.NodeClaim, _ *corev1.Node) {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: "NodePoolDrifted", LastTransitionTime: metav1.NewTime(at),
		})
	}
}

func TestDecide(t *testing.T) {
	annotated := func(key, value string) func(*karpenter.NodePool) {
		return func(p *karpenter.NodePool) { p.Annotations = map[string]string{key: value} }
	}
	budget := func(nodes string, reasons ...karpenter.DisruptionReason) func(*karpenter.NodePool) {
		return func(p *karpenter.NodePool) {
			p.Spec.Disruption.Budgets = append(p.Spec.Disruption.Budgets, karpenter.Budget{Nodes: nodes, Reasons: reasons})
		}
	}
	guarded := func(p *corev1.Pod) { p.Annotations[karpenter.AnnotationDoNotDisrupt] = "true" }
	drift := is(karpenter.ConditionDrifted, now.Add(-time.Minute))
	pdb := func(allowed int32) policyv1.PodDisruptionBudget {
		return policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "x"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	ill := func(since time.Duration) func(*karpenter.NodeClaim, *corev1.Node) {
		return func(_ *karpenter.NodeClaim, n *corev1.Node) {
			n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-since))}
		}
	}
	tests := map[string]struct {
		why   string
		pool  []func(*karpenter.NodePool)
		build func(*scene)
		want  []string
		// codes are what keeps nodes, as "node Reason": code.
		codes map[string]string
	}{
		"empty": {why: "30 s have passed", build: func(s *scene) { s.machine("a", "n1", 4) }, want: []string{"Empty: claim-n1"}},
		"empty within a budget": {why: "one of three, the first by name", pool: []func(*karpenter.NodePool){budget("1")},
			build: func(s *scene) { s.machine("a", "n1", 4); s.machine("a", "n2", 4); s.machine("a", "n3", 4) },
			want:  []string{"Empty: claim-n1"}, codes: map[string]string{"n2 Empty": "Budget"}},
		"one is going already": {why: "it uses the budget up", pool: []func(*karpenter.NodePool){budget("1")}, build: func(s *scene) {
			s.machine("a", "n1", 4, func(c *karpenter.NodeClaim, _ *corev1.Node) { c.DeletionTimestamp = &metav1.Time{Time: now} })
			s.machine("a", "n2", 4)
		}, codes: map[string]string{"n2 Empty": "Budget"}},
		"one is down": {why: "a node that isn't ready uses it up too", pool: []func(*karpenter.NodePool){budget("1")}, build: func(s *scene) {
			s.machine("a", "n1", 4, ill(time.Minute))
			s.run("n1", "p", 4)
			s.machine("a", "n2", 4)
		}, codes: map[string]string{"n2 Empty": "Budget"}},
		"another reason's budget": {why: "it bounds nothing here", pool: []func(*karpenter.NodePool){budget("0", drifted)},
			build: func(s *scene) { s.machine("a", "n1", 4) }, want: []string{"Empty: claim-n1"}},
		"unreadable budget": {why: "what can't be read allows nothing", pool: []func(*karpenter.NodePool){func(p *karpenter.NodePool) {
			text := "not a schedule"
			p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "100%", Schedule: &text, Duration: &metav1.Duration{Duration: time.Hour}}}
		}}, build: func(s *scene) { s.machine("a", "n1", 4) }, codes: map[string]string{"n1 Empty": "NoBudget"}},
		"paused": {why: "by somebody, until some time", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationPause, `{"until":"2026-01-05T13:00:00Z","author":"me","reason":"sale"}`)},
			build: func(s *scene) { s.machine("a", "n1", 4, drift) }, codes: map[string]string{"n1 Empty": "Paused", "n1 Drifted": "Paused", "n1 Underutilized": "Paused"}},
		"a pause that is over": {why: "it ends by itself", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationPause, `{"until":"2026-01-05T12:00:00Z","author":"me","reason":"sale"}`)},
			build: func(s *scene) { s.machine("a", "n1", 4) }, want: []string{"Empty: claim-n1"}},
		"unreadable options": {why: "nobody knows what they would forbid", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationPause, `{`)},
			build: func(s *scene) { s.machine("a", "n1", 4) }, codes: map[string]string{"n1 Empty": "UnreadableOptions"}},
		"young": {why: "minNodeLifetime", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationMinNodeLifetime, "2h")},
			build: func(s *scene) { s.machine("a", "n1", 4) }, codes: map[string]string{"n1 Empty": "MinNodeLifetime"}},
		"own wait for empty ones": {why: "consolidateAfter for each reason", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationConsolidateAfterEmpty, "Never")},
			build: func(s *scene) { s.machine("a", "n1", 4); s.machine("a", "n2", 8); s.run("n2", "p", 1) },
			want:  []string{"Underutilized: claim-n2"}, codes: map[string]string{"n1 Empty": "Never"}},
		"expected pods": {why: "nominated", build: func(s *scene) { s.machine("a", "n1", 4); s.state.Nominate("n1", now.Add(time.Second)) },
			codes: map[string]string{"n1 Empty": "Nominated"}},
		"nothing expected any more": {why: "every pod has a node, so the nomination is stale", build: func(s *scene) {
			s.machine("a", "n1", 4)
			s.state.Nominate("n1", now.Add(time.Second))
			s.alter = func(in *Input) { in.Settled = true }
		}, want: []string{"Empty: claim-n1"}},
		"a pod has just left": {why: "it may come back", build: func(s *scene) {
			s.machine("a", "n1", 4)
			s.run("n1", "p", 1)
			s.clock.SetTime(now.Add(-10 * time.Second))
			s.state.DeletePod(types.NamespacedName{Namespace: "d", Name: "p"})
		}, codes: map[string]string{"n1 Empty": "ConsolidateAfter"}},
		"do-not-disrupt on the node": {why: "on the claim or the Node", build: func(s *scene) {
			s.machine("a", "n1", 4, func(_ *karpenter.NodeClaim, n *corev1.Node) { n.Annotations[karpenter.AnnotationDoNotDisrupt] = "true" })
		}, codes: map[string]string{"n1 Empty": "DoNotDisrupt", "n1 Drifted": "DoNotDisrupt"}},
		"too large": {why: "one core is used of eight", build: func(s *scene) { s.machine("a", "n1", 8); s.run("n1", "p", 1) },
			want: []string{"Underutilized: claim-n1 -> m.1"}},
		"fits elsewhere": {why: "the smaller node has room", build: func(s *scene) {
			s.machine("a", "n1", 4)
			s.machine("a", "n2", 4)
			s.run("n1", "p", 2)
			s.run("n2", "q", 2)
		}, want: []string{"Underutilized: claim-n1"}},
		"only empty ones": {why: "the policy", pool: []func(*karpenter.NodePool){func(p *karpenter.NodePool) {
			p.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicyWhenEmpty
		}}, build: func(s *scene) { s.machine("a", "n1", 8); s.run("n1", "p", 1) }, codes: map[string]string{"n1 Underutilized": "WhenEmpty"}},
		"a guarded pod": {why: "it forbids", build: func(s *scene) { s.machine("a", "n1", 8, drift); s.run("n1", "p", 1, guarded) },
			codes: map[string]string{"n1 Underutilized": "PodDoNotDisrupt", "n1 Drifted": "PodDoNotDisrupt"}},
		"a guarded pod, but a bounded drain": {why: "drift goes ahead, since the pod's time is bounded anyway", build: func(s *scene) {
			s.machine("a", "n1", 1, drift, func(c *karpenter.NodeClaim, _ *corev1.Node) {
				c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
			})
			s.run("n1", "p", 1, guarded)
		}, want: []string{"Drifted: claim-n1 -> m.1"}, codes: map[string]string{"n1 Underutilized": "none"}},
		"a PodDisruptionBudget without room": {why: "the eviction would be refused", build: func(s *scene) {
			s.machine("a", "n1", 8, drift)
			s.run("n1", "p", 1)
			s.pdbs = []policyv1.PodDisruptionBudget{pdb(0)}
		}, codes: map[string]string{"n1 Underutilized": "PodDisruptionBudget", "n1 Drifted": "PodDisruptionBudget"}},
		"a PodDisruptionBudget with room": {why: "one pod may go", build: func(s *scene) {
			s.machine("a", "n1", 8)
			s.run("n1", "p", 1)
			s.pdbs = []policyv1.PodDisruptionBudget{pdb(1)}
		}, want: []string{"Underutilized: claim-n1 -> m.1"}},
		"two PodDisruptionBudgets": {why: "the API refuses such evictions for ever", build: func(s *scene) {
			s.machine("a", "n1", 8)
			s.run("n1", "p", 1)
			s.pdbs = []policyv1.PodDisruptionBudget{pdb(1), pdb(1)}
		}, codes: map[string]string{"n1 Underutilized": "PodDisruptionBudget"}},
		"drifted": {why: "replaced by its like, canary first", build: func(s *scene) {
			s.machine("a", "n1", 2, drift)
			s.machine("a", "n2", 2, is(karpenter.ConditionDrifted, now.Add(-time.Hour)))
			s.run("n1", "p", 2)
			s.run("n2", "q", 2)
		}, want: []string{"Drifted: claim-n2 -> m.2"}, codes: map[string]string{"n1 Drifted": "Wave"}},
		"drifted, in full swing": {why: "as fast as the budget allows", pool: []func(*karpenter.NodePool){budget("2")}, build: func(s *scene) {
			for _, n := range []string{"n1", "n2", "n3"} {
				s.machine("a", n, 2, drift)
				s.run(n, "p-"+n, 2)
			}
			s.alter = func(in *Input) { in.Rollouts = map[string]Rollout{"a": {Wave: 8}} }
		}, want: []string{"Drifted: claim-n1 -> m.2", "Drifted: claim-n2 -> m.2"}, codes: map[string]string{"n3 Drifted": "Budget"}},
		"drifted, new nodes fail": {why: "a rollout halts by itself", build: func(s *scene) {
			s.machine("a", "n1", 2, drift)
			s.run("n1", "p", 2)
			s.alter = func(in *Input) { in.Rollouts = map[string]Rollout{"a": Rollout{}.failed("no capacity", now)} }
		}, codes: map[string]string{"n1 Drifted": "Halted"}},
		"old": {why: "softExpireAfter is a drift", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationSoftExpireAfter, "59m")},
			build: func(s *scene) { s.machine("a", "n1", 2); s.run("n1", "p", 2) }, want: []string{"Drifted: claim-n1 -> m.2"}},
		"drifted in a static pool": {why: "by what its template says, whatever runs on it", pool: []func(*karpenter.NodePool){func(p *karpenter.NodePool) {
			p.Spec.Replicas = new(int64)
		}}, build: func(s *scene) { s.machine("a", "n1", 2, drift); s.machine("a", "n2", 2) },
			want: []string{"Drifted: claim-n1 -> any"}, codes: map[string]string{"n2 Empty": "StaticNodePool"}},
		"drifted in a static pool at its limit": {why: "one more node fits, and then none", pool: []func(*karpenter.NodePool){func(p *karpenter.NodePool) {
			p.Spec.Replicas = new(int64)
			p.Spec.Limits = karpenter.Limits{"nodes": resource.MustParse("3")}
		}}, build: func(s *scene) {
			s.machine("a", "n1", 2, drift)
			s.machine("a", "n2", 2, drift)
			s.alter = func(in *Input) { in.Rollouts = map[string]Rollout{"a": {Wave: 8}} }
		}, want: []string{"Drifted: claim-n1 -> any"}, codes: map[string]string{"n2 Drifted": "Limit"}},
		"not old": {why: "not yet", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationSoftExpireAfter, "61m")},
			build: func(s *scene) { s.machine("a", "n1", 2); s.run("n1", "p", 2) }, codes: map[string]string{"n1 Drifted": "NotDrifted"}},
		"saves too little": {why: "minSavings", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationMinSavings, "60%")},
			build: func(s *scene) { s.machine("a", "n1", 4); s.run("n1", "p", 2) }, codes: map[string]string{"n1 Underutilized": "TooLittle"}},
		"saves enough": {why: "minSavings", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationMinSavings, "0.1")},
			build: func(s *scene) { s.machine("a", "n1", 4); s.run("n1", "p", 2) }, want: []string{"Underutilized: claim-n1 -> m.2"}},
		"a pool of higher weight": {why: "it is returned to whatever it costs, if that is wanted", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationReturnToHigherWeight, "true")},
			build: func(s *scene) {
				s.machine("a", "n1", 2)
				s.run("n1", "p", 2)
				s.pool("b", func(p *karpenter.NodePool) { p.Spec.Weight = new(int32); *p.Spec.Weight = 10 })
			}, want: []string{"Underutilized: claim-n1 -> m.2"}},
		"a pool of higher weight, unasked": {why: "Karpenter's behaviour", build: func(s *scene) {
			s.machine("a", "n1", 2)
			s.run("n1", "p", 2)
			s.pool("b", func(p *karpenter.NodePool) { p.Spec.Weight = new(int32); *p.Spec.Weight = 10 })
		}, codes: map[string]string{"n1 Underutilized": "NoCheaper"}},
		"in the pool of highest weight": {why: "there is nothing to return to", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationReturnToHigherWeight, "true"), func(p *karpenter.NodePool) {
			p.Spec.Weight = new(int32)
			*p.Spec.Weight = 10
		}}, build: func(s *scene) {
			s.machine("a", "n1", 2)
			s.run("n1", "p", 2)
			s.pool("b")
		}, codes: map[string]string{"n1 Underutilized": "NoCheaper"}},
		"drift that nobody has approved": {why: "it waits", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationDriftApproval, "required")},
			build: func(s *scene) { s.machine("a", "n1", 2, drift); s.run("n1", "p", 2) }, codes: map[string]string{"n1 Drifted": "Approval"}},
		"drift that is approved": {why: "by the name of what it leads to", pool: []func(*karpenter.NodePool){annotated(sugar.AnnotationDriftApproval, "0123456789")},
			build: func(s *scene) {
				s.machine("a", "n1", 2, drift)
				s.run("n1", "p", 2)
				s.alter = func(in *Input) { p := in.Pools["a"]; p.Target = "0123456789"; in.Pools["a"] = p }
			}, want: []string{"Drifted: claim-n1 -> m.2"}},
		"unapproved drift of an old node": {why: "its age needs no approval", pool: []func(*karpenter.NodePool){func(p *karpenter.NodePool) {
			p.Annotations = map[string]string{sugar.AnnotationDriftApproval: "required", sugar.AnnotationSoftExpireAfter: "59m"}
		}}, build: func(s *scene) { s.machine("a", "n1", 2, drift); s.run("n1", "p", 2) }, want: []string{"Drifted: claim-n1 -> m.2"}},
		"zonal shift": {why: "what runs in the zone stays, and nothing is moved there", build: func(s *scene) {
			zone := func(id string) func(*karpenter.NodeClaim, *corev1.Node) {
				return func(_ *karpenter.NodeClaim, n *corev1.Node) { n.Labels[aws.LabelTopologyZoneID] = id }
			}
			s.machine("a", "n1", 4, zone("az1"))
			s.machine("a", "n2", 2, zone("az1"), drift)
			s.run("n2", "p", 1)
			s.machine("a", "n3", 2, zone("az2"))
			s.run("n3", "q", 2)
			s.alter = func(in *Input) { in.Away = map[string]bool{"az1": true} }
		}, codes: map[string]string{"n1 Empty": "ZonalShift", "n2 Drifted": "ZonalShift", "n2 Underutilized": "ZonalShift", "n3 Underutilized": "NoCheaper"}},
		"ill, gate off": {why: "Karpenter's default, which isn't silent", build: func(s *scene) {
			s.machine("a", "n1", 2, ill(time.Hour))
			s.run("n1", "p", 2)
			s.machine("a", "n2", 2, ill(time.Minute))
			s.run("n2", "p2", 2)
		}, codes: map[string]string{"n1 Unhealthy": "NodeRepairOff", "n2 Unhealthy": "none"}},
		"ill": {why: "for an hour", build: func(s *scene) {
			s.machine("a", "n1", 2, ill(time.Hour))
			s.run("n1", "p", 2)
			s.alter = func(in *Input) { in.NodeRepair = true }
		}, want: []string{"Unhealthy: claim-n1"}},
		"ill, but not for long": {why: "30 minutes are tolerated", build: func(s *scene) {
			s.machine("a", "n1", 2, ill(29*time.Minute))
			s.run("n1", "p", 2)
			s.alter = func(in *Input) { in.NodeRepair = true }
		}, codes: map[string]string{"n1 Unhealthy": "Tolerated"}},
		"many are ill": {why: "two of six: the trouble is elsewhere", build: func(s *scene) {
			for i := range 6 {
				since := time.Hour
				n := fmt.Sprintf("n%d", i)
				if i < 3 {
					s.machine("a", n, 2, ill(since))
				} else {
					s.machine("a", n, 2)
				}
				s.run(n, "p"+n, 2)
			}
			s.alter = func(in *Input) { in.NodeRepair = true }
		}, codes: map[string]string{"n0 Unhealthy": "TooManyUnhealthy", "n5 Unhealthy": "Healthy"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(tc.pool...)
			tc.build(s)
			d := s.decide(t)
			if diff := cmp.Diff(tc.want, begun(d)); diff != "" {
				t.Errorf("%s (-want +got):\n%s%+v", tc.why, diff, d.Verdicts)
			}
			for at, want := range tc.codes {
				node, reason, _ := strings.Cut(at, " ")
				if got := code(d, node, karpenter.DisruptionReason(reason)); got != want {
					t.Errorf("%s is kept by %s, want %s (%s)", at, got, want, tc.why)
				}
			}
			if again := s.decide(t); !cmp.Equal(begun(d), begun(again)) {
				t.Errorf("a second decision differs: %v, then %v", begun(d), begun(again))
			}
		})
	}
}

func TestStep(t *testing.T) {
	c := Command{Disruption: coppice.Disruption{ID: "x", Reason: underutilized, Claims: []string{"claim-n1"}, Replacements: []string{"claim-n2"}, Since: now.Add(-time.Minute)}}
	marked := func(claim *karpenter.NodeClaim, _ *corev1.Node) {
		claim.Annotations[coppice.AnnotationDisruption] = c.Encode()
	}
	young := func(_ *karpenter.NodeClaim, n *corev1.Node) { delete(n.Labels, karpenter.LabelInitialized) }
	going := func(claim *karpenter.NodeClaim, _ *corev1.Node) { claim.DeletionTimestamp = &metav1.Time{Time: now} }
	tests := map[string]struct {
		why   string
		build func(*scene)
		at    time.Time
		want  Step
	}{
		"on its way":          {"the replacement boots", func(s *scene) { s.machine("a", "n1", 2, marked); s.machine("a", "n2", 2, young) }, now, Wait},
		"ready":               {"the replacement is up", func(s *scene) { s.machine("a", "n1", 2, marked); s.machine("a", "n2", 2) }, now, Release},
		"failed":              {"the replacement was given up", func(s *scene) { s.machine("a", "n1", 2, marked) }, now, RollBack},
		"fails now":           {"the replacement is going", func(s *scene) { s.machine("a", "n1", 2, marked); s.machine("a", "n2", 2, going) }, now, RollBack},
		"too slow":            {"patience is over", func(s *scene) { s.machine("a", "n1", 2, marked); s.machine("a", "n2", 2, young) }, now.Add(time.Hour), RollBack},
		"crash in the middle": {"a claim doesn't carry the command", func(s *scene) { s.machine("a", "n1", 2); s.machine("a", "n2", 2) }, now, RollBack},
		"draining":            {"it goes", func(s *scene) { s.machine("a", "n1", 2, marked, going); s.machine("a", "n2", 2) }, now, Drain},
		"gone":                {"it is gone", func(s *scene) { s.machine("a", "n2", 2) }, now, Drain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			tc.build(s)
			byClaim := map[string]cluster.Node{}
			for _, n := range s.state.Snapshot().Nodes {
				byClaim[n.Claim.Name] = n
			}
			if got, why := c.step(byClaim, tc.at); got != tc.want || (why != "") != (tc.want == RollBack) {
				t.Errorf("step() = %d %q, want %d (%s)", got, why, tc.want, tc.why)
			}
		})
	}
}

func TestStepOfTwo(t *testing.T) {
	c := Command{Disruption: coppice.Disruption{ID: "x", Reason: underutilized, Claims: []string{"claim-n1", "claim-n2"}, Replacements: []string{"claim-n3"}, Since: now.Add(-time.Minute)}}
	marked := func(claim *karpenter.NodeClaim, _ *corev1.Node) {
		claim.Annotations[coppice.AnnotationDisruption] = c.Encode()
	}
	going := func(claim *karpenter.NodeClaim, _ *corev1.Node) { claim.DeletionTimestamp = &metav1.Time{Time: now} }
	for name, tc := range map[string]struct {
		why   string
		build func(*scene)
		want  Step
	}{
		"half marked": {"a crash came in between", func(s *scene) { s.machine("a", "n1", 2, marked); s.machine("a", "n2", 2); s.machine("a", "n3", 2) }, RollBack},
		"one stays, one goes": {"a pod came at the last moment; what has begun goes on", func(s *scene) {
			s.machine("a", "n1", 2)
			s.machine("a", "n2", 2, marked, going)
			s.machine("a", "n3", 2)
		}, Drain},
		"one goes by itself": {"it was interrupted; the other waits for the replacement", func(s *scene) {
			s.machine("a", "n1", 2, marked, going)
			s.machine("a", "n2", 2, marked)
			s.machine("a", "n3", 2)
		}, Release},
		"one goes, others don't": {"and the replacement is gone", func(s *scene) { s.machine("a", "n1", 2, marked, going); s.machine("a", "n2", 2, marked) }, RollBack},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			tc.build(s)
			byClaim := map[string]cluster.Node{}
			for _, n := range s.state.Snapshot().Nodes {
				byClaim[n.Claim.Name] = n
			}
			if got, why := c.step(byClaim, now); got != tc.want {
				t.Errorf("step() = %d %q, want %d (%s)", got, why, tc.want, tc.why)
			}
		})
	}
}

func TestRolloutRestsLongerWithEachFailure(t *testing.T) {
	var r Rollout
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		r = r.failed("x", now)
		if got := r.Until.Sub(now); got != want*time.Minute || r.Wave != 1 {
			t.Errorf("after %d failures it rests for %v with a wave of %d, want %v min and 1", r.Failures, got, r.Wave, want)
		}
	}
	if r = r.succeeded(); r.Failures != 0 || r.Wave != 2 {
		t.Errorf("after a success: %+v", r)
	}
}
