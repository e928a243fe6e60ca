package disrupt

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// app is a Deployment of pods that do nothing.
type app struct {
	name          string
	replicas      int
	milliCPU, mib int64
	zones, hosts  bool // spread over zones, which must hold, and over hosts, which need not
	one           bool // a PodDisruptionBudget of maxUnavailable 1
	made          int
	pods          map[string]*corev1.Pod // those that aren't gone
	ready         map[string]time.Time
	active        int // of pods, those that aren't ending
	// keys say when its pods were evicted, for those that follow them.
	keys []float64
}

// Times that pods take in the sandbox, and the drain's own.
const (
	turns    = 4 * time.Second
	jitter   = 0.02 // of a second, from an eviction until the next pod is queued
	podStart = 500 * time.Millisecond
	podStop  = 500 * time.Millisecond
	drainSec = time.Second     // the drain looks again
	refused  = 5 * time.Second // and after a PodDisruptionBudget has refused
	emptyFor = 2 * time.Second
)

// fleet is a cluster in a time of its own in which commands are carried out: the
// decisions and their pace are the controller's; a scheduler that scores as
// kube-scheduler does by default binds pods, so that evicted ones land where it likes.
type fleet struct {
	*rehearsal
	t          testing.TB
	r          *rand.Rand
	pace       pace
	apps       []*app
	zones      []string
	boot       time.Duration
	spotToSpot bool
	// tick is how finely time passes.
	tick    time.Duration
	waiting []*corev1.Pod      // created, not bound
	key     map[string]float64 // the order in which the scheduler tries them
	usd     float64            // spent since the scale-down
	last    time.Time          // an instance came or began to go
	created int                // pods since the scale-down
	found   []string           // what searches came to
}

// newFleet has one pool.
func newFleet(t testing.TB, seed uint64, boot time.Duration, inTurn bool, pool func(*karpenter.NodePool), apps ...*app) *fleet {
	t.Helper()
	clock := &Stopwatch{At: now}
	p := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general", UID: "general"}}
	p.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: aws.Group, Kind: "EC2NodeClass", Name: "c"}
	requires(p, corev1.LabelOSStable, corev1.NodeSelectorOpIn, "linux")
	requires(p, corev1.LabelArchStable, corev1.NodeSelectorOpIn, "amd64")
	requires(p, aws.LabelInstanceCategory, corev1.NodeSelectorOpIn, "c", "m", "r")
	requires(p, aws.LabelInstanceGeneration, corev1.NodeSelectorOpGt, "4")
	p.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicyWhenEmpty
	p.Spec.Disruption.ConsolidateAfter = karpenter.After(365 * 24 * time.Hour)
	pool(p)
	class := &aws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	class.Spec.AMISelectorTerms = []aws.AMISelectorTerm{{Alias: "al2023@latest"}}
	class.Status.AMIs = []aws.AMI{{ID: "ami-1"}}
	for i, z := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		class.Status.Subnets = append(class.Status.Subnets, aws.Subnet{ID: fmt.Sprint("subnet-", i), Zone: z, ZoneID: fmt.Sprint("use1-az", i+1)})
	}
	sold, err := ec2.NewFacts("us-east-1").InstanceTypes(class)
	if err != nil || len(sold) < 100 {
		t.Fatal(len(sold), err)
	}
	sold = cloud.Acceptable(sold, p.Spec.Template.Spec.Requirements)
	x := &rehearsal{
		Rehearsal: &Rehearsal{
			Clock: clock, State: cluster.NewState(clock), Pools: map[string]*karpenter.NodePool{p.Name: p}, Types: map[string][]cloud.InstanceType{p.Name: sold},
			Classes: map[string]*aws.EC2NodeClass{"c": class}, Boot: boot,
		},
		began: now, model: cluster.NewModel(), pools: map[string]Pool{p.Name: NewPool(p)}, rollouts: map[string]Rollout{}, home: map[string]string{},
		why: map[string]karpenter.DisruptionReason{}, instead: map[string]int{},
	}
	x.open = []cluster.Pool{{NodePool: p, Class: class, Types: sold}}
	f := &fleet{rehearsal: x, t: t, r: rand.New(rand.NewPCG(seed, 77)), key: map[string]float64{}, apps: apps, tick: 250 * time.Millisecond, zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}, boot: boot}
	for _, a := range apps {
		a.pods, a.ready = map[string]*corev1.Pod{}, map[string]time.Time{}
		for range a.replicas {
			f.create(a)
		}
		if inTurn {
			f.schedule()
			f.plan()
			f.advanceTo(f.Clock.At.Add(time.Second))
		}
	}
	// As at the end of the comparison's first half: all of it was planned at once.
	for range 20 {
		f.schedule()
		f.plan()
		f.advanceTo(f.Clock.At.Add(time.Minute))
		if len(f.waiting) == 0 {
			return f
		}
	}
	t.Fatalf("%d pods have no place", len(f.waiting))
	return nil
}

