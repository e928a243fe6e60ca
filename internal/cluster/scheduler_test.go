package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// schedulerCases is how many random clusters an ordinary run tries. COPPICE_CASES
// multiplies it; COPPICE_SEED=N tries the Nth alone.
const schedulerCases = 200

// TestSchedulerKeepsThePlan plans random clusters as production does, makes the
// nodes exactly as planned, and lets an unmodified kube-scheduler bind the pods. What
// holds depends on how the pods come to it:
//
//   - Nominated as production does, and one after another where they depend on each
//     other: every planned pod is bound to the very node that it was planned for.
//   - Nominated and all at once: the scheduler may try a pod before those that its
//     constraints need or count, and then refuses it or finds it another node. Planned
//     and nominated again as production does, every pod is bound, but for those that
//     the scheduler has stranded: of pods that want to be on one node it may have put
//     the first where the others have no room.
//   - All at once and without nominations: the same holds, but the scheduler's scores
//     spread pods over the nodes, so that it takes further nodes more often.
//
// The first is the promise, and in three cases of four. In it, daemons' pods find their
// room on every new node, and no pod that has no place by the plan is bound to a node
// that existed.
func TestSchedulerKeepsThePlan(t *testing.T) {
	cases := uint64(schedulerCases)
	if text := os.Getenv("COPPICE_CASES"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("COPPICE_CASES: %v", err)
		}
		cases *= n
	}
	seeds := make([]uint64, cases)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	if cases <= 282 {
		seeds = append(seeds, 282) // found a defect
	}
	if text := os.Getenv("COPPICE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("COPPICE_SEED: %v", err)
		}
		seeds = []uint64{n}
	}
	ctrl.SetLogger(logr.Discard())
	g := newRig(t)
	var total tally
	for _, seed := range seeds {
		began := time.Now()
		c, err := g.try(seed)
		for again := 0; err != nil && again < 3 && starved(err); again++ {
			t.Logf("COPPICE_SEED=%d is tried again: %v", seed, err)
			if err = g.clear(); err == nil {
				c, err = g.try(seed)
			}
		}
		if err != nil {
			t.Errorf("COPPICE_SEED=%d: %v", seed, err)
		}
		if testing.Verbose() {
			t.Logf("COPPICE_SEED=%d: %v", seed, time.Since(began).Round(time.Millisecond))
		}
		total.add(c.tally)
		// An API server that is short of time refuses some of many deletions.
		err = g.clear()
		for again := 0; err != nil && again < 5; again++ {
			time.Sleep(2 * time.Second)
			err = g.clear()
		}
		if err != nil {
			t.Fatalf("COPPICE_SEED=%d: clear up: %v", seed, err)
		}
		if t.Failed() && os.Getenv("COPPICE_ALL") == "" {
			break
		}
	}
	t.Logf("%d cases: %s", len(seeds), total)
}

func (g *rig) try(seed uint64) (*trial, error) {
	c := &trial{rig: g, s: newScenario(seed, g.types), mode: modeOf(seed), compare: seed%4 == 0}
	return c, c.run()
}

// starved reports whether an error says only that the machine has no time for the API
// server, as etcd's requests end after seven seconds.
func starved(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || strings.Contains(err.Error(), "etcdserver: request timed out")
}

// tally counts what cases were about, to show that they are not vacuous.
type tally struct {
	planned, onExisting, newNodes, unschedulable, daemonPods, again, further, lucky, stranded int
}

func (a *tally) add(b tally) {
	a.planned += b.planned
	a.onExisting += b.onExisting
	a.newNodes += b.newNodes
	a.unschedulable += b.unschedulable
	a.daemonPods += b.daemonPods
	a.again += b.again
	a.further += b.further
	a.lucky += b.lucky
	a.stranded += b.stranded
}

func (a tally) String() string {
	return fmt.Sprintf("%d pods planned (%d of them onto nodes that existed), %d nodes opened, %d pods without a place, %d daemon pods, %d pods bound at a later turn or plan, %d further nodes and %d pods stranded where pods came all at once, %d pods without a place bound to what machines turned out to be",
		a.planned, a.onExisting, a.newNodes, a.unschedulable, a.daemonPods, a.again, a.further, a.stranded, a.lucky)
}

// mode is how planned pods come to the scheduler.
type mode int

const (
	inTurn mode = iota
	atOnce
	bare
)

func modeOf(seed uint64) mode {
	switch seed % 8 {
	case 3:
		return atOnce
	case 7:
		return bare
	}
	return inTurn
}

