package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// encode translates a whole snapshot at once: the plain way, which a Model must
// agree with whatever happened before.
func encode(s Snapshot, pools []Pool) (pack.Problem, error) {
	out := pack.Problem{WellKnown: wellKnown()}
	usage := map[string]pack.Resources{}
	add := func(p *corev1.Pod, on string) error {
		spec, err := PodSpec(p, nil)
		out.Pods = append(out.Pods, corePod(p, on, spec))
		return err
	}
	for _, p := range s.Pending {
		if err := add(p, ""); err != nil {
			return out, err
		}
	}
	for _, n := range s.Nodes {
		var of Pool
		for _, p := range pools {
			if p.Name == n.Pool() {
				of = p
			}
		}
		x := (&State{}).node(n, of)
		if p := n.Pool(); p != "" {
			if usage[p] == nil {
				usage[p] = pack.Resources{}
			}
			for k, v := range x.Capacity {
				usage[p][k] += v
			}
			usage[p][pack.NodeCount]++
		}
		if !n.Deleting() {
			out.Nodes = append(out.Nodes, x)
		}
		for _, p := range n.Pods {
			on := n.Name()
			if n.Deleting() {
				if !Reschedulable(p) {
					continue
				}
				on = ""
			}
			if err := add(p, on); err != nil {
				return out, err
			}
		}
	}
	for _, d := range s.DaemonSets {
		spec, err := PodSpec(&corev1.Pod{Spec: d.Spec.Template.Spec}, nil)
		if err != nil {
			return out, err
		}
		out.Daemons = append(out.Daemons, pack.Daemon{Name: d.Namespace + "/" + d.Name, Spec: spec})
	}
	for _, p := range pools {
		q := pool(p, new(attachments).instanceTypes(p.Types))
		if q.Usage = usage[p.Name]; q.Usage == nil {
			q.Usage = pack.Resources{}
		}
		out.Pools = append(out.Pools, q)
	}
	return out, nil
}

func testPools() []Pool {
	size := func(name, cpu, allocatable string, price int64) cloud.InstanceType {
		return cloud.InstanceType{
			Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: name},
			Capacity: amounts(cpu, "110"), Allocatable: amounts(allocatable, "110"),
			Offerings: []cloud.Offering{{CapacityType: cloud.OnDemand, Zone: "z1", ZoneID: "id1", MicroUSD: price, Available: true}},
		}
	}
	np := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "pool-a"}}
	np.Spec.Limits = karpenter.Limits{corev1.ResourceCPU: resource.MustParse("40")}
	return []Pool{{NodePool: np, Types: []cloud.InstanceType{size("m5.large", "2", "1900m", 96000), size("m5.xlarge", "4", "3900m", 192000)}}}
}

func amounts(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse(pods),
	}
}

func poolClaim(name string, alter ...func(*karpenter.NodeClaim)) *karpenter.NodeClaim {
	c := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{karpenter.LabelNodePool: "a"}}}
	c.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m5.large", "m5.xlarge"}},
	}
	for _, f := range alter {
		f(c)
	}
	return c
}

func TestEncode(t *testing.T) {
	s := Snapshot{
		Nodes: []Node{
			{
				Claim: poolClaim("going", func(c *karpenter.NodeClaim) {
					c.DeletionTimestamp = &metav1.Time{Time: now}
					c.Status.ProviderID, c.Status.Capacity = "aws:///z1/i-1", amounts("2", "110")
				}),
				Pods: []*corev1.Pod{pod("moves", on("going")), pod("goes-with-it", on("going"), owned("apps/v1", "DaemonSet"))},
			},
			{Claim: poolClaim("unlaunched")},
		},
		Pending: []*corev1.Pod{pod("waits", unschedulable)},
	}
	got, err := encode(s, testPools())
	if err != nil {
		t.Fatal(err)
	}
	var pods []string
	for _, p := range got.Pods {
		pods = append(pods, p.Name+" on "+p.Node)
	}
	if diff := cmp.Diff([]string{"d/waits on ", "d/moves on "}, pods); diff != "" {
		t.Errorf("pods (-want +got): those of a node on its way out are pending\n%s", diff)
	}
	if len(got.Nodes) != 1 || got.Nodes[0].Name != "unlaunched" {
		t.Fatalf("nodes %+v, want the unlaunched one alone", got.Nodes)
	}
	if n := got.Nodes[0]; n.Allocatable[pack.CPU] != 1900 || n.Capacity[pack.CPU] != 4000 {
		t.Errorf("unlaunched node has %d of %d, want room for the smallest type and a limit for the largest", n.Allocatable[pack.CPU], n.Capacity[pack.CPU])
	}
	if u := got.Pools[0].Usage; u[pack.CPU] != 6000 || u[pack.NodeCount] != 2 {
		t.Errorf("usage %v, want the node on its way out and the most that the unlaunched one may become", u)
	}
}

