package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// read returns how often and with what sum a metric was observed, or its value twice.
func read(t *testing.T, c any) (float64, float64) {
	t.Helper()
	var m dto.Metric
	if err := c.(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	if h := m.GetHistogram(); h != nil {
		return float64(h.GetSampleCount()), h.GetSampleSum()
	}
	return m.GetCounter().GetValue(), m.GetCounter().GetValue()
}

func TestFollowPod(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "u-1", CreationTimestamp: metav1.NewTime(now.Add(-30 * time.Second))},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	s := New()
	waiting, bound, running := pod("", corev1.PodPending), pod("n", corev1.PodPending), pod("n", corev1.PodRunning)
	s.followPod(waiting, bound, now)
	s.followPod(bound, running, now.Add(10*time.Second))
	s.followPod(running, running, now.Add(time.Hour))
	another := running.DeepCopy()
	another.UID = "u-2"
	s.followPod(waiting, another, now)
	if n, sum := read(t, s.PodBound.WithLabelValues()); n != 1 || sum != 30 {
		t.Errorf("%v pods were bound after %v s in all, want 1 after 30", n, sum)
	}
	if n, sum := read(t, s.PodStartup.WithLabelValues()); n != 1 || sum != 40 {
		t.Errorf("%v pods ran after %v s in all, want 1 after 40", n, sum)
	}
}

func TestFollowConditions(t *testing.T) {
	at := func(status metav1.ConditionStatus, reason string, ago time.Duration) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	c := New().claimConditions
	c.follow(nil, at(metav1.ConditionUnknown, "New", time.Minute))
	c.follow(at(metav1.ConditionUnknown, "New", time.Minute), at(metav1.ConditionUnknown, "Other", time.Minute))
	c.follow(at(metav1.ConditionUnknown, "Other", time.Minute), at(metav1.ConditionTrue, "Ready", 15*time.Second))
	if n, _ := read(t, c.transitions.WithLabelValues("Ready", "Unknown", "New")); n != 1 {
		t.Errorf("%v transitions to Unknown, want the first", n)
	}
	if n, _ := read(t, c.transitions.WithLabelValues("Ready", "Unknown", "Other")); n != 0 {
		t.Errorf("%v transitions for a new reason, want none", n)
	}
	c.gone(&corev1.Pod{}, now) // who wasn't asked to end, as when the watch missed it
	c.gone(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now.Add(-7 * time.Second)}}}, now)
	if n, sum := read(t, c.ended.WithLabelValues()); n != 1 || sum != 7 {
		t.Errorf("%v ends took %v s, want 7 in one", n, sum)
	}
	if n, sum := read(t, c.lasted.WithLabelValues("Ready", "Unknown")); n != 1 || sum != 45 {
		t.Errorf("Unknown lasted %v s in %v times, want 45 in one", sum, n)
	}
}
