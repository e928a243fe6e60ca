package forecast

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
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/reconcile/disrupt"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// defaultBoot is how long a machine is taken to need from its claim until pods run on
	// it, where no machine of the cluster tells: EC2, kubelet and CNI take about a minute.
	defaultBoot = time.Minute
	// drainTime is how long a machine is taken to need from the start of its drain to its
	// end: most pods leave within a few seconds, EC2 takes the rest to stop it.
	drainTime = 30 * time.Second
	// horizon is how far ahead windows and pauses are looked for: two weeks hold every
	// weekly schedule whole.
	horizon = 14 * 24 * time.Hour
	// steps bounds a rehearsal; each is a decision over all nodes.
	steps = 3000
)

// forecaster works a forecast out.
type forecaster struct {
	in      Input
	changes map[plan.ID]plan.Change
	// pools and classes are as they will be, by name; former pools as they are.
	pools   map[string]*karpenter.NodePool
	former  map[string]*karpenter.NodePool
	classes map[string]*aws.EC2NodeClass
	types   map[string][]cloud.InstanceType // by pool
	// gone are pools that are deleted.
	gone map[string]bool
	// why are the claims that are out of date, by name.
	why    map[string]verdict
	claims []*karpenter.NodeClaim
	nodes  map[string]*corev1.Node // by providerID
	pods   map[string]int          // that would move, by Node
	policy pack.Options
	out    *plan.Fleet
}

// fleet says what becomes of nodes.
func fleet(in Input, targets []plan.Target, changes []plan.Change) (*plan.Fleet, error) {
	f := &forecaster{
		in: in, changes: map[plan.ID]plan.Change{}, pools: map[string]*karpenter.NodePool{}, former: map[string]*karpenter.NodePool{},
		classes: map[string]*aws.EC2NodeClass{}, types: map[string][]cloud.InstanceType{}, gone: map[string]bool{}, why: map[string]verdict{},
		nodes: map[string]*corev1.Node{}, pods: map[string]int{},
		out: &plan.Fleet{At: in.Picture.TakenAt, Pools: []plan.PoolEffect{}, Launches: []plan.Launch{}, Unplaced: []plan.Unplaced{}, Basis: []string{}},
	}
	for _, c := range changes {
		f.changes[c.Object] = c
	}
	if err := f.settings(); err != nil {
		return nil, err
	}
	if err := f.read(targets); err != nil {
		return nil, err
	}
	f.judge()
	boot, told := f.boot()
	r := f.stage(boot)
	done, err := r.Run()
	if err != nil {
		return nil, err
	}
	f.tell(r, done)
	f.basis(told, done)
	return f.out, nil
}

// settings takes over what the controller works with.
func (f *forecaster) settings() error {
	c, s := f.in.Picture.Controller, f.in.Settings
	if s == nil {
		usual := snapshot.DefaultSettings()
		if s = &usual; c != nil {
			s = &c.Settings
		}
		f.in.Settings = s
	}
	var err error
	if f.policy.Preferences, err = cluster.PreferencePolicy(s.PreferencePolicy); err != nil {
		return err
	}
	if f.policy.MinValues, err = cluster.MinValuesPolicy(s.MinValuesPolicy); err != nil {
		return err
	}
	flags := cmp.Or(strings.Join(s.Flags(), " "), "the defaults")
	switch {
	case c == nil:
		f.note("Which flags the controller runs with isn't known, and is taken to be %s.", flags)
	case !slices.Equal(s.Flags(), c.Settings.Flags()):
		f.note("The controller is taken to run with other flags than it does: %s.", flags)
	default:
		f.note("The flags that decide are %s, as the controller says.", flags)
	}
	return nil
}