// TestModelFollowsState drives a state through random events and compares the
// model's plan after each with the plan for the whole snapshot.
func TestModelFollowsState(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s, m, pools := NewState(clocktesting.NewFakePassiveClock(now)), NewModel(), testPools()
			w := world{state: s, rand: r, pods: map[string]*corev1.Pod{}, claims: map[string]*karpenter.NodeClaim{}, nodes: map[string]*corev1.Node{}}
			for step := range 40 {
				what := w.step()
				if r.IntN(3) > 0 {
					continue // several changes share one Sync
				}
				if err := m.Sync(s, pools); err != nil {
					t.Fatal(err)
				}
				problem, err := encode(s.Snapshot(), pools)
				if err != nil {
					t.Fatal(err)
				}
				want, err := pack.Solve(problem, pack.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, m.Plan(pack.Options{})); diff != "" {
					t.Fatalf("step %d, %s: plan of the model (-whole +model):\n%s", step, what, diff)
				}
			}
		})
	}
}

// world makes events as a cluster would, so that states and objects agree.
type world struct {
	state   *State
	rand    *rand.Rand
	version int
	pods    map[string]*corev1.Pod
	claims  map[string]*karpenter.NodeClaim
	nodes   map[string]*corev1.Node
}

func (w *world) step() string {
	w.version++
	name := fmt.Sprint(w.version)
	switch w.rand.IntN(9) {
	case 0, 1:
		p := pod("p"+name, unschedulable)
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(100+w.rand.IntN(3000)), resource.DecimalSI)
		if w.rand.IntN(4) == 0 {
			owned("apps/v1", "DaemonSet")(p)
		}
		w.pods[p.Name] = p
		w.state.SetPod(p)
		return "pod " + p.Name + " comes"
	case 2:
		p, n := pick(w.rand, w.pods), pick(w.rand, w.nodes)
		if p == nil || n == nil || p.Spec.NodeName != "" {
			return "nothing"
		}
		bound := p.DeepCopy()
		bound.Spec.NodeName, bound.Status.Conditions = n.Name, nil
		w.pods[p.Name] = bound
		w.state.SetPod(bound)
		return "pod " + p.Name + " is bound to " + n.Name
	case 3:
		if p := pick(w.rand, w.pods); p != nil {
			delete(w.pods, p.Name)
			w.state.DeletePod(key(p))
			return "pod " + p.Name + " goes"
		}
	case 4:
		c := poolClaim("c" + name)
		c.ResourceVersion = name
		w.claims[c.Name] = c
		w.state.SetClaim(c)
		return "claim " + c.Name + " comes"
	case 5:
		if c := pick(w.rand, w.claims); c != nil && c.Status.ProviderID == "" {
			c = c.DeepCopy()
			c.ResourceVersion, c.Status.ProviderID = name, "aws:///z1/i-"+c.Name
			c.Status.Capacity, c.Status.Allocatable = amounts("2", "110"), amounts("1900m", "110")
			c.Labels[corev1.LabelInstanceTypeStable], c.Labels[corev1.LabelTopologyZone], c.Labels[karpenter.LabelCapacityType] = "m5.large", "z1", cloud.OnDemand
			w.claims[c.Name] = c
			w.state.SetClaim(c)
			return "claim " + c.Name + " is launched"
		}
	case 6:
		id := "aws:///z1/i-of-nobody-" + name
		if c := pick(w.rand, w.claims); c != nil {
			id = "aws:///z1/i-" + c.Name // possibly before the claim says so
		}
		for _, n := range w.nodes {
			if n.Spec.ProviderID == id {
				return "nothing"
			}
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n" + name, Labels: map[string]string{corev1.LabelHostname: "n" + name}}, Spec: corev1.NodeSpec{ProviderID: id},
			Status: corev1.NodeStatus{Capacity: amounts("2", "110"), Allocatable: amounts("1900m", "110")}}
		w.nodes[n.Name] = n
		w.state.SetNode(n)
		return "node " + n.Name + " comes"
	case 7:
		if n := pick(w.rand, w.nodes); n != nil {
			if w.rand.IntN(2) == 0 {
				n = n.DeepCopy()
				n.Labels[karpenter.LabelRegistered], n.Labels[karpenter.LabelInitialized] = "true", "true"
				w.nodes[n.Name] = n
				w.state.SetNode(n)
				return "node " + n.Name + " is initialized"
			}
			delete(w.nodes, n.Name)
			w.state.DeleteNode(n.Name)
			return "node " + n.Name + " goes"
		}
	case 8:
		if c := pick(w.rand, w.claims); c != nil {
			if c.DeletionTimestamp == nil {
				c = c.DeepCopy()
				c.ResourceVersion, c.DeletionTimestamp = name, &metav1.Time{Time: now}
				w.claims[c.Name] = c
				w.state.SetClaim(c)
				return "claim " + c.Name + " is deleted"
			}
			delete(w.claims, c.Name)
			w.state.DeleteClaim(c.Name)
			return "claim " + c.Name + " is gone"
		}
	}
	if w.rand.IntN(10) == 0 {
		w.state.SetDaemonSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "ds" + name}, Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}}}},
		}}}})
		return "a DaemonSet comes"
	}
	return "nothing"
}