// use changes the pool.
func (f *fleet) use(change func(*karpenter.NodePool)) {
	p := f.Pools["general"].DeepCopy()
	p.Generation++
	change(p)
	f.Pools[p.Name], f.pools[p.Name], f.open[0].NodePool = p, NewPool(p), p
}

func (a *app) spec() corev1.PodSpec {
	s := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(a.milliCPU, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(a.mib<<20, resource.BinarySI),
	}}}}}
	own := &metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name}}
	if a.zones {
		s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: own,
		})
	}
	if a.hosts {
		s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: own,
		})
	}
	return s
}

func (f *fleet) create(a *app) {
	a.made++
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "d", Name: fmt.Sprintf("%s-%03d", a.name, a.made), Labels: map[string]string{"app": a.name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: a.name, Controller: &yes}},
		},
		Spec: a.spec(), Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	p.UID = types.UID(p.Name)
	a.pods[p.Name] = p
	if len(a.keys) > 0 {
		f.key[p.Name], a.keys = a.keys[0], a.keys[1:]
	}
	a.active++
	f.created++
	f.waiting = append(f.waiting, p)
	f.State.SetPod(p)
}

func (f *fleet) app(p *corev1.Pod) *app {
	return f.apps[slices.IndexFunc(f.apps, func(a *app) bool { return a.name == p.Labels["app"] })]
}

// end ends a pod.
func (f *fleet) end(p *corev1.Pod) {
	a := f.app(p)
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: f.Clock.At.Add(30 * time.Second)} // with the grace period that pods have by default
	a.pods[p.Name] = p
	delete(a.ready, p.Name)
	a.active--
	f.State.SetPod(p)
	f.later(podStop, p.Name, func() {
		delete(a.pods, p.Name)
		f.State.DeletePod(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	})
}

// room is what is left on a node, and which pods are there.
type room struct {
	node                *corev1.Node
	cpu, mem, pods      int64
	allCPU, allMem      int64
	zone                string
	apps                map[string]int
	closed, initialized bool
}

func (f *fleet) rooms() []*room {
	var out []*room
	for _, n := range f.State.Snapshot().Nodes {
		if n.Node == nil {
			continue
		}
		a := n.Allocatable()
		x := &room{node: n.Node, cpu: a.Cpu().MilliValue(), mem: a.Memory().Value(), pods: a.Pods().Value(), zone: n.Node.Labels[corev1.LabelTopologyZone], apps: map[string]int{}}
		x.allCPU, x.allMem = x.cpu, x.mem
		x.closed = cluster.HasTaint(n.Node, karpenter.DisruptedTaint())
		for _, p := range n.Pods {
			r := p.Spec.Containers[0].Resources.Requests
			x.take(r.Cpu().MilliValue(), r.Memory().Value())
			if p.DeletionTimestamp == nil {
				x.apps[p.Labels["app"]]++
			}
		}
		out = append(out, x)
	}
	return out
}

