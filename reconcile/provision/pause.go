package provision

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// pause says in a condition until when the pool is paused, by whom and why. It returns
// how long that lasts, 0 for a pool that isn't.
func pause(pool *karpenter.NodePool, options sugar.Options, now time.Time) time.Duration {
	until, paused := options.PausedUntil(now)
	if !paused {
		apimeta.RemoveStatusCondition(&pool.Status.Conditions, karpenter.ConditionPaused)
		return 0
	}
	apimeta.SetStatusCondition(&pool.Status.Conditions, metav1.Condition{
		Type: karpenter.ConditionPaused, Status: metav1.ConditionTrue, Reason: "PausedInGit",
		Message: "no node is taken away voluntarily " + options.Pause.String(), ObservedGeneration: pool.Generation,
	})
	return until.Sub(now)
}