func pick[T any](r *rand.Rand, m map[string]T) T {
	var none T
	if len(m) == 0 {
		return none
	}
	keys := slices.Sorted(maps.Keys(m))
	return m[keys[r.IntN(len(keys))]]
}

// TestUnlaunchedClaimKeepsItsRoom takes a pool's types away while a launch is under way.
func TestUnlaunchedClaimKeepsItsRoom(t *testing.T) {
	s, m, pools := NewState(clocktesting.NewFakePassiveClock(now)), NewModel(), testPools()
	s.SetClaim(poolClaim("c"))
	s.SetPod(pod("waits", unschedulable))
	unready := []Pool{{NodePool: pools[0].NodePool}}
	for _, step := range []struct {
		why   string
		pools []Pool
	}{{"all is well", pools}, {"the pool is held back", nil}, {"its types can't be listed", unready}, {"it is back", pools}} {
		if err := m.Sync(s, step.pools); err != nil {
			t.Fatal(err)
		}
		if got := m.Plan(pack.Options{}); len(got.Assignments) != 1 || len(got.NewNodes) != 0 || len(got.Unschedulable) != 0 {
			t.Errorf("plan %+v; want the pod on its claim (%s)", got, step.why)
		}
		if got := m.usage["a"][pack.CPU]; got != 4000 {
			t.Errorf("the pool uses %d, want 4000 (%s)", got, step.why)
		}
	}
}

// TestNominatedPodsKeepTheirRoom follows a pod from its nomination to the loss of
// the Node that it was nominated to.
func TestNominatedPodsKeepTheirRoom(t *testing.T) {
	s, m, pools := NewState(clocktesting.NewFakePassiveClock(now)), NewModel(), testPools()
	plan := func() *pack.Plan {
		t.Helper()
		if err := m.Sync(s, pools); err != nil {
			t.Fatal(err)
		}
		return m.Plan(pack.Options{})
	}
	s.SetClaim(poolClaim("c", func(c *karpenter.NodeClaim) {
		c.Status.ProviderID, c.Status.Capacity, c.Status.Allocatable = "aws:///z1/i-1", amounts("2", "110"), amounts("1900m", "110")
	}))
	if got := s.NodeName("c"); got != "" {
		t.Errorf("NodeName() = %q before there is a Node", got)
	}
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z1/i-1"}})
	if got := s.NodeName("c"); got != "n" {
		t.Errorf("NodeName() = %q, want the claim's Node", got)
	}
	first := pod("first", unschedulable, func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" })
	s.SetPod(first)
	s.SetPod(pod("second", unschedulable)) // a core each; the node has 1.9
	if got := plan(); len(got.Assignments) != 0 || len(got.NewNodes) != 1 || m.Pending() != 1 {
		t.Errorf("plan %+v with %d pending; want one new node, for the second pod alone", got, m.Pending())
	}
	s.DeletePod(key(pod("second")))
	if got := plan(); m.Pending() != 0 || len(got.NewNodes) != 0 {
		t.Errorf("plan %+v with %d pending; the nominated pod has its place", got, m.Pending())
	}
	s.DeleteNode("n")
	s.DeleteClaim("c")
	if got := plan(); m.Pending() != 1 || len(got.NewNodes) != 1 {
		t.Errorf("plan %+v with %d pending; the Node is gone, so the pod needs another", got, m.Pending())
	}
}

// TestSiblingsArePlannedTogether follows pods of one owner of which the scheduler has
// tried only the first.
func TestSiblingsArePlannedTogether(t *testing.T) {
	s, m := NewState(clocktesting.NewFakePassiveClock(now)), NewModel()
	owner := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: new(true)}}
		}
	}
	bound := func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Conditions = "n", nil }
	gated := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
	}
	nominated := func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: amounts("4", "110")}})
	for _, step := range []struct {
		why     string
		pods    []*corev1.Pod
		pending int
	}{
		{"the scheduler hasn't said anything", []*corev1.Pod{pod("a1", owner("a")), pod("a2", owner("a")), pod("a3", owner("a"), gated), pod("b1", owner("b")), pod("alone")}, 0},
		{"of one it says that it fits nowhere: the untried one of its owner waits too", []*corev1.Pod{pod("a1", owner("a"), unschedulable)}, 2},
		{"so does one that comes later", []*corev1.Pod{pod("a4", owner("a"))}, 3},
		{"nominated, they wait for no other place", []*corev1.Pod{pod("a1", owner("a"), unschedulable, nominated), pod("a2", owner("a"), nominated)}, 1},
		{"no refused one is left: the scheduler may have room for the last", []*corev1.Pod{pod("a1", owner("a"), bound)}, 0},
		{"it has none", []*corev1.Pod{pod("a4", owner("a"), unschedulable)}, 1},
	} {
		for _, p := range step.pods {
			s.SetPod(p)
		}
		if err := m.Sync(s, testPools()); err != nil {
			t.Fatal(err)
		}
		if m.Pending() != step.pending {
			t.Errorf("%d pods wait, want %d: %s", m.Pending(), step.pending, step.why)
		}
	}
	for _, name := range []string{"a1", "a2", "a3", "a4", "b1", "alone"} {
		s.DeletePod(key(pod(name)))
	}
	if len(s.siblings) != 0 {
		t.Errorf("%d owners are remembered after their pods have gone", len(s.siblings))
	}
}

