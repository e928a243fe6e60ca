package disrupt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// begin starts commands; those without replacements go on to take their machines away
// once all are written down, so that drains know of each other.
func (l *loop) begin(ctx context.Context, commands []Command, byClaim map[string]cluster.Node, pools map[string]cluster.Pool) error {
	mine := make([]map[string]cluster.Node, len(commands))
	started := kube.Each(len(commands), func(i int) error {
		mine[i] = map[string]cluster.Node{}
		for _, name := range commands[i].Claims {
			mine[i][name] = byClaim[name]
		}
		return l.start(ctx, commands[i], mine[i], pools)
	})
	released := kube.Each(len(commands), func(i int) error {
		if started[i] != nil || len(commands[i].Replacements) > 0 {
			return nil
		}
		return l.release(ctx, commands[i], mine[i])
	})
	return errors.Join(append(started, released...)...)
}

// start writes a command down and creates its replacements. What fails halfway is taken
// back.
func (l *loop) start(ctx context.Context, c Command, byClaim map[string]cluster.Node, pools map[string]cluster.Pool) error {
	for _, name := range c.Claims {
		n := byClaim[name]
		err := l.mark(ctx, &n, c)
		byClaim[name] = n
		if err != nil {
			return errors.Join(err, l.rollBack(ctx, c, byClaim))
		}
	}
	for i := range c.New {
		pool, ok := pools[c.New[i].Pool]
		if !ok {
			var err error
			if pool, err = l.static(ctx, c.New[i].Pool); err != nil {
				return errors.Join(err, l.rollBack(ctx, c, byClaim))
			}
		}
		claim := provision.NewClaim(pool.NodePool, pool.Class, &c.New[i])
		claim.GenerateName, claim.Name = "", c.Replacements[i]
		claim.Annotations[coppice.AnnotationReplaces] = c.ID
		if err := l.kube.Create(ctx, claim); err != nil {
			err = errors.Join(fmt.Errorf("create NodeClaim %s: %w", claim.Name, err), l.discard(ctx, c.Replacements[:i+1]))
			return errors.Join(err, l.rollBack(ctx, c, byClaim))
		}
		l.state.Expect(claim.DeepCopy())
		l.events.Eventf(byClaim[c.Claims[0]].Claim, claim, corev1.EventTypeNormal, "DisruptionLaunching", "Disrupt", "Launching NodeClaim %s: %s", claim.Name, c.Reason)
	}
	return nil
}