// read takes pools and classes as they are and as they will be.
func (f *forecaster) read(targets []plan.Target) error {
	shot := f.in.Picture
	for i := range shot.NodePools {
		p := shot.NodePools[i].DeepCopy()
		f.former[p.Name], f.pools[p.Name] = p, p
	}
	for i := range shot.NodeClasses {
		f.classes[shot.NodeClasses[i].Name] = shot.NodeClasses[i].DeepCopy()
	}
	for _, t := range targets {
		if _, changed := f.changes[t.ID]; !changed {
			continue
		}
		after := plan.After(t, f.in.Judge, kube.Manager)
		switch t.ID.Kind {
		case "NodePool":
			if after == nil {
				f.gone[t.ID.Name] = true
				delete(f.pools, t.ID.Name)
				continue
			}
			p := &karpenter.NodePool{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after, p); err != nil {
				return fmt.Errorf("read %s: %w", t.ID, err)
			}
			if old := f.former[t.ID.Name]; old != nil {
				p.UID, p.Generation, p.Status = old.UID, old.Generation+1, old.Status
			} else {
				// It will be ready as soon as its class is.
				apimeta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: karpenter.ConditionReady, Status: metav1.ConditionTrue, Reason: "Forecast"})
			}
			f.pools[t.ID.Name] = p
		case "EC2NodeClass":
			if after == nil {
				continue // it stays for as long as claims refer to it
			}
			c := &aws.EC2NodeClass{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after, c); err != nil {
				return fmt.Errorf("read %s: %w", t.ID, err)
			}
			if old := f.classes[t.ID.Name]; old != nil {
				c.UID, c.Generation, c.Status = old.UID, old.Generation+1, old.Status
			}
			f.classes[t.ID.Name] = c
		}
	}
	for i := range shot.Nodes {
		f.nodes[shot.Nodes[i].Spec.ProviderID] = &shot.Nodes[i]
	}
	for i := range shot.Pods {
		if p := &shot.Pods[i]; p.Spec.NodeName != "" && cluster.Reschedulable(p) {
			f.pods[p.Spec.NodeName]++
		}
	}
	for i := range shot.NodeClaims {
		c := &shot.NodeClaims[i]
		if ref := c.Spec.NodeClassRef; ref != nil && ref.Group == aws.Group {
			f.claims = append(f.claims, c)
		}
	}
	return f.sell()
}

// sell finds out what each pool can launch.
func (f *forecaster) sell() error {
	source := f.in.Types
	if source == nil {
		source = f.catalogue()
	}
	byClass := map[string][]cloud.InstanceType{}
	for _, name := range slices.Sorted(maps.Keys(f.pools)) {
		p := f.pools[name]
		ref := p.Spec.Template.Spec.NodeClassRef
		if ref == nil || !apimeta.IsStatusConditionTrue(p.Status.Conditions, karpenter.ConditionReady) {
			f.note("NodePool %s isn't ready now: nothing is taken to be launched from it.", name)
			continue
		}
		class := f.classes[ref.Name]
		if class == nil || len(class.Status.Subnets) == 0 || len(class.Status.AMIs) == 0 {
			f.note("NodePool %s: class %s isn't resolved yet, so what it can launch isn't known; no node of it is foretold.", name, ref.Name)
			continue
		}
		types, ok := byClass[ref.Name]
		if !ok {
			var err error
			if types, err = source(class); err != nil {
				return err
			}
			byClass[ref.Name] = types
		}
		f.types[name] = types
	}
	return nil
}

func (f *forecaster) note(format string, args ...any) {
	f.out.Basis = append(f.out.Basis, fmt.Sprintf(format, args...))
}

// boot is how long machines have taken from their claim until pods could run, the
// median, and on what that rests.
func (f *forecaster) boot() (time.Duration, string) {
	var took []time.Duration
	for _, c := range f.claims {
		if up := apimeta.FindStatusCondition(c.Status.Conditions, karpenter.ConditionInitialized); up != nil && up.Status == metav1.ConditionTrue {
			if d := up.LastTransitionTime.Sub(c.CreationTimestamp.Time); d > 0 && d < time.Hour {
				took = append(took, d)
			}
		}
	}
	if len(took) == 0 {
		return defaultBoot, fmt.Sprintf("A new node is taken to need %s until pods run on it: no node of the cluster tells.", defaultBoot)
	}
	slices.Sort(took)
	d := max(took[len(took)/2].Round(time.Second), time.Second)
	return d, fmt.Sprintf("A new node is taken to need %s until pods run on it: the median of the %d that there are.", d, len(took))
}

