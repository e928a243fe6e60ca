package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

var _ recorder.EventRecorder = &Recorder{}

// TestRecorder tells things and reads what is written when the recorder has ended, which
// writes what is queued.
func TestRecorder(t *testing.T) {
	began := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "p"}}
	claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 250), UID: "c"}}
	tests := map[string]struct {
		why  string
		tell func(r *Recorder, c *clocktesting.FakePassiveClock)
		want []string
	}{
		"two texts": {
			"each is kept",
			func(r *Recorder, _ *clocktesting.FakePassiveClock) {
				r.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Plan", "limit for %s", "cpu")
				r.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Plan", "no type")
			},
			[]string{"shop web-1 FailedScheduling: limit for cpu", "shop web-1 FailedScheduling: no type"},
		},
		"the same soon": {
			"isn't written again within two minutes, but counted",
			func(r *Recorder, c *clocktesting.FakePassiveClock) {
				for range 4 {
					r.Eventf(pod, claim, corev1.EventTypeNormal, "Nominated", "Plan", "x")
					c.SetTime(c.Now().Add(50 * time.Second))
				}
			},
			[]string{"shop web-1 Nominated: x (4)"},
		},
		"the same much later": {
			"the first is forgotten by then",
			func(r *Recorder, c *clocktesting.FakePassiveClock) {
				r.Eventf(pod, nil, corev1.EventTypeNormal, "Nominated", "Plan", "x")
				c.SetTime(c.Now().Add(time.Hour))
				r.Eventf(pod, nil, corev1.EventTypeNormal, "Nominated", "Plan", "x")
			},
			[]string{"shop web-1 Nominated: x", "shop web-1 Nominated: x"},
		},
		"no namespace, long name, long note": {
			"an event has to be somewhere, and within the API's bounds",
			func(r *Recorder, _ *clocktesting.FakePassiveClock) {
				r.Eventf(claim, nil, corev1.EventTypeWarning, "FailedDraining", "Drain", "%s", strings.Repeat("ü", 600))
			},
			[]string{"default " + claim.Name + " FailedDraining: " + strings.Repeat("ü", 510) + "..."},
		},
		"a counter": {
			"ten at once, then one for each half minute",
			func(r *Recorder, c *clocktesting.FakePassiveClock) {
				for i := range 30 {
					r.Eventf(pod, nil, corev1.EventTypeNormal, "Drain", "Drain", "%02d", i)
				}
				c.SetTime(c.Now().Add(time.Minute))
				for i := range 30 {
					r.Eventf(pod, nil, corev1.EventTypeNormal, "Drain", "Drain", "later %02d", i)
				}
				r.Eventf(pod, nil, corev1.EventTypeNormal, "Other", "Other", "another reason has its own")
			},
			func() (out []string) {
				for i := range 10 {
					out = append(out, fmt.Sprintf("shop web-1 Drain: %02d", i))
				}
				return append(out, "shop web-1 Drain: later 00", "shop web-1 Drain: later 01", "shop web-1 Other: another reason has its own")
			}(),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).Build()
			clk := clocktesting.NewFakePassiveClock(began)
			r := NewRecorder(interceptor.NewClient(kube, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if err := ctx.Err(); err != nil {
						return err // as a real one
					}
					return c.Create(ctx, o, opts...)
				},
			}), clk, "coppice")
			tc.tell(r, clk)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if got := written(t, kube); !slices.Equal(got, tc.want) {
				t.Errorf("written %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
}

func TestRecorderWritesAgainWhatIsGone(t *testing.T) {
	kube := fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).Build()
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
	r := NewRecorder(kube, clk, "coppice")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "p"}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		r.Eventf(pod, nil, corev1.EventTypeNormal, "Nominated", "Plan", "x")
		if err := r.Start(ended); err != nil {
			t.Fatal(err)
		}
		if got, want := written(t, kube), 1; len(got) != want {
			t.Fatalf("written %q", got)
		}
		if err := kube.DeleteAllOf(t.Context(), &eventsv1.Event{}, client.InNamespace("shop")); err != nil {
			t.Fatal(err)
		}
		clk.SetTime(clk.Now().Add(eventRepeat))
	}
}

func written(t *testing.T, kube client.Client) []string {
	t.Helper()
	var list eventsv1.EventList
	if err := kube.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		text := fmt.Sprintf("%s %s %s: %s", e.Namespace, e.Regarding.Name, e.Reason, e.Note)
		if e.Series != nil {
			text += fmt.Sprintf(" (%d)", e.Series.Count)
		}
		if len(e.Name) > 253 || len(e.Note) > 1024 || e.EventTime.IsZero() {
			t.Errorf("the API server would refuse event %q of %s", e.Name, e.EventTime)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}
