package disrupt

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
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Rehearsal carries out what the controller would decide, on a copy of a cluster and in
// a time of its own: the decisions are Decide's, and what EC2, kubelets and the scheduler
// would do about them is assumed to go well and to take the times that are given.
// Consolidation is left out.
type Rehearsal struct {
	// Clock is the time of State. It begins at the moment of the rehearsal.
	Clock *Stopwatch
	// State is the cluster, without pods that wait for a node. Claims that are out of date
	// have the condition Drifted.
	State *cluster.State
	// Pools are all pools, Types what each can launch, Classes the pools' node classes by
	// name.
	Pools   map[string]*karpenter.NodePool
	Types   map[string][]cloud.InstanceType
	Classes map[string]*aws.EC2NodeClass
	Guards  Guards
	// Policy is how pods are planned for, Limits what the nodes of all pools may add up to.
	Policy pack.Options
	Limits corev1.ResourceList
	// Boot is how long a machine takes from its claim until pods run on it.
	Boot time.Duration
	// Drain is how long a machine takes from the start of its drain until it has gone.
	Drain func(cluster.Node) time.Duration
	// Delete names claims that are deleted at once, as with their pool.
	Delete []string
	// Horizon is how far ahead to look, Steps how many decisions to take at most.
	Horizon time.Duration
	Steps   int
}

// Stopwatch is a clock that goes when it is told to.
type Stopwatch struct{ At time.Time }

// Now is the time that it was set to.
func (s *Stopwatch) Now() time.Time { return s.At }

// Since is the time from t until Now.
func (s *Stopwatch) Since(t time.Time) time.Duration { return s.At.Sub(t) }

// Performance is what a rehearsal came to. Durations count from its beginning.
type Performance struct {
	// Departures are the machines that went, in the order in which they did.
	Departures []Departure
	// Arrivals are those that came, in the order of their launch.
	Arrivals []Arrival
	// Moves counts the pods that changed machines, Waves the moments at which machines
	// began to go.
	Moves, Waves int
	// Kept are the machines that were out of date at the end with what keeps them, by
	// claim.
	Kept map[string]Block
	// Homeless are the pods of machines that went that found no place.
	Homeless []pack.Unschedulable
	// Cut is true if the horizon or the steps ended it.
	Cut bool
}

// Departure is a machine that went.
type Departure struct {
	Claim, Pool string
	Reason      karpenter.DisruptionReason // "" for one that was deleted
	After       time.Duration
	// Replacements counts the machines that were launched in its place.
	Replacements int
}

// Arrival is a machine that came.
type Arrival struct {
	Claim, Pool, Type, Zone, CapacityType string
	// MicroUSD is its price an hour, in millionths of a dollar.
	MicroUSD int64
	After    time.Duration
}

// rehearsal is one that goes on.
type rehearsal struct {
	*Rehearsal
	Performance
	began    time.Time
	model    *cluster.Model
	open     []cluster.Pool
	pools    map[string]Pool
	rollouts map[string]Rollout
	due      []event
	proofs   []*proof
	// home is where the plan of a command wants pods: a claim, by pod.
	home map[string]string
	// why and instead are of claims that go.
	why     map[string]karpenter.DisruptionReason
	instead map[string]int
	serial  int
	failure error
}

// event is something that happens at a time.
type event struct {
	at    time.Time
	claim string
	do    func()
}

// Run rehearses. It changes State and Clock.
func (r *Rehearsal) Run() (Performance, error) {
	x := &rehearsal{
		Rehearsal: r, began: r.Clock.At, model: cluster.NewModel(), pools: map[string]Pool{}, rollouts: map[string]Rollout{},
		home: map[string]string{}, why: map[string]karpenter.DisruptionReason{}, instead: map[string]int{},
	}
	x.Kept = map[string]Block{}
	x.model.Limit(r.Limits)
	for _, name := range slices.Sorted(maps.Keys(r.Pools)) {
		p := r.Pools[name]
		declared := NewPool(p)
		if declared.Options.DriftApproval != "" {
			declared.Target = cluster.Target(p, r.class(p))
		}
		x.pools[name] = declared
		if class := r.class(p); class != nil && !p.IsStatic() && len(r.Types[name]) > 0 {
			x.open = append(x.open, cluster.Pool{NodePool: p, Class: class, Types: r.Types[name]})
		}
	}
	for _, name := range slices.Sorted(slices.Values(r.Delete)) {
		x.drain(name, "")
	}
	if len(r.Delete) > 0 {
		x.Waves++
		x.settle()
	}
	for step := 0; ; step++ {
		if step == r.Steps {
			x.Cut = true
			break
		}
		next, acted := x.pass()
		if x.failure != nil {
			return x.Performance, x.failure
		}
		if acted {
			continue
		}
		if next.IsZero() {
			break
		}
		if next.Sub(x.began) > r.Horizon {
			x.Cut = true
			break
		}
		x.advance(next)
	}
	slices.SortStableFunc(x.Homeless, func(a, b pack.Unschedulable) int { return strings.Compare(a.Pod, b.Pod) })
	return x.Performance, x.failure
}

