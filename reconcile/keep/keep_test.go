package keep

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit"
)

// What one controller learnt the next one knows, and nothing is written twice.
func TestKnowledgeOutlivesTheController(t *testing.T) {
	env := testkit.Sandbox(t)
	kube := testkit.Client(t, env.REST)
	testkit.EC2(t, ec2sim.Config{})
	clk := testclock.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	provider := func() *ec2.Provider {
		t.Helper()
		p, err := ec2.New(t.Context(), ec2.Config{ClusterName: "demo", Clock: clk})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	know := func(p *ec2.Provider) string {
		t.Helper()
		text, err := p.Knowledge()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// start runs a controller's keeper, whose period passes by tick, and returns how to
	// end it.
	var tick *testclock.FakeClock
	start := func(p *ec2.Provider) func() {
		period := testclock.NewFakeClock(clk.Now())
		tick = period
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		k := &keeper{reader: kube, writer: kube, cloud: p, clock: period, namespace: "default"}
		go func() { done <- k.Start(ctx) }()
		return func() {
			t.Helper()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stored := func() (text, version string) {
		var found corev1.ConfigMap
		if err := kube.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: Name}, &found); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return found.Data[dataKey], found.ResourceVersion
	}
	waiting := func() {
		t.Helper()
		for limit := time.Now().Add(10 * time.Second); !tick.HasWaiters(); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("the keeper doesn't wait for its period")
			}
		}
	}

	first := provider()
	stop := start(first)
	waiting()
	first.Lost("spot", "m5.large", "us-west-2a", "")
	tick.Step(period)
	waiting()
	text, version := stored()
	if want := know(first); text != want {
		t.Fatalf("after a period %q is stored, want %q", text, want)
	}
	tick.Step(period)
	waiting()
	if _, again := stored(); again != version {
		t.Error("nothing new was written again")
	}
	// What was learnt last is written at the end.
	first.Lost("spot", "c5.large", "us-west-2b", "")
	stop()
	if text, _ := stored(); text != know(first) {
		t.Errorf("after the end %q is stored", text)
	}

	second := provider()
	_, version = stored()
	stop = start(second)
	waiting()
	if got, want := know(second), know(first); got != want {
		t.Errorf("the next controller knows %s, want %s", got, want)
	}
	stop()
	if _, again := stored(); again != version {
		t.Error("a controller that learnt nothing wrote")
	}

	// Something that nobody can read is replaced, not obeyed.
	var broken corev1.ConfigMap
	if err := kube.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: Name}, &broken); err != nil {
		t.Fatal(err)
	}
	broken.Data[dataKey] = "{"
	if err := kube.Update(t.Context(), &broken); err != nil {
		t.Fatal(err)
	}
	third := provider()
	stop = start(third)
	waiting()
	stop()
	if text, _ := stored(); text != know(third) {
		t.Errorf("a broken text was left: %q", text)
	}
}
