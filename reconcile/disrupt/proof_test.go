package disrupt

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestProof(t *testing.T) {
	crash, ready := crashing, doingWell
	going := func(c *karpenter.NodeClaim, _ *corev1.Node) { c.DeletionTimestamp = &metav1.Time{Time: now} }
	ofA := func(p *corev1.Pod) { p.OwnerReferences[0].UID = "a" }
	tests := map[string]struct {
		why    string
		before func(*scene)
		after  func(*scene)
		// since is how long ago the old machine went.
		since   time.Duration
		settled bool
		fails   bool
	}{
		"it goes":                     {"nothing is known yet", func(*scene) {}, func(s *scene) { s.machine("a", "n1", 2, going); s.machine("a", "n2", 2) }, time.Hour, false, false},
		"it stays":                    {"given back: there is nothing to wait for", func(*scene) {}, func(s *scene) { s.machine("a", "n1", 2); s.machine("a", "n2", 2) }, 0, true, false},
		"crashes while it goes":       {"it needn't be waited for", func(*scene) {}, func(s *scene) { s.machine("a", "n1", 2, going); s.machine("a", "n2", 2); s.run("n2", "p", 1, crash) }, 0, false, true},
		"no pods":                     {"nothing can fail", func(*scene) {}, func(s *scene) { s.machine("a", "n2", 2) }, 0, true, false},
		"ready, just now":             {"they may still crash", func(*scene) {}, func(s *scene) { s.machine("a", "n2", 2); s.run("n2", "p", 1, ready) }, time.Second, false, false},
		"ready":                       {"for half a minute", func(*scene) {}, func(s *scene) { s.machine("a", "n2", 2); s.run("n2", "p", 1, ready) }, time.Minute, true, false},
		"not ready":                   {"a slow start isn't a failure, nor a success", func(*scene) {}, func(s *scene) { s.machine("a", "n2", 2); s.run("n2", "p", 1) }, time.Minute, false, false},
		"not ready for long":          {"it won't tell any more", func(*scene) {}, func(s *scene) { s.machine("a", "n2", 2); s.run("n2", "p", 1) }, time.Hour, true, false},
		"crashes":                     {"as it didn't before", func(*scene) {}, func(s *scene) { s.machine("a", "n2", 2); s.run("n2", "p", 1, crash, ofA) }, time.Second, false, true},
		"crashed before":              {"the node isn't to blame", func(s *scene) { s.machine("a", "n1", 2); s.run("n1", "q", 1, crash, ofA) }, func(s *scene) { s.machine("a", "n2", 2); s.run("n2", "p", 1, crash, ofA) }, time.Hour, true, false},
		"crashes on another node":     {"that node isn't new", func(*scene) {}, func(s *scene) { s.machine("a", "n2", 2); s.machine("a", "n3", 2); s.run("n3", "p", 1, crash) }, time.Second, true, false},
		"the replacement isn't there": {"nothing to look at", func(*scene) {}, func(*scene) {}, time.Second, true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before, after := newScene(), newScene()
			tc.before(before)
			tc.after(after)
			p := &proof{
				command: Command{Disruption: coppice.Disruption{Claims: []string{"claim-n1"}, Replacements: []string{"claim-n2"}}},
				frail:   frail(before.state.Snapshot().Nodes, func(cluster.Node) bool { return false }),
			}
			byClaim := map[string]cluster.Node{}
			for _, n := range after.state.Snapshot().Nodes {
				byClaim[n.Claim.Name] = n
			}
			p.verdict(byClaim, now)
			settled, why := p.verdict(byClaim, now.Add(tc.since))
			if settled != tc.settled || (why != "") != tc.fails {
				t.Errorf("settled %v, %q; want %v, a failure: %v (%s)", settled, why, tc.settled, tc.fails, tc.why)
			}
		})
	}
}

// trialRun is a loop and what it sees.
type trialRun struct {
	*scene
	*loop
	clock *clocktesting.FakeClock
}

func newTrialRun() *trialRun {
	c := clocktesting.NewFakeClock(now)
	return &trialRun{newScene(), &loop{rollouts: map[string]Rollout{}, events: events.NewFakeRecorder(100), clock: c}, c}
}