func (r *Rehearsal) class(p *karpenter.NodePool) *aws.EC2NodeClass {
	if ref := p.Spec.Template.Spec.NodeClassRef; ref != nil {
		return r.Classes[ref.Name]
	}
	return nil
}

// pass takes commands further and decides on others. It says when something is due next,
// zero for never, and whether something was done now.
func (x *rehearsal) pass() (next time.Time, acted bool) {
	now := x.Clock.At
	nodes := x.State.Snapshot().Nodes
	byClaim := byClaimName(nodes)
	going := false
	wake := x.prove(byClaim)
	for _, c := range underWay(nodes) {
		if step, _ := c.step(byClaim, now); step != Release {
			continue
		}
		if c.Reason == drifted {
			x.proofs = append(x.proofs, &proof{command: c, pools: poolsOf(c, byClaim), frail: frail(nodes, replacements(x.pools, now))})
		}
		x.release(c)
		going = true
	}
	if x.static() {
		going = true
	}
	if going {
		x.Waves++
		acted = true
		x.settle()
	}
	if x.failure != nil {
		return time.Time{}, false
	}
	if x.failure = x.model.Sync(x.State, x.open); x.failure != nil {
		return time.Time{}, false
	}
	d := Decide(Input{Now: now, Nodes: x.State.Snapshot().Nodes, Pools: x.pools, Guards: x.Guards, Core: x.model.Core(), Policy: x.Policy, Rollouts: x.rollouts, Unsure: unsure(x.proofs)})
	alone := false
	for _, c := range d.Start {
		x.start(c)
		alone = alone || len(c.New) == 0
		acted = true
	}
	if alone && !going {
		x.Waves++
	}
	next = wake
	clear(x.Kept)
	for _, v := range d.Verdicts {
		if v.Reason != drifted || v.Code == codeGoing || v.Code == codeStarting || v.Code == "NotDrifted" || !x.outdated(byClaim[v.Claim]) {
			continue
		}
		x.Kept[v.Claim] = v.Block
		if !v.Until.IsZero() && v.Until.After(now) && (next.IsZero() || v.Until.Before(next)) {
			next = v.Until
		}
	}
	if len(x.due) > 0 && (next.IsZero() || x.due[0].at.Before(next)) {
		next = x.due[0].at
	}
	return next, acted
}

// static gives static pools their number of nodes. It reports whether any of them goes.
func (x *rehearsal) static() (going bool) {
	for _, name := range slices.Sorted(maps.Keys(x.pools)) {
		p := x.pools[name].NodePool
		if !p.IsStatic() || len(x.Types[name]) == 0 {
			continue
		}
		create, remove := provision.StaticStep(p, x.State.Of(name), x.Clock.At)
		for range create {
			x.serial++
			x.launch(provision.TemplateNode(p), fmt.Sprintf("%s-new-%d", name, x.serial), "")
		}
		for _, n := range remove {
			x.drain(n.Claim.Name, "")
			going = true
		}
	}
	return going
}