// stage sets the cluster up for the rehearsal, as it is right after the change.
func (f *forecaster) stage(boot time.Duration) *disrupt.Rehearsal {
	shot := f.in.Picture
	clock := &disrupt.Stopwatch{At: shot.TakenAt}
	state := cluster.NewState(clock)
	r := &disrupt.Rehearsal{
		Clock: clock, State: state, Pools: f.pools, Types: f.types, Classes: f.classes, Guards: disrupt.NewGuards(shot.Budgets),
		Policy: f.policy, Limits: f.in.Settings.ClusterLimits,
		Boot: boot, Drain: func(cluster.Node) time.Duration { return drainTime }, Horizon: horizon, Steps: steps,
	}
	for i := range shot.Namespaces {
		state.Set(&shot.Namespaces[i])
	}
	for i := range shot.Classes {
		state.Set(&shot.Classes[i])
	}
	for i := range shot.Volumes {
		state.Set(&shot.Volumes[i])
	}
	for i := range shot.Claims {
		state.Set(&shot.Claims[i])
	}
	for i := range shot.Nodes {
		state.SetNode(&shot.Nodes[i])
	}
	for i := range shot.CSINodes {
		state.Set(&shot.CSINodes[i])
	}
	for i := range shot.DaemonSets {
		state.SetDaemonSet(&shot.DaemonSets[i])
	}
	waiting := 0
	for i := range shot.Pods {
		if p := &shot.Pods[i]; p.Spec.NodeName != "" {
			state.SetPod(p)
		} else if cluster.Provisionable(p) {
			waiting++
		}
	}
	if waiting > 0 {
		f.note("Pods that wait for a node now (%d) are left out.", waiting)
	}
	for _, c := range f.claims {
		claim := c.DeepCopy()
		v, out := f.why[c.Name]
		switch {
		case f.gone[claim.Labels[karpenter.LabelNodePool]]:
			r.Delete = append(r.Delete, c.Name)
		case !out:
			apimeta.RemoveStatusCondition(&claim.Status.Conditions, karpenter.ConditionDrifted)
		case !v.already:
			apimeta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
				Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: v.reason, Message: v.reason,
				ObservedGeneration: claim.Generation, LastTransitionTime: metav1.NewTime(shot.TakenAt),
			})
		}
		state.SetClaim(claim)
	}
	return r
}

