package interrupt

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestForce(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	at := func(ago time.Duration) string { return now.Add(-ago).Format(time.RFC3339) }
	tests := map[string]struct {
		why     string
		kind    cloud.InterruptionKind
		deleted bool   // for an hour
		had     string // the drain's end before
		want    string
	}{
		"check failed":                      {why: "pods on it don't run", kind: cloud.StatusCheckFailed, want: at(0)},
		"check failed while it drains":      {why: "else a budget holds it for ever", kind: cloud.StatusCheckFailed, deleted: true, want: at(0)},
		"check failed, bounded later":       {why: "that is too late", kind: cloud.StatusCheckFailed, deleted: true, had: at(-time.Hour), want: at(0)},
		"check failed, known":               {why: "each minute tells it again", kind: cloud.StatusCheckFailed, deleted: true, had: at(time.Minute), want: at(time.Minute)},
		"check failed, left from long ago":  {why: "it says nothing about this deletion", kind: cloud.StatusCheckFailed, deleted: true, had: at(24 * time.Hour), want: at(0)},
		"stopped":                           {why: "its pods end with it", kind: cloud.InstanceStopped, want: at(0)},
		"terminated":                        {why: "its pods end with it", kind: cloud.InstanceTerminated, want: at(0)},
		"terminated as it was to be":        {why: "it was drained before", kind: cloud.InstanceTerminated, deleted: true},
		"scheduled":                         {why: "there is time for a drain", kind: cloud.ScheduledChange},
		"stopped, had an end from long ago": {why: "it is about another deletion", kind: cloud.InstanceStopped, had: at(24 * time.Hour), want: at(0)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u", Finalizers: []string{karpenter.Finalizer}}}
			if tc.had != "" {
				claim.Annotations = map[string]string{karpenter.AnnotationTerminationTimestamp: tc.had}
			}
			if tc.deleted {
				claim.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)}
			}
			kube := fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).WithObjects(claim).Build()
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				t.Fatal(err)
			}
			r := &receiver{kube: kube, events: events.NewFakeRecorder(10), clock: clocktesting.NewFakeClock(now)}
			if err := r.interrupt(t.Context(), tc.kind, claim); err != nil {
				t.Fatal(err)
			}
			var got karpenter.NodeClaim
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(claim), &got); err != nil {
				t.Fatal(err)
			}
			if got.DeletionTimestamp == nil || got.Annotations[karpenter.AnnotationTerminationTimestamp] != tc.want {
				t.Errorf("deleted %v, its drain ends at %q, want %q (%s)", got.DeletionTimestamp, got.Annotations[karpenter.AnnotationTerminationTimestamp], tc.want, tc.why)
			}
		})
	}
}