// prove widens the rollouts of which the last replacements have done well for long
// enough, and says when the next may have, zero for never.
func (x *rehearsal) prove(byClaim map[string]cluster.Node) (next time.Time) {
	x.proofs = slices.DeleteFunc(x.proofs, func(p *proof) bool {
		if settled, _ := p.verdict(byClaim, x.Clock.At); settled {
			for _, name := range p.pools {
				x.rollouts[name] = x.rollouts[name].succeeded()
			}
			return true
		}
		at := p.due()
		if at.IsZero() {
			return false // the event that it waits for is due
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	})
	return next
}

func (x *rehearsal) outdated(n cluster.Node) bool {
	if n.Claim == nil {
		return false
	}
	_, is := outdated(n, x.pools[n.Pool()], x.Clock.At)
	return is
}

// advance lets time pass until then, and happen what is due.
func (x *rehearsal) advance(to time.Time) {
	x.Clock.At = to
	for len(x.due) > 0 && !x.due[0].at.After(to) {
		e := x.due[0]
		x.due = x.due[1:]
		e.do()
	}
	x.settle()
}

func (x *rehearsal) later(after time.Duration, claim string, do func()) {
	x.due = append(x.due, event{x.Clock.At.Add(after), claim, do})
	slices.SortStableFunc(x.due, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.claim, b.claim))
	})
}

// start marks the machines of a command and launches those that take their place.
func (x *rehearsal) start(c Command) {
	for _, name := range c.Claims {
		claim := x.State.Claim(name).DeepCopy()
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[coppice.AnnotationDisruption] = c.Encode()
		apimeta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
			Type: karpenter.ConditionDisruptionReason, Status: metav1.ConditionTrue, Reason: string(c.Reason), LastTransitionTime: metav1.NewTime(x.Clock.At),
		})
		x.State.SetClaim(claim)
		x.why[name], x.instead[name] = c.Reason, len(c.New)
	}
	for i := range c.New {
		x.launch(&c.New[i], c.Replacements[i], c.ID)
		for _, pod := range c.New[i].Pods {
			x.home[pod] = c.Replacements[i]
		}
	}
	if len(c.New) == 0 {
		x.release(c)
	}
}

// release lets the machines of a command go.
func (x *rehearsal) release(c Command) {
	for _, name := range c.Claims {
		x.drain(name, c.Reason)
	}
	for _, name := range c.Replacements {
		until := x.Clock.At.Add(time.Hour) // its pods come when the others have gone
		x.State.Nominate(name, until)
		if node := x.State.NodeName(name); node != "" {
			x.State.Nominate(node, until)
		}
	}
}

// drain begins to take a machine away.
func (x *rehearsal) drain(name string, reason karpenter.DisruptionReason) {
	claim := x.State.Claim(name)
	if claim == nil || claim.DeletionTimestamp != nil {
		return
	}
	claim = claim.DeepCopy()
	claim.DeletionTimestamp = &metav1.Time{Time: x.Clock.At}
	x.State.SetClaim(claim)
	x.why[name] = reason
	var machine cluster.Node
	for _, n := range x.State.Snapshot().Nodes {
		if n.Claim != nil && n.Claim.Name == name {
			machine = n
		}
	}
	x.later(x.Drain(machine), name, func() { x.leave(machine) })
}

// leave is a machine's end. Its pods are made anew and find places, or wait.
func (x *rehearsal) leave(n cluster.Node) {
	for _, p := range n.Pods {
		k := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		x.State.DeletePod(k)
		if !cluster.Reschedulable(p) {
			continue
		}
		x.Moves++
		again := p.DeepCopy()
		again.UID, again.ResourceVersion = types.UID(fmt.Sprintf("%s/%d", p.UID, x.Moves)), "" // another one, of its name
		again.Spec.NodeName, again.DeletionTimestamp = "", nil
		again.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}}
		if to := x.State.NodeName(x.home[cluster.PodKey(p)]); to != "" {
			again = bound(again, to, x.Clock.At)
		}
		x.State.SetPod(again)
	}
	if n.Node != nil {
		x.State.DeleteNode(n.Node.Name)
	}
	x.State.DeleteClaim(n.Claim.Name)
	x.Departures = append(x.Departures, Departure{
		Claim: n.Claim.Name, Pool: n.Pool(), Reason: x.why[n.Claim.Name], After: x.Clock.At.Sub(x.began), Replacements: x.instead[n.Claim.Name],
	})
}

func bound(p *corev1.Pod, node string, at time.Time) *corev1.Pod {
	p.Spec.NodeName = node
	start := metav1.NewTime(at)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &start, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: start},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: start},
	}}
	return p
}

