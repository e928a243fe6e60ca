package lifecycle

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestQuiet(t *testing.T) {
	minute, hour := time.Minute, time.Hour
	ready := func(ago time.Duration) func(*karpenter.NodeClaim) {
		return func(c *karpenter.NodeClaim) {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{
				Type: karpenter.ConditionInitialized, Status: metav1.ConditionTrue, Reason: karpenter.ConditionInitialized, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
			})
		}
	}
	noted := func(ago time.Duration) func(*karpenter.NodeClaim) {
		return func(c *karpenter.NodeClaim) { c.Status.LastPodEventTime = metav1.NewTime(now.Add(-ago)) }
	}
	marked := func(c *karpenter.NodeClaim) { setTrue(c, karpenter.ConditionConsolidatable) }
	going := func(c *karpenter.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }
	tests := map[string]struct {
		why            string
		claim          *karpenter.NodeClaim
		moved          time.Duration // ago, 0 for never
		after          *time.Duration
		changed, quiet bool
		event          time.Duration // ago
	}{
		"not ready":      {why: "its pods aren't there yet", claim: claim(), moved: hour, after: &minute},
		"going":          {why: "nobody asks any more", claim: claim(ready(hour), going), moved: hour, after: &minute},
		"never a pod":    {why: "counted from when it was ready", claim: claim(ready(hour)), after: &minute, changed: true, quiet: true},
		"just ready":     {why: "a minute isn't over", claim: claim(ready(time.Second)), after: &minute},
		"a pod came":     {why: "not quiet, and to be remembered", claim: claim(ready(hour)), moved: 5 * time.Second, after: &minute, changed: true, event: 5 * time.Second},
		"a pod came too": {why: "within ten seconds of the one that is noted", claim: claim(ready(hour), noted(30*time.Second)), moved: 25 * time.Second, after: &minute, event: 30 * time.Second},
		"a long time":    {why: "a tenth of an hour isn't over since the one that is noted", claim: claim(ready(2*hour), noted(5*minute)), moved: minute, after: &hour, event: 5 * minute},
		"quiet again":    {why: "two minutes since the last pod", claim: claim(ready(hour), noted(2*minute)), moved: 2 * minute, after: &minute, changed: true, quiet: true, event: 2 * minute},
		"still quiet":    {why: "said already", claim: claim(ready(hour), noted(2*minute), marked), moved: 2 * minute, after: &minute, quiet: true, event: 2 * minute},
		"no more quiet":  {why: "a pod came a second ago", claim: claim(ready(hour), noted(2*minute), marked), moved: time.Second, after: &minute, changed: true, event: time.Second},
		"after restart":  {why: "this process saw no pod, the one before did", claim: claim(ready(hour), noted(30*time.Second)), after: &minute, event: 30 * time.Second},
		"a fast clock":   {why: "a pod that is yet to come would keep the node for as long", claim: claim(ready(hour), noted(-hour)), moved: 2 * minute, after: &minute, changed: true, quiet: true, event: 2 * minute},
		"never":          {why: "the pool doesn't consolidate any more", claim: claim(ready(hour), marked), changed: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var moved time.Time
			if tc.moved != 0 {
				moved = now.Add(-tc.moved)
			}
			got := quiet(tc.claim, moved, tc.after, now)
			if (got != nil) != tc.changed {
				t.Fatalf("quiet() = %v, want a change: %v (%s)", got, tc.changed, tc.why)
			}
			if got == nil {
				got = tc.claim
			}
			if is := apimeta.IsStatusConditionTrue(got.Status.Conditions, karpenter.ConditionConsolidatable); is != tc.quiet {
				t.Errorf("Consolidatable %v (%s)", is, tc.why)
			}
			var event time.Time
			if tc.event != 0 {
				event = now.Add(-tc.event)
			}
			if !got.Status.LastPodEventTime.Time.Equal(event) {
				t.Errorf("last pod event at %s, want %s (%s)", got.Status.LastPodEventTime, event, tc.why)
			}
			if quiet(got, moved, tc.after, now) != nil {
				t.Errorf("a second look changes it again (%s)", tc.why)
			}
		})
	}
}