// discard deletes replacements of a command that hasn't begun, those included whose
// creation is said to have failed: an answer can be lost.
func (l *loop) discard(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := l.kube.Delete(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete NodeClaim %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// static returns a pool that no pod opens nodes from.
func (l *loop) static(ctx context.Context, name string) (cluster.Pool, error) {
	var pool karpenter.NodePool
	if err := l.kube.Get(ctx, client.ObjectKey{Name: name}, &pool); err != nil {
		return cluster.Pool{}, fmt.Errorf("get NodePool %s: %w", name, err)
	}
	var class aws.EC2NodeClass
	ref := pool.Spec.Template.Spec.NodeClassRef.Name
	if err := l.kube.Get(ctx, client.ObjectKey{Name: ref}, &class); err != nil {
		return cluster.Pool{}, fmt.Errorf("get EC2NodeClass %s: %w", ref, err)
	}
	return cluster.Pool{NodePool: &pool, Class: &class}, nil
}

// mark writes a command onto a machine: the intent first, then what shows of it. The
// node handed in is changed to what was written.
func (l *loop) mark(ctx context.Context, n *cluster.Node, c Command) error {
	want := n.Claim.DeepCopy()
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[coppice.AnnotationDisruption] = c.Encode()
	if err := l.patchClaim(ctx, n, want); err != nil {
		return err
	}
	want = n.Claim.DeepCopy()
	apimeta.SetStatusCondition(&want.Status.Conditions, metav1.Condition{
		Type: karpenter.ConditionDisruptionReason, Status: metav1.ConditionTrue, Reason: string(c.Reason), ObservedGeneration: want.Generation,
	})
	if err := l.patchStatus(ctx, n, want); err != nil {
		return err
	}
	return l.setTaint(ctx, n, true)
}

// unmark takes a command back from a machine.
func (l *loop) unmark(ctx context.Context, n cluster.Node) error {
	if n.Claim == nil {
		return nil
	}
	if err := l.setTaint(ctx, &n, false); err != nil {
		return err
	}
	want := n.Claim.DeepCopy()
	apimeta.RemoveStatusCondition(&want.Status.Conditions, karpenter.ConditionDisruptionReason)
	if len(want.Status.Conditions) != len(n.Claim.Status.Conditions) {
		if err := l.patchStatus(ctx, &n, want); err != nil {
			return err
		}
	}
	return l.forget(ctx, &n)
}

// forget removes the command itself from a claim.
func (l *loop) forget(ctx context.Context, n *cluster.Node) error {
	if _, ok := n.Claim.Annotations[coppice.AnnotationDisruption]; !ok {
		return nil
	}
	want := n.Claim.DeepCopy()
	delete(want.Annotations, coppice.AnnotationDisruption)
	return client.IgnoreNotFound(l.patchClaim(ctx, n, want))
}

func (l *loop) patchClaim(ctx context.Context, n *cluster.Node, want *karpenter.NodeClaim) error {
	if err := l.kube.Patch(ctx, want, client.MergeFrom(n.Claim)); err != nil {
		return fmt.Errorf("mark NodeClaim %s: %w", want.Name, err)
	}
	n.Claim = want
	l.state.SetClaim(want.DeepCopy())
	return nil
}

// patchStatus replaces the list of conditions as a whole, so the write must fail if
// somebody else has written it since.
func (l *loop) patchStatus(ctx context.Context, n *cluster.Node, want *karpenter.NodeClaim) error {
	patch := client.MergeFromWithOptions(n.Claim, client.MergeFromWithOptimisticLock{})
	if err := l.kube.Status().Patch(ctx, want, patch); err != nil {
		return fmt.Errorf("write status of NodeClaim %s: %w", want.Name, err)
	}
	n.Claim = want
	l.state.SetClaim(want.DeepCopy())
	return nil
}

func (l *loop) setTaint(ctx context.Context, n *cluster.Node, on bool) error {
	if n.Node == nil || cluster.HasTaint(n.Node, karpenter.DisruptedTaint()) == on {
		return nil
	}
	want := n.Node.DeepCopy()
	t := karpenter.DisruptedTaint()
	if on {
		want.Spec.Taints = append(want.Spec.Taints, t)
	} else {
		want.Spec.Taints = slices.DeleteFunc(want.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) })
	}
	// The list of taints is replaced as a whole.
	patch := client.MergeFromWithOptions(n.Node, client.MergeFromWithOptimisticLock{})
	if err := l.kube.Patch(ctx, want, patch); err != nil {
		return fmt.Errorf("taint Node %s: %w", want.Name, err)
	}
	n.Node = want
	return nil
}

// release deletes the claims of a command whose replacements are ready. The nodes have
// been tainted: what their pods are now, read past every cache, is what counts. One
// that has got a pod that forbids it stays.
func (l *loop) release(ctx context.Context, c Command, byClaim map[string]cluster.Node) error {
	var errs []error
	for _, name := range c.Claims {
		n, ok := byClaim[name]
		if !ok || n.Deleting() {
			continue
		}
		why, err := l.lateBlock(ctx, c, n)
		switch {
		case err != nil:
			errs = append(errs, err)
		case why != "":
			l.events.Eventf(n.Claim, n.Node, corev1.EventTypeNormal, "DisruptionBlocked", "Disrupt", "%s", why)
			errs = append(errs, l.unmark(ctx, n))
		default:
			errs = append(errs, l.remove(ctx, c, n))
		}
	}
	for _, name := range c.Replacements {
		l.protect(name)
	}
	return errors.Join(errs...)
}