// settle finds places for the pods that have none, as the planner does: those of
// machines that are on their way out included, which stay where they are until then.
func (x *rehearsal) settle() {
	if x.failure != nil {
		return
	}
	x.Homeless = nil
	if x.failure = x.model.Sync(x.State, x.open); x.failure != nil || x.model.Pending() == 0 {
		return
	}
	policy := x.Policy
	policy.Work = -1
	plan := x.model.Plan(policy)
	for _, a := range plan.Assignments {
		// A claim that isn't a Node yet will get them.
		if p := x.model.Pod(a.Pod); p != nil && p.Spec.NodeName == "" {
			if node := x.State.NodeName(a.Node); node != "" {
				x.State.SetPod(bound(p.DeepCopy(), node, x.Clock.At))
			}
		}
	}
	for i := range plan.NewNodes {
		x.serial++
		x.launch(&plan.NewNodes[i], fmt.Sprintf("%s-new-%d", plan.NewNodes[i].Pool, x.serial), "")
	}
	x.Homeless = plan.Unschedulable
}

// launch makes a claim for a planned machine and lets it become a Node.
func (x *rehearsal) launch(n *pack.NewNode, name, command string) {
	pool := x.pools[n.Pool]
	class := x.class(pool.NodePool)
	if class == nil {
		x.failure = fmt.Errorf("rehearse a launch for NodePool %s: its class isn't known", n.Pool)
		return
	}
	claim := provision.NewClaim(pool.NodePool, class, n)
	claim.GenerateName, claim.Name, claim.UID = "", name, types.UID(name)
	claim.CreationTimestamp = metav1.NewTime(x.Clock.At)
	if command != "" {
		claim.Annotations[coppice.AnnotationReplaces] = command
	}
	kind, offering := choose(n, x.Types[n.Pool], claim.Spec.Requirements)
	if kind != nil {
		maps.Copy(claim.Labels, kind.Labels)
		claim.Labels[corev1.LabelTopologyZone], claim.Labels[karpenter.LabelCapacityType] = offering.Zone, offering.CapacityType
		if offering.ZoneID != "" {
			claim.Labels[aws.LabelTopologyZoneID] = offering.ZoneID
		}
		claim.Status.ProviderID = "rehearsed:///" + name
		claim.Status.Capacity, claim.Status.Allocatable = kind.Capacity, kind.Allocatable
		x.Arrivals = append(x.Arrivals, Arrival{
			Claim: name, Pool: n.Pool, Type: kind.Name, Zone: offering.Zone, CapacityType: offering.CapacityType, MicroUSD: offering.MicroUSD, After: x.Clock.At.Sub(x.began),
		})
	} else {
		x.Arrivals = append(x.Arrivals, Arrival{Claim: name, Pool: n.Pool, After: x.Clock.At.Sub(x.began)})
	}
	x.State.SetClaim(claim)
	x.State.Nominate(name, x.Clock.At.Add(x.Boot+time.Hour))
	x.later(x.Boot, name, func() { x.join(name) })
}

// choose is the type and offering that a launch gets: the cheapest of those planned, or
// for a node that no pod asks for, of those that the pool allows.
func choose(n *pack.NewNode, all []cloud.InstanceType, requirements []karpenter.NodeSelectorRequirementWithMinValues) (*cloud.InstanceType, cloud.Offering) {
	list := cloud.Acceptable(all, requirements)
	for i := range list {
		if len(n.Options) == 0 || slices.ContainsFunc(n.Options, func(o pack.Option) bool { return o.Type == list[i].Name }) {
			return &list[i], list[i].Offerings[0]
		}
	}
	return nil, cloud.Offering{}
}

// join makes a claim's machine a Node that pods run on.
func (x *rehearsal) join(name string) {
	claim := x.State.Claim(name)
	if claim == nil || claim.DeletionTimestamp != nil {
		return
	}
	claim = claim.DeepCopy()
	now := metav1.NewTime(x.Clock.At)
	for _, c := range []string{karpenter.ConditionLaunched, karpenter.ConditionRegistered, karpenter.ConditionInitialized, karpenter.ConditionReady} {
		apimeta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c, LastTransitionTime: now})
	}
	claim.Status.NodeName = name
	x.State.SetClaim(claim)
	labels := maps.Clone(claim.Labels)
	labels[karpenter.LabelRegistered], labels[karpenter.LabelInitialized], labels[corev1.LabelHostname] = "true", "true", name
	x.State.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: now},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: claim.Spec.Taints},
		Status: corev1.NodeStatus{
			Capacity: claim.Status.Capacity, Allocatable: claim.Status.Allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
		},
	})
}