func (x *room) take(cpu, mem int64) { x.cpu, x.mem, x.pods = x.cpu-cpu, x.mem-mem, x.pods-1 }

// schedule tries every pod that waits.
func (f *fleet) schedule() {
	if len(f.waiting) == 0 {
		return
	}
	rooms := f.rooms()
	var left []*corev1.Pod
	for _, p := range f.waiting {
		a := f.app(p)
		if cur := a.pods[p.Name]; cur == nil || cur.DeletionTimestamp != nil {
			continue
		}
		if x := f.best(a, p, rooms); x != nil {
			x.take(a.milliCPU, a.mib<<20)
			x.apps[a.name]++
			delete(f.home, "d/"+p.Name)
			p = bound(p.DeepCopy(), x.node.Name, f.Clock.At)
			a.pods[p.Name] = p
			f.State.SetPod(p)
			name := p.Name
			f.later(podStart, name, func() { a.ready[name] = f.Clock.At })
			continue
		}
		p = p.DeepCopy()
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		a.pods[p.Name] = p
		f.State.SetPod(p)
		left = append(left, p)
	}
	f.waiting = left
}

// best is where kube-scheduler would bind the pod: the room that its plugins score
// highest, each with its default weight, or nil.
func (f *fleet) best(a *app, p *corev1.Pod, rooms []*room) *room {
	inZone := map[string]int{}
	for _, x := range rooms {
		inZone[x.zone] += x.apps[a.name]
	}
	least := math.MaxInt
	for _, n := range inZone {
		least = min(least, n)
	}
	var fit []*room
	want := f.State.NodeName(f.home["d/"+p.Name])
	for _, x := range rooms {
		if x.closed || x.cpu < a.milliCPU || x.mem < a.mib<<20 || x.pods < 1 || a.zones && inZone[x.zone]+1-least > 1 {
			continue
		}
		if x.node.Name == want {
			return x
		}
		fit = append(fit, x)
	}
	if len(fit) == 0 {
		return nil
	}
	spread := map[*room]float64{}
	most, fewest := 0.0, math.MaxFloat64
	for _, x := range fit {
		s := float64(x.apps[a.name]) * math.Log(float64(len(fit)+2))
		if !a.hosts {
			s += float64(inZone[x.zone])*math.Log(float64(len(inZone)+2)) + 2 + 4
		}
		spread[x] = s
		most, fewest = max(most, s), min(fewest, s)
	}
	score := func(x *room) float64 {
		cpu := float64(x.cpu-a.milliCPU) / float64(x.allCPU)
		mem := float64(x.mem-a.mib<<20) / float64(x.allMem)
		s := 100*(cpu+mem)/2 + 100*(1-math.Abs(cpu-mem)/2)
		if most > 0 {
			s += 2 * 100 * (most + fewest - spread[x]) / most
		}
		return s
	}
	f.r.Shuffle(len(fit), func(i, j int) { fit[i], fit[j] = fit[j], fit[i] })
	return slices.MaxFunc(fit, func(a, b *room) int { return cmp.Compare(score(a), score(b)) })
}

// plan opens nodes for pods that have no place.
func (f *fleet) plan() {
	if err := f.model.Sync(f.State, f.open); err != nil {
		f.t.Fatal(err)
	}
	if f.model.Pending() == 0 {
		return
	}
	plan := f.model.Plan(pack.Options{Work: -1})
	for _, a := range plan.Assignments {
		f.State.Nominate(a.Node, f.Clock.At.Add(20*time.Second))
		f.home[a.Pod] = a.Node
	}
	for i := range plan.NewNodes {
		f.serial++
		f.opens(&plan.NewNodes[i], fmt.Sprintf("general-%d", f.serial), "")
	}
}