// lateBlock says which pod, bound before the taint was seen, keeps a node.
func (l *loop) lateBlock(ctx context.Context, c Command, n cluster.Node) (string, error) {
	if n.Node == nil || c.Reason == unhealthy {
		return "", nil
	}
	var pods corev1.PodList
	err := l.live.List(ctx, &pods, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Node.Name)})
	if err != nil {
		return "", fmt.Errorf("list pods of Node %s: %w", n.Node.Name, err)
	}
	bounded := c.Reason == drifted && n.Claim.Spec.TerminationGracePeriod != nil
	for i := range pods.Items {
		p := &pods.Items[i]
		switch {
		case c.Reason == empty && cluster.Reschedulable(p):
			return fmt.Sprintf("Pod %s/%s was bound to Node %s at the last moment", p.Namespace, p.Name, n.Node.Name), nil
		case !bounded && cluster.DoNotDisrupt(p, l.clock.Now()):
			return fmt.Sprintf("Pod %s/%s, which forbids disruption, was bound to Node %s at the last moment", p.Namespace, p.Name, n.Node.Name), nil
		}
	}
	return "", nil
}

func (l *loop) remove(ctx context.Context, c Command, n cluster.Node) error {
	if c.Reason == unhealthy {
		if err := l.bound(ctx, &n, l.clock.Now().Add(repairGrace)); err != nil {
			return err
		}
	}
	l.events.Eventf(n.Claim, n.Node, corev1.EventTypeNormal, "DisruptionTerminating", "Disrupt", "Disrupting NodeClaim: %s", c.Reason)
	if err := l.kube.Delete(ctx, n.Claim, client.Preconditions{UID: &n.Claim.UID}); apierrors.IsNotFound(err) {
		return nil // the watch tells the state, or has told it
	} else if err != nil {
		return fmt.Errorf("delete NodeClaim %s: %w", n.Claim.Name, err)
	}
	l.metrics.disrupted(n.Pool(), c.Reason)
	// Until the watch has delivered it, the next decision must know.
	gone := n.Claim.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{Time: l.clock.Now()}
	l.state.SetClaim(gone)
	return nil
}

// bound gives a machine's drain an end.
func (l *loop) bound(ctx context.Context, n *cluster.Node, at time.Time) error {
	if g := n.Claim.Spec.TerminationGracePeriod; g != nil && l.clock.Now().Add(g.Duration).Before(at) {
		return nil
	}
	want := n.Claim.DeepCopy()
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[karpenter.AnnotationTerminationTimestamp] = at.UTC().Format(time.RFC3339)
	return l.patchClaim(ctx, n, want)
}