// trial is one case under way.
type trial struct {
	*rig
	s     *scenario
	mode  mode
	tally tally
	// compare says whether plans are compared with those of a fresh model.
	compare bool

	// places is where the last plan wants pods: a Node or a claim.
	places map[string]string
	// noPlace are the pods that the last plan has none for.
	noPlace map[string]pack.Unschedulable
	made    int // claims
}

func (c *trial) run() error {
	if err := c.build(c.s); err != nil {
		return err
	}
	c.places, c.noPlace = map[string]string{}, map[string]pack.Unschedulable{}
	for i, pods := range c.s.batches {
		if i > 0 && len(pods) == 0 {
			continue
		}
		if err := c.createPods(pods); err != nil {
			return err
		}
		if err := c.plan(); err != nil {
			return err
		}
		// The second batch meets what the first has asked for half-way.
		if i == 0 && len(c.s.batches[1]) > 0 {
			if err := c.bringUp(func() int { return c.s.r.IntN(3) }); err != nil {
				return err
			}
		}
	}
	if err := c.bringUp(func() int { return initialized }); err != nil {
		return err
	}
	bind := c.bindAll
	if c.mode == inTurn {
		bind = c.bindInTurn
	}
	if err := bind(slices.Sorted(maps.Keys(c.places))); err != nil {
		return err
	}
	if c.mode != inTurn {
		return nil
	}
	if err := c.daemonsRun(); err != nil {
		return err
	}
	return c.nothingFitsAfterAll()
}

// plan syncs the model and plans, as the planner's pass does. A model that starts
// anew must come to the same.
func (c *trial) plan() error {
	if err := c.model.Sync(c.state, c.s.pools); err != nil {
		return err
	}
	o := pack.Options{Work: 2}
	plan := c.model.Plan(o)
	if c.compare {
		fresh := NewModel()
		if err := fresh.Sync(c.copyState(), c.s.pools); err != nil {
			return err
		}
		if diff := cmp.Diff(fresh.Plan(o), plan); diff != "" {
			return fmt.Errorf("a model that followed all changes plans otherwise than a fresh one:\n%s", diff)
		}
	}
	for k, err := range c.model.Refused() {
		return fmt.Errorf("pod %s is refused: %w", k, err)
	}
	c.tally.planned += len(plan.Assignments)
	c.tally.onExisting += len(plan.Assignments)
	c.tally.newNodes += len(plan.NewNodes)
	c.tally.unschedulable += len(plan.Unschedulable)
	clear(c.places)
	clear(c.noPlace)
	for _, a := range plan.Assignments {
		c.places[a.Pod] = a.Node
	}
	for _, u := range plan.Unschedulable {
		c.noPlace[u.Pod] = u
	}
	for i := range plan.NewNodes {
		n := &plan.NewNodes[i]
		c.tally.planned += len(n.Pods)
		claim := c.claimFor(n)
		c.state.SetClaim(claim)
		for _, pod := range n.Pods {
			c.places[pod] = claim.Name
		}
	}
	return nil
}

// claimFor writes a planned node as a NodeClaim of its pool.
func (c *trial) claimFor(n *pack.NewNode) *karpenter.NodeClaim {
	at := slices.IndexFunc(c.s.pools, func(p Pool) bool { return p.Name == n.Pool })
	t := c.s.pools[at].Spec.Template
	claim := &karpenter.NodeClaim{}
	claim.Name = fmt.Sprintf("%s-m%d", c.s.name, c.made)
	c.made++
	claim.UID, claim.ResourceVersion = types.UID(claim.Name), "1"
	claim.Labels = maps.Clone(t.Labels)
	maps.Copy(claim.Labels, n.Labels)
	claim.Labels[karpenter.LabelNodePool] = n.Pool
	claim.Spec.Taints, claim.Spec.StartupTaints = t.Spec.Taints, t.Spec.StartupTaints
	for _, r := range n.Requirements {
		q := need(r.Key, corev1.NodeSelectorOperator(r.Operator.String()), r.Values...)
		if r.MinValues > 0 {
			q.MinValues = &r.MinValues
		}
		claim.Spec.Requirements = append(claim.Spec.Requirements, q)
	}
	claim.Spec.Resources.Requests = ResourceList(n.Requests)
	return claim
}

// How far a machine has come.
const (
	asked = iota
	launched
	registered
	initialized
)