func (f *fleet) opens(n *pack.NewNode, name, command string) {
	f.launch(n, name, command)
	f.last = f.Clock.At
	f.State.Nominate(name, f.Clock.At.Add(20*time.Second))
	if command == "" {
		for _, pod := range n.Pods {
			f.home[pod] = name
		}
	}
}

// budgets are the PodDisruptionBudgets as their controller keeps them.
func (f *fleet) budgets() Guards {
	var out []policyv1.PodDisruptionBudget
	for _, a := range f.apps {
		if a.one {
			b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: a.name}}
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name}}
			b.Status.DisruptionsAllowed = int32(max(0, 1-(a.replicas-len(a.ready))))
			out = append(out, b)
		}
	}
	return NewGuards(out)
}

// drainOf takes a machine towards its end.
func (f *fleet) drainOf(claim string, began time.Time) {
	var n cluster.Node
	for _, x := range f.State.Of("general") {
		if x.Claim.Name == claim {
			n = x
		}
	}
	waits := 0
	pods := slices.Clone(n.Pods)
	f.r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	most, wait := 0, drainSec
	if f.Clock.At.Sub(began) < turns {
		most = f.State.Bulkiest(turns)
	}
	for k, p := range pods {
		waits++
		if p.DeletionTimestamp != nil {
			continue
		}
		if cluster.Bulk(p) < most {
			wait = min(wait, f.tick)
			continue
		}
		if a := f.app(p); a.one && len(a.ready) < a.replicas {
			wait = refused
			continue
		}
		a := f.app(p)
		a.keys = append(a.keys, f.Clock.At.Sub(f.began).Seconds()+float64(k)*0.008+f.r.Float64()*jitter)
		f.end(p)
	}
	if waits == 0 && f.Clock.At.Sub(began) >= emptyFor {
		f.last = f.Clock.At
		f.later(time.Second, claim, func() {
			f.State.DeleteNode(n.Node.Name)
			f.State.DeleteClaim(claim)
		})
		return
	}
	f.later(wait, claim, func() { f.drainOf(claim, began) })
}

func (f *fleet) releases(c Command) {
	for _, name := range c.Claims {
		claim := f.State.Claim(name)
		if claim == nil || claim.DeletionTimestamp != nil {
			continue
		}
		claim = claim.DeepCopy()
		claim.DeletionTimestamp = &metav1.Time{Time: f.Clock.At}
		f.State.SetClaim(claim)
		at := f.Clock.At
		f.later(f.tick, name, func() { f.drainOf(name, at) })
	}
	f.protect(c)
}

func (f *fleet) protect(c Command) {
	for _, name := range c.Replacements {
		f.State.Nominate(name, f.Clock.At.Add(expected))
		if node := f.State.NodeName(name); node != "" {
			f.State.Nominate(node, f.Clock.At.Add(expected))
		}
	}
}

func (f *fleet) starts(c Command) {
	for _, name := range c.Claims {
		claim := f.State.Claim(name).DeepCopy()
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[coppice.AnnotationDisruption] = c.Encode()
		apimeta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{Type: karpenter.ConditionDisruptionReason, Status: metav1.ConditionTrue, Reason: string(c.Reason)})
		f.State.SetClaim(claim)
		for _, n := range f.State.Of("general") {
			if n.Claim.Name == name && n.Node != nil {
				node := n.Node.DeepCopy()
				node.Spec.Taints = append(node.Spec.Taints, karpenter.DisruptedTaint())
				f.State.SetNode(node)
			}
		}
	}
	for i := range c.New {
		f.opens(&c.New[i], c.Replacements[i], c.ID)
	}
	if len(c.New) == 0 {
		f.releases(c)
	}
}

