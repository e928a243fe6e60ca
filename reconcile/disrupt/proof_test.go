package disrupt

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestProof(t *testing.T) {
	crash := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	}
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
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
				frail:   frail(before.state.Snapshot().Nodes),
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