// tell writes down what the rehearsal came to.
func (f *forecaster) tell(r *disrupt.Rehearsal, done disrupt.Performance) {
	out := f.out
	out.Nodes, out.Moves, out.Waves = len(f.claims), done.Moves, done.Waves
	left := map[string]disrupt.Departure{}
	for _, d := range done.Departures {
		left[d.Claim] = d
	}
	effects := map[string]*plan.PoolEffect{}
	effect := func(pool string) *plan.PoolEffect {
		if effects[pool] == nil {
			effects[pool] = &plan.PoolEffect{Pool: pool, Affected: []plan.NodeEffect{}, Gates: []plan.Gate{}, Limits: []plan.LimitEffect{}}
		}
		return effects[pool]
	}
	for id, c := range f.changes {
		if id.Kind == "NodePool" {
			effect(id.Name).Action = c.Action
		}
	}
	empty := 0
	for _, c := range f.claims {
		pool := c.Labels[karpenter.LabelNodePool]
		v, is := f.why[c.Name]
		d, went := left[c.Name]
		if !is {
			if went {
				empty++ // it is empty, and would go without the change as well
			}
			continue
		}
		n := plan.NodeEffect{
			Node: c.Name, Claim: c.Name, Type: c.Labels[corev1.LabelInstanceTypeStable], Zone: c.Labels[corev1.LabelTopologyZone],
			CapacityType: c.Labels[karpenter.LabelCapacityType], Reason: v.reason, Cause: v.cause, Assumed: v.assumed, Already: v.already,
		}
		if node := f.nodes[c.Status.ProviderID]; node != nil && c.Status.ProviderID != "" {
			n.Node, n.Pods = node.Name, f.pods[node.Name]
		}
		switch {
		case went && d.Reason == karpenter.DisruptionReasonDrifted:
			n.Outcome, n.Seconds = plan.Replaced, seconds(d.After)
			out.Replace++
		case went:
			n.Outcome, n.Seconds = plan.Removed, seconds(d.After)
			out.Remove++
		default:
			n.Outcome = plan.Held
			out.Hold++
			b, known := done.Kept[c.Name]
			if !known {
				b = disrupt.Block{Code: "Unfinished", Message: "its replacement isn't done within what was looked at"}
			}
			n.Hold = &plan.Hold{Code: b.Code, Message: b.Message, Until: b.Until}
			if b.Code == "NoPlace" {
				out.Unplaced = append(out.Unplaced, homeless(b.Message))
			}
		}
		if v.already {
			out.Already++
		}
		e := effect(pool)
		e.Affected = append(e.Affected, n)
		e.Seconds = max(e.Seconds, n.Seconds)
		out.Seconds = max(out.Seconds, n.Seconds)
	}
	out.Complete = out.Hold == 0 && !done.Cut
	if empty > 0 {
		f.note("Nodes on which nothing runs go whatever the change (%d).", empty)
	}
	for _, u := range done.Homeless {
		out.Unplaced = append(out.Unplaced, plan.Unplaced{Pod: u.Pod, Reason: explain(u)})
	}
	slices.SortFunc(out.Unplaced, func(a, b plan.Unplaced) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(a.Reason, b.Reason))
	})
	out.Unplaced = slices.Compact(out.Unplaced)
	f.launches(done)
	f.price(r, effect)
	for _, name := range slices.Sorted(maps.Keys(effects)) {
		e := effects[name]
		if e.Action == "" && len(e.Affected) == 0 {
			continue
		}
		for _, c := range f.claims {
			if c.Labels[karpenter.LabelNodePool] == name {
				e.Nodes++
			}
		}
		e.Stay = e.Nodes - len(e.Affected)
		slices.SortFunc(e.Affected, func(a, b plan.NodeEffect) int { return strings.Compare(a.Node, b.Node) })
		e.Gates = append(e.Gates, f.gates(name, e)...)
		e.Limits = append(e.Limits, f.limits(name)...)
		out.Pools = append(out.Pools, *e)
	}
}

func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

func (f *forecaster) launches(done disrupt.Performance) {
	counts := map[plan.Launch]int{}
	for _, a := range done.Arrivals {
		counts[plan.Launch{Pool: a.Pool, Type: a.Type, CapacityType: a.CapacityType, Zone: a.Zone, MicroUSD: a.MicroUSD}]++
	}
	for l, n := range counts {
		l.Count = n
		f.out.Launches = append(f.out.Launches, l)
	}
	slices.SortFunc(f.out.Launches, func(a, b plan.Launch) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), strings.Compare(a.Type, b.Type), strings.Compare(a.CapacityType, b.CapacityType),
			strings.Compare(a.Zone, b.Zone), cmp.Compare(a.MicroUSD, b.MicroUSD))
	})
}

// basis says what the figures rest on.
func (f *forecaster) basis(told string, done disrupt.Performance) {
	if f.out.Touched() > 0 {
		f.note("%s", told)
		f.note("A node is taken to need %s from the start of its drain to its end.", drainTime)
		f.note("Replacements begin with one node at a time in each pool and double each time that the pods on new ones have done well for half a minute, as after a restart of the controller; nothing is taken to fail.")
	}
	f.note("Consolidation is left out: it may find a cheaper fleet afterwards.")
	for id := range f.changes {
		if id.Kind == "NodeOverlay" || id.Kind == "CapacityBuffer" {
			f.note("What NodeOverlays and CapacityBuffers do to nodes isn't foretold.")
		}
	}
	if done.Cut {
		f.note("What happens after %s wasn't looked at.", horizon)
	}
	slices.Sort(f.out.Basis)
	f.out.Basis = slices.Compact(f.out.Basis)
}