// bringUp takes each machine that was asked for as far as to says, if it isn't.
func (c *trial) bringUp(to func() int) error {
	var nodes []*corev1.Node
	for _, m := range c.state.Snapshot().Nodes {
		if m.Claim == nil || m.Initialized() {
			continue
		}
		stage, claim := to(), m.Claim
		if stage >= launched && claim.Status.ProviderID == "" {
			var err error
			if claim, err = c.launch(claim); err != nil {
				return err
			}
			c.state.SetClaim(claim)
		}
		if stage < registered {
			continue
		}
		labels := maps.Clone(claim.Labels)
		labels[karpenter.LabelRegistered] = "true"
		taints := slices.Clone(claim.Spec.Taints)
		if stage == initialized {
			labels[karpenter.LabelInitialized] = "true"
		} else {
			taints = append(taints, claim.Spec.StartupTaints...)
		}
		if m.Node != nil {
			n := m.Node.DeepCopy()
			n.Labels[karpenter.LabelInitialized] = "true"
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return contains(claim.Spec.StartupTaints, t) })
			if err := c.kube.Patch(c.ctx, n, client.MergeFrom(m.Node)); err != nil {
				return fmt.Errorf("initialize Node %s: %w", n.Name, err)
			}
			nodes = append(nodes, n)
			continue
		}
		nodes = append(nodes, ready(claim.Name+"-node", labels, taints, claim.Status.Capacity, claim.Status.Allocatable))
	}
	return c.createNodes(nodes)
}

// launch picks what the cloud may give: any type that the claim allows, bought in
// any way that it allows.
func (c *trial) launch(claim *karpenter.NodeClaim) (*karpenter.NodeClaim, error) {
	acceptable := cloud.Acceptable(c.types, claim.Spec.Requirements)
	if len(acceptable) == 0 {
		return nil, fmt.Errorf("NodeClaim %s can become nothing: %v", claim.Name, claim.Spec.Requirements)
	}
	t := one(c.s.r, acceptable...)
	o := one(c.s.r, t.Offerings...)
	claim = claim.DeepCopy()
	maps.Copy(claim.Labels, bought(t, o))
	claim.Labels[aws.LabelNodeClass] = "default"
	claim.Status.ProviderID = "aws:///here/" + claim.Name + "-node"
	claim.Status.Capacity, claim.Status.Allocatable = t.Capacity, t.Allocatable
	claim.ResourceVersion = "2"
	return claim, nil
}

// orders is how many orders of binding are tried. Constraints can hold in one and not
// in another; nearly every plan holds in the first.
const orders = 8

// rounds bounds how often what is left is planned again.
const rounds = 8

// describe says all about pods that matters to who has to find out what is wrong.
func (c *trial) describe(pods []string, planned map[string]string) string {
	var b strings.Builder
	for _, pod := range pods {
		p := c.pod(pod)
		spec, _ := json.Marshal(p.Spec)
		fmt.Fprintf(&b, "\n  %s: planned for %q, nominated to %q, bound to %q: %s\n    %v\n    labels %v\n    %s", pod, c.state.NodeName(planned[pod]), p.Status.NominatedNodeName, p.Spec.NodeName, refusal(p), c.noPlace[pod].Reasons, p.Labels, spec)
	}
	for _, m := range c.state.Snapshot().Nodes {
		if m.Node == nil {
			continue
		}
		var on []string
		for _, p := range m.Pods {
			on = append(on, fmt.Sprintf("%s(%v)", PodKey(p), p.Labels))
		}
		keys := []string{corev1.LabelTopologyZone, karpenter.LabelCapacityType, "team", "pool", corev1.LabelInstanceTypeStable}
		var labels []string
		for _, k := range keys {
			labels = append(labels, m.Node.Labels[k])
		}
		fmt.Fprintf(&b, "\n  node %s %v taints %v closed %v: %v", m.Node.Name, labels, m.Node.Spec.Taints, m.Node.Spec.Unschedulable, on)
	}
	return b.String()
}

// copyState returns what a state knows that was fed all of it at once.
func (c *trial) copyState() *State {
	out := NewState(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	s := c.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, labels := range s.namespaces {
		ns := &corev1.Namespace{}
		ns.Name, ns.Labels = name, labels
		out.Set(ns)
	}
	for _, o := range s.volumeClaims {
		out.Set(o)
	}
	for _, o := range s.volumes {
		out.Set(o)
	}
	for _, o := range s.storageClasses {
		out.Set(o)
	}
	for _, o := range s.csiNodes {
		out.Set(o)
	}
	for _, o := range s.daemonSets {
		out.SetDaemonSet(o)
	}
	for _, o := range s.claims {
		out.SetClaim(o)
	}
	for _, o := range s.nodes {
		out.SetNode(o)
	}
	for _, o := range s.pods {
		out.SetPod(o)
	}
	return out
}

// each runs do for all items, several at once.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	return errors.Join(kube.Each(len(items), func(i int) error { return do(ctx, items[i]) })...)
}