// rollBack gives a command's machines back, and takes away what has come for it.
func (l *loop) rollBack(ctx context.Context, c Command, byClaim map[string]cluster.Node) error {
	var errs []error
	for _, name := range c.Claims {
		switch n, ok := byClaim[name]; {
		case !ok || !c.marks(n): // it may have a later command
		case n.Deleting():
			// Else the command would be found, and rolled back, again and again.
			errs = append(errs, l.forget(ctx, &n))
		default:
			errs = append(errs, l.unmark(ctx, n))
		}
	}
	for _, name := range c.Replacements {
		n, ok := byClaim[name]
		if !ok || n.Deleting() || !vacant(n) || l.clock.Now().Before(n.NominatedUntil) {
			continue // pods have found it useful
		}
		if err := l.kube.Delete(ctx, n.Claim, client.Preconditions{UID: &n.Claim.UID}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete NodeClaim %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// expected is how long pods are expected on a replacement after its command's machines
// have begun to go: as for nodes that pods were planned onto.
const expected = 20 * time.Second

// protect keeps a replacement from being taken for empty before the pods come.
func (l *loop) protect(claim string) {
	until := l.clock.Now().Add(expected)
	l.state.Nominate(claim, until)
	if node := l.state.NodeName(claim); node != "" {
		l.state.Nominate(node, until)
	}
}

// proceed takes the step that is due on a command under way.
func (l *loop) proceed(ctx context.Context, c Command, byClaim map[string]cluster.Node, declared map[string]Pool, away map[string]bool) error {
	step, why := c.step(byClaim, l.clock.Now())
	pools := poolsOf(c, byClaim)
	if step == Wait || step == Release {
		// It hasn't gone so far that this comes too late.
		if why := l.stopped(c, byClaim, declared, away); why != "" {
			return l.giveUp(ctx, c, byClaim, why)
		}
	}
	switch step {
	case Wait:
		return nil
	case Drain:
		for _, name := range c.Replacements {
			l.protect(name)
		}
		return nil
	case RollBack:
		l.noteFailure(c, pools, why)
		return l.giveUp(ctx, c, byClaim, why)
	}
	l.noteSuccess(c, pools, byClaim, declared)
	return l.release(ctx, c, byClaim)
}

// stopped says what has come up since a command was decided on that would have kept it
// from being begun.
func (l *loop) stopped(c Command, byClaim map[string]cluster.Node, declared map[string]Pool, away map[string]bool) string {
	for _, name := range poolsOf(c, byClaim) {
		if _, paused := declared[name].Options.PausedUntil(l.clock.Now()); paused {
			return fmt.Sprintf("NodePool %s is paused %s", name, declared[name].Options.Pause)
		}
		if r := l.rollouts[name]; c.Reason == drifted && r.Held {
			return fmt.Sprintf("the rollout of NodePool %s is halted while %s", name, r.Why)
		}
	}
	for _, name := range slices.Concat(c.Claims, c.Replacements) {
		if n, ok := byClaim[name]; ok && shiftedAway(n, away) {
			return fmt.Sprintf("a zonal shift moves traffic away from zone %s", n.Labels()[aws.LabelTopologyZoneID])
		}
	}
	return ""
}

// giveUp rolls a command back and says why.
func (l *loop) giveUp(ctx context.Context, c Command, byClaim map[string]cluster.Node, why string) error {
	for _, name := range c.Claims {
		if n, ok := byClaim[name]; ok {
			l.events.Eventf(n.Claim, nil, corev1.EventTypeWarning, "DisruptionRolledBack", "Disrupt", "Keeping NodeClaim: %s", kube.OneLine(why))
		}
	}
	return l.rollBack(ctx, c, byClaim)
}

func poolsOf(c Command, byClaim map[string]cluster.Node) []string {
	var out []string
	for _, name := range c.Claims {
		if n, ok := byClaim[name]; ok && !slices.Contains(out, n.Pool()) {
			out = append(out, n.Pool())
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

// noteFailure makes the pools rest from what has failed.
func (l *loop) noteFailure(c Command, pools []string, why string) {
	now := l.clock.Now()
	for _, p := range pools {
		if c.Reason == drifted {
			l.rollouts[p] = l.rollouts[p].failed(why, now)
			continue
		}
		l.misses[p]++
		l.failed[p] = now.Add(min(firstRest<<min(l.misses[p]-1, 10), longestRest))
	}
}

func (l *loop) noteSuccess(c Command, pools []string, byClaim map[string]cluster.Node, declared map[string]Pool) {
	if c.Reason == drifted {
		if !slices.ContainsFunc(l.proofs, func(p *proof) bool { return p.command.ID == c.ID }) {
			l.proofs = append(l.proofs, &proof{command: c, pools: pools, frail: frail(slices.Collect(maps.Values(byClaim)), replacements(declared, l.clock.Now()))})
		}
		return
	}
	for _, p := range pools {
		delete(l.misses, p)
		delete(l.failed, p)
	}
}
