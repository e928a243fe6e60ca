package provision

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestHoldForgetsDeadProbe takes a probe away without anybody reporting its end.
func TestHoldForgetsDeadProbe(t *testing.T) {
	state, tracker := cluster.NewState(clocktesting.NewFakePassiveClock(now)), &health.Tracker{}
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	tracker.Failed("a", "first", health.Registered, "why", now)
	state.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "probe"}})
	tracker.Probe("a", "probe")
	later := now.Add(time.Hour)
	if !holdOf(tracker, state, pool, now).Closed(later) {
		t.Error("the pool is open although its probe is under way")
	}
	state.DeleteClaim("probe")
	if h := holdOf(tracker, state, pool, now); h.Closed(later) || h.Failures != 1 {
		t.Errorf("hold %+v; want the pool open for another probe", h)
	}
}