// decide is one pass of the controller's loop. It says when the next is due.
func (f *fleet) decide() time.Duration {
	nodes := f.State.Snapshot().Nodes
	byClaim := byClaimName(nodes)
	commands := underWay(nodes)
	for _, c := range commands {
		switch step, why := c.step(byClaim, f.Clock.At); step {
		case Release:
			f.releases(c)
		case Drain:
			f.protect(c)
		case RollBack:
			f.t.Fatal(why)
		}
	}
	if err := f.model.Sync(f.State, f.open); err != nil {
		f.t.Fatal(err)
	}
	shot := f.State.Snapshot()
	in := Input{Now: f.Clock.At, Nodes: shot.Nodes, Pools: f.pools, Guards: f.budgets(), Core: f.model.Core(), Rollouts: f.rollouts, SpotToSpot: f.spotToSpot}
	f.pace.look(&in, shot.Unbound)
	d := Decide(in)
	f.pace.note(d, f.Clock.At, 100*time.Millisecond)
	if d.Searched {
		usd, _ := f.price()
		remove, fresh, moves := 0, 0, 0
		for _, c := range d.Start {
			if c.Reason == underutilized {
				remove, fresh, moves = remove+len(c.Claims), fresh+len(c.New), moves+c.Moves
			}
		}
		f.found = append(f.found, fmt.Sprintf("%6.1f s at %.2f $/h: search %.2f to %.2f $/h, %d nodes go, %d come, %d pods move (lower bound %.2f)",
			f.Clock.At.Sub(f.began).Seconds(), usd, float64(d.Before)/1e6, float64(d.After)/1e6, remove, fresh, moves, f.lower()))
	}
	for _, c := range d.Start {
		f.starts(c)
	}
	wait := poll
	if len(commands)+len(d.Start) > 0 || !in.Quiet {
		wait = busy
	}
	if !d.Next.IsZero() {
		wait = min(wait, max(d.Next.Sub(f.Clock.At), 10*time.Millisecond))
	}
	return wait
}

func (f *fleet) advanceTo(to time.Time) {
	for len(f.due) > 0 && !f.due[0].at.After(to) {
		e := f.due[0]
		f.due = f.due[1:]
		if e.at.After(f.Clock.At) {
			f.Clock.At = e.at
		}
		e.do()
	}
	f.Clock.At = to
}

// shrink lets pods go until so many of each app are left, some at a time, and the
// controller runs from then on until a window is over.
func (f *fleet) shrink(left func(*app) int, perSecond int, window time.Duration) {
	type victim struct {
		a    *app
		name string
	}
	var gone []victim
	for _, a := range f.apps {
		names := slices.Sorted(maps.Keys(a.pods))
		n := left(a)
		for _, at := range f.r.Perm(len(names))[:len(names)-n] {
			gone = append(gone, victim{a, names[at]})
		}
		a.replicas = n
	}
	f.began, f.created, f.last, f.found = f.Clock.At, 0, f.Clock.At, nil
	next := f.Clock.At
	for end := f.Clock.At.Add(window); f.Clock.At.Before(end); {
		n := min(len(gone), max(1, perSecond*int(f.tick)/int(time.Second)))
		for _, v := range gone[:n] {
			if p := v.a.pods[v.name]; p != nil && p.DeletionTimestamp == nil {
				f.end(p)
			}
		}
		gone = gone[n:]
		usd, _ := f.price()
		f.usd += usd * f.tick.Hours()
		f.advanceTo(f.Clock.At.Add(f.tick))
		for _, a := range f.apps {
			for a.active < a.replicas {
				f.create(a)
			}
		}
		slices.SortStableFunc(f.waiting, func(a, b *corev1.Pod) int { return cmp.Compare(f.key[a.Name], f.key[b.Name]) })
		f.schedule()
		if len(f.waiting) > 0 {
			f.plan()
		}
		if !f.Clock.At.Before(next) {
			next = f.Clock.At.Add(f.decide())
		}
	}
}

func requires(p *karpenter.NodePool, key string, op corev1.NodeSelectorOperator, values ...string) {
	p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, karpenter.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
}
