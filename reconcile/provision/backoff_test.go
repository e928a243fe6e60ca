package provision

import (
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestBackOffSurvivesRestart has one controller hold a pool back, and another, who knows
// its condition alone, go on with it.
func TestBackOffSurvivesRestart(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(now)
	state := cluster.NewState(clk)
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 3}}
	const why = "FailedRegistration: no Node registered within 15m0s: see 10:00: boot"
	first := &pools{health: &health.Tracker{}, state: state, clock: clk, events: events.NewFakeRecorder(10), book: record.NewBook()}
	at := now
	for _, claim := range []string{"1", "2", "3"} {
		first.health.Failed("a", claim, health.Registered, why, at)
		at = at.Add(10 * time.Second)
	}
	hold := holdOf(first.health, state, pool, at)
	first.backOff(pool, hold)
	c := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionLaunchBackOff)
	if c == nil || c.Reason != "RegistrationFailed" || !strings.HasPrefix(c.Message, "3 in a row") || !strings.HasSuffix(c.Message, why) {
		t.Fatalf("condition %+v", c)
	}
	told := first.events.(*events.FakeRecorder).Events
	if e := <-told; !strings.Contains(e, why) {
		t.Errorf("event %q", e)
	}

	// While the third probe is under way, another controller begins.
	state.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "a-4", Labels: map[string]string{karpenter.LabelNodePool: "a"}, CreationTimestamp: metav1.NewTime(at),
	}})
	second := &pools{health: &health.Tracker{}, state: state, clock: clk, events: events.NewFakeRecorder(10)}
	got := holdOf(second.health, state, pool, at)
	want := hold
	want.Probing = "a-4"
	if got != want {
		t.Errorf("after a restart the hold is %+v, want %+v", got, want)
	}
	second.backOff(pool, got)
	if again := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionLaunchBackOff); again.Message != c.Message || len(second.events.(*events.FakeRecorder).Events) > 0 {
		t.Errorf("the second controller says %q, or tells of it again", again.Message)
	}
	second.health.Reached("a", "a-4", health.Registered)
	second.backOff(pool, holdOf(second.health, state, pool, at))
	if len(pool.Status.Conditions) > 0 {
		t.Errorf("conditions %v stay after a success", pool.Status.Conditions)
	}

	var verdicts []string
	first.backOff(pool, hold)
	first.backOff(pool, health.Hold{})
	for _, d := range first.book.All()[0].Decisions {
		verdicts = append(verdicts, d.Verdict)
	}
	if got := strings.Join(verdicts, " "); got != "HeldBack Open" {
		t.Errorf("the record has %q", got)
	}
}

// TestHeldBefore reads conditions that say nothing of now.
func TestHeldBefore(t *testing.T) {
	tests := map[string]struct {
		why       string
		condition metav1.Condition
	}{
		"none":         {"a pool that works", metav1.Condition{Type: karpenter.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 3}},
		"changed":      {"the change may be the cure", metav1.Condition{Type: karpenter.ConditionLaunchBackOff, Status: metav1.ConditionTrue, ObservedGeneration: 2, Message: backOffMessage(health.Hold{Failures: 2, Until: now, Why: "x"})}},
		"another text": {"somebody has edited it", metav1.Condition{Type: karpenter.ConditionLaunchBackOff, Status: metav1.ConditionTrue, ObservedGeneration: 3, Message: "2 failed"}},
		"a bad time":   {"somebody has edited it", metav1.Condition{Type: karpenter.ConditionLaunchBackOff, Status: metav1.ConditionTrue, ObservedGeneration: 3, Message: "2 in a row came to nothing, the next is not before noon: x"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			pool.Status.Conditions = []metav1.Condition{tc.condition}
			if got := heldBefore(pool); got != (health.Hold{}) {
				t.Errorf("heldBefore() = %+v, want nothing (%s)", got, tc.why)
			}
		})
	}
}