// TestNominationsLapse nominates a pod to a Node whose room somebody else then takes.
func TestNominationsLapse(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(now)
	s, m := NewState(clk), NewModel()
	ready := func(at time.Time) {
		s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: fmt.Sprint(at.Unix())}, Status: corev1.NodeStatus{
			Allocatable: amounts("1", "110"), Capacity: amounts("1", "110"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}},
		}})
	}
	pending := func(want int, why string) {
		t.Helper()
		some := s.Lapse()
		if err := m.Sync(s, testPools()); err != nil {
			t.Fatal(err)
		}
		if m.Pending() != want || !some {
			t.Errorf("%d pods wait, want %d: %s; some are nominated: %v", m.Pending(), want, why, some)
		}
	}
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: amounts("1", "110"), Capacity: amounts("1", "110")}})
	s.SetPod(pod("p", unschedulable, func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }))
	pending(0, "it has just been nominated")
	clk.SetTime(now.Add(time.Hour))
	pending(0, "the Node isn't ready yet")
	ready(now.Add(time.Hour))
	pending(0, "the Node is ready this moment")
	clk.SetTime(now.Add(time.Hour + Patience - time.Second))
	pending(0, "the scheduler has yet to come back to it")
	going := pod("going", func(p *corev1.Pod) { p.Spec.NodeName, p.DeletionTimestamp = "n", &metav1.Time{Time: now} })
	s.SetPod(going)
	clk.SetTime(now.Add(time.Hour + Patience))
	pending(0, "a pod that it may have preempted is still going")
	s.DeletePod(key(going))
	pending(1, "nothing keeps it, and it isn't bound")
	if err := m.Sync(s, testPools()); err != nil {
		t.Fatal(err)
	}
	s.SetPlan(m, map[string]string{"d/p": "n"})
	s.SetPod(pod("p", unschedulable, func(p *corev1.Pod) { p.Status.NominatedNodeName, p.ResourceVersion = "other", "9" }))
	if err := m.Sync(s, testPools()); err != nil || m.Pending() != 1 {
		t.Errorf("%d pods wait, %v; the other Node isn't there", m.Pending(), err)
	}
}

// TestExpectedFit plans three pods of a core onto a claim whose Node has two, of which
// somebody else has taken one.
func TestExpectedFit(t *testing.T) {
	s, m := NewState(clocktesting.NewFakePassiveClock(now)), NewModel()
	places := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		p := pod(name, unschedulable)
		s.SetPod(p)
		places[PodKey(p)] = "claim"
	}
	if err := m.Sync(s, nil); err != nil {
		t.Fatal(err)
	}
	s.SetPlan(m, places)
	s.SetClaim(poolClaim("claim", func(c *karpenter.NodeClaim) {
		c.Status.ProviderID, c.Status.Allocatable = "aws:///z1/i-1", amounts("2", "110")
	}))
	if got := len(s.Expected("claim")); got != 3 {
		t.Errorf("%d pods are expected while there is no Node, want all three", got)
	}
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z1/i-1"}, Status: corev1.NodeStatus{Allocatable: amounts("2", "110")}})
	s.SetPod(pod("stranger", func(p *corev1.Pod) { p.Spec.NodeName = "n" }))
	if got := s.Expected("claim"); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("expected %v, want the one that there is room for", got)
	}
}