// see lets time pass and the loop look. It returns the rollout of pool a.
func (s *trialRun) see(after time.Duration) Rollout {
	s.clock.Step(after)
	nodes, byClaim, pools := s.scene.state.Snapshot().Nodes, map[string]cluster.Node{}, map[string]Pool{}
	for _, n := range nodes {
		byClaim[n.Claim.Name] = n
	}
	for _, p := range s.pools {
		pools[p.Name] = NewPool(p)
	}
	s.recall(nodes, pools)
	s.prove(byClaim, pools)
	return s.rollouts["a"]
}

func crashing(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
}

func doingWell(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func replaces(c *karpenter.NodeClaim, _ *corev1.Node) {
	c.Annotations[coppice.AnnotationReplaces] = "x"
}

func proofOf(old, fresh string) *proof {
	return &proof{command: Command{Disruption: coppice.Disruption{ID: fresh, Claims: []string{"claim-" + old}, Replacements: []string{"claim-" + fresh}}}, pools: []string{"a"}}
}

// A container that crashes again and again runs in between.
func TestHaltOutlastsRestarts(t *testing.T) {
	s := newTrialRun()
	s.machine("a", "n2", 2)
	s.proofs = []*proof{proofOf("n1", "n2")}
	for range 3 {
		s.run("n2", "p", 1, crashing)
		if r := s.see(time.Minute); !r.Held {
			t.Fatal("a crash halts nothing")
		}
		s.run("n2", "p", 1, doingWell)
		if r := s.see(time.Second); !r.Held {
			t.Fatal("a restart ends the halt")
		}
	}
	if r := s.see(29 * time.Second); !r.Held {
		t.Error("half a minute isn't over")
	}
	if r := s.see(time.Second); r.Held || r.Failures != 1 || len(s.proofs) > 0 {
		t.Errorf("pods that do well don't end the halt: %+v", r)
	}
}

func TestHaltLastsForEachFailure(t *testing.T) {
	s := newTrialRun()
	for i, n := range []string{"n3", "n4", "n5"} {
		s.machine("a", n, 2)
		s.run(n, "p-"+n, 1, []func(*corev1.Pod){crashing, crashing, doingWell}[i])
		s.proofs = append(s.proofs, proofOf("old-"+n, n))
	}
	s.see(0)
	s.run("n4", "p-n4", 1, doingWell)
	s.see(time.Second)
	if r := s.see(time.Minute); !r.Held || r.Wave != 1 || !strings.Contains(r.Why, "p-n3") {
		t.Errorf("one pod that has recovered outweighs another that crashes: %+v", r)
	}
	c := Command{Disruption: coppice.Disruption{Reason: drifted, Claims: []string{"claim-n5"}}}
	byClaim := map[string]cluster.Node{}
	for _, n := range s.scene.state.Snapshot().Nodes {
		byClaim[n.Claim.Name] = n
	}
	if why := s.stopped(c, byClaim, nil, nil); !strings.Contains(why, "halted") {
		t.Errorf("what waits goes on: %q", why)
	}
	c.Reason = underutilized
	if why := s.stopped(c, byClaim, nil, nil); why != "" {
		t.Errorf("a halted rollout keeps what is no part of it: %s", why)
	}
}

// A rollout's own failures are no excuse, whether it is known of them or not.
func TestHaltOutlastsController(t *testing.T) {
	s := newTrialRun()
	s.machine("a", "n1", 2, is("Drifted", now.Add(-time.Minute)))
	s.run("n1", "q", 1, doingWell)
	s.machine("a", "n2", 2, replaces)
	s.run("n2", "p", 1, crashing)
	pools := map[string]Pool{"a": NewPool(s.pools[0])}
	if got := frail(s.scene.state.Snapshot().Nodes, replacements(pools, now)); len(got) > 0 {
		t.Errorf("what fails on a replacement excuses what fails on the next: %v", got)
	}
	if r := s.see(0); !r.Held || r.Failures != 1 {
		t.Errorf("after a restart nothing is halted: %+v", r)
	}
	if r := s.see(time.Second); !r.Held || r.Failures != 1 || len(s.proofs) != 1 {
		t.Errorf("it is found twice: %+v", r)
	}
	s.run("n1", "q", 1, crashing)
	s.proofs, s.rollouts = nil, map[string]Rollout{}
	if r := s.see(0); r.Held {
		t.Errorf("pods that fail on old nodes too halt the rollout: %s", r.Why)
	}
}

func TestLongDrainIsNotWaitedFor(t *testing.T) {
	s := newTrialRun()
	s.machine("a", "n1", 2, func(c *karpenter.NodeClaim, _ *corev1.Node) { c.DeletionTimestamp = &metav1.Time{Time: now} })
	s.machine("a", "n2", 2)
	s.proofs = []*proof{proofOf("n1", "n2")}
	s.see(0)
	if s.see(unproven - time.Second); unsure(s.proofs)["a"] != 1 {
		t.Error("a drain of minutes isn't waited for")
	}
	if s.see(time.Second); unsure(s.proofs)["a"] != 0 {
		t.Error("a drain without end stops the rollout")
	}
	s.run("n2", "p", 1, crashing)
	if r := s.see(time.Hour); !r.Held {
		t.Error("what comes late isn't looked at any more")
	}
}

// Pods that were slow to start haven't been ready for half a minute when they are.
func TestProofCountsFromReadiness(t *testing.T) {
	s := newTrialRun()
	s.machine("a", "n2", 2)
	s.run("n2", "p", 1)
	s.proofs = []*proof{proofOf("n1", "n2")}
	s.see(0)
	s.see(time.Minute)
	s.run("n2", "p", 1, doingWell)
	if r := s.see(time.Second); r.Wave != 0 {
		t.Error("it is widened once they are ready")
	}
	if r := s.see(proving); r.Wave != 2 {
		t.Errorf("it isn't widened: %+v", r)
	}
}

func TestZonalShiftStopsWhatWaits(t *testing.T) {
	s := newTrialRun()
	zone := func(id string) func(*karpenter.NodeClaim, *corev1.Node) {
		return func(c *karpenter.NodeClaim, n *corev1.Node) { c.Labels[aws.LabelTopologyZoneID] = id }
	}
	s.machine("a", "n1", 2, zone("use1-az1"))
	s.machine("a", "n2", 2, zone("use1-az2"))
	byClaim := map[string]cluster.Node{}
	for _, n := range s.scene.state.Snapshot().Nodes {
		byClaim[n.Claim.Name] = n
	}
	c := proofOf("n1", "n2").command
	for id, want := range map[string]bool{"use1-az1": true, "use1-az2": true, "use1-az3": false} {
		if why := s.stopped(c, byClaim, nil, map[string]bool{id: true}); (why != "") != want {
			t.Errorf("a shift from %s stops it for %q", id, why)
		}
	}
}

func TestRolloutWaitsForProof(t *testing.T) {
	s := newScene()
	for _, n := range []string{"n1", "n2", "n3"} {
		s.machine("a", n, 2, is("Drifted", now.Add(-time.Minute)))
		s.run(n, "p-"+n, 2)
	}
	s.alter = func(in *Input) { in.Unsure = map[string]int{"a": 1} }
	if d := s.decide(t); len(d.Start) > 0 || code(d, "n1", drifted) != "Wave" {
		t.Errorf("another begins before the canary's pods are known to do well: %v", begun(d))
	}
	s.alter = func(in *Input) { in.Rollouts = map[string]Rollout{"a": {Wave: 1, Held: true, Why: "pod d/x crashes"}} }
	d := s.decide(t)
	if len(d.Start) > 0 || code(d, "n1", drifted) != "Halted" {
		t.Errorf("a halted rollout goes on: %v", begun(d))
	}
	for _, v := range d.Verdicts {
		if v.Code == "Halted" && (!v.Until.IsZero() || !strings.Contains(v.Message, "pod d/x crashes")) {
			t.Errorf("it says %q until %v", v.Message, v.Until)
		}
	}
}
