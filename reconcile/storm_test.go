package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/reconcile/lifecycle"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const stormPools = nodeClass + `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: short}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [c5.large, c5.xlarge, c6i.large, c6i.xlarge]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fine}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
`

// fast is a clock on which time passes faster than it does.
type fast struct {
	clock.RealClock
	from  time.Time
	speed time.Duration
}

func (f fast) Now() time.Time                  { return f.from.Add(time.Since(f.from) * f.speed) }
func (f fast) Since(t time.Time) time.Duration { return f.Now().Sub(t) }
func (f fast) After(d time.Duration) <-chan time.Time {
	return f.RealClock.After(d / f.speed)
}
func (f fast) NewTimer(d time.Duration) clock.Timer   { return f.RealClock.NewTimer(d / f.speed) }
func (f fast) NewTicker(d time.Duration) clock.Ticker { return f.RealClock.NewTicker(d / f.speed) }

const (
	// stormSpeed is how much faster time passes: ten minutes in half a minute. A higher
	// one leaves Kubernetes, which keeps to real time, too little of each minute.
	stormSpeed = 20
	// stormClaims is how many claims a pool may make in vain in ten minutes, issue
	// kubernetes-sigs/karpenter#3198 telling of 2,700 in ninety.
	stormClaims = 30
)

// TestShortageOfEverything has a pool all of whose types are sold out for ten simulated
// minutes, with pods that want it, and controllers that crash meanwhile. It tries again ever
// more seldom, and another pool gets its nodes as if nothing was. When the shortage is over, the pods get their nodes.
func TestShortageOfEverything(t *testing.T) {
	l := prepare(t, stormPools, "--boot-delay", "1s", "--unthrottled", "--speed", fmt.Sprint(stormSpeed))
	clk := fast{from: time.Now(), speed: stormSpeed}
	var err error
	l.cloud, err = ec2.New(t.Context(), ec2.Config{
		ClusterName: l.env.ClusterName, ClusterEndpoint: l.env.APIServer, Clock: clk,
		KubernetesVersion: func(context.Context) (string, error) { return "1.37", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	// Timestamps of the API server are real, so that all timeouts would strike.
	never := 1000 * time.Hour
	l.run(reconcile.Options{Clock: clk, Timeouts: lifecycle.Timeouts{Launch: never, Registration: never, Initialization: never}})
	l.deploy("fine", 1, "1500m", inPool("fine")) // one to a node
	l.running("fine", 1)

	l.simulator().do(ec2sim.Step{Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: []string{"c5.*", "c6i.*"}}}})
	made := l.created(karpenter.LabelNodePool, "short")
	l.deploy("storm", 20, "1", inPool("short"))
	began := clk.Now()
	slowest := time.Duration(0)
	for minute := 1; clk.Since(began) < 10*time.Minute; minute++ {
		asked := time.Now()
		l.scale("fine", int32(1+minute))
		l.running("fine", 1+minute)
		slowest = max(slowest, time.Since(asked))
		<-clk.After(began.Add(time.Duration(minute) * time.Minute).Sub(clk.Now()))
		if minute%3 == 0 {
			// One that crashes and comes back goes on where it was.
			l.heldBack("short")
			l.stop()
			l.run(l.options)
		}
	}
	n := made()
	t.Logf("%d claims in %s of a pool that can't launch; the other pool's slowest pod ran after %.1f s", n, clk.Since(began).Round(time.Second), slowest.Seconds())
	if n > stormClaims {
		t.Errorf("%d claims were made in vain, want %d at most", n, stormClaims)
	}
	if n < 2 {
		t.Errorf("%d claims were made: the pool isn't tried again", n)
	}
	l.told("storm", "FailedScheduling", `NodePool "short": held back`)

	l.simulator().call("DELETE", "effects", nil, nil)
	// A shortage that has returned often enough is believed for 24 minutes, which are 72 s.
	testkit.Await(t, l.kube, "the pool's first launch after the shortage", 4*time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		return slices.ContainsFunc(list, func(c *karpenter.NodeClaim) bool {
			return apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionLaunched)
		}), fmt.Sprintf("%d claims", len(list))
	}, client.MatchingLabels{karpenter.LabelNodePool: "short"})
	l.running("storm", 20)
	testkit.AwaitObject(t, l.kube, "the pool to be held back no more", 2*time.Minute, &karpenter.NodePoolList{}, client.ObjectKey{Name: "short"}, func(p *karpenter.NodePool) (bool, string) {
		c := apimeta.FindStatusCondition(p.Status.Conditions, karpenter.ConditionLaunchBackOff)
		return c == nil, fmt.Sprint(c)
	})
	l.settled()
	l.twice()
}

// heldBack waits until the pool says that it is, which is when a successor would know.
func (l *loop) heldBack(pool string) {
	l.t.Helper()
	testkit.AwaitObject(l.t, l.kube, "the pool to be held back", 2*time.Minute, &karpenter.NodePoolList{}, client.ObjectKey{Name: pool}, func(p *karpenter.NodePool) (bool, string) {
		c := apimeta.FindStatusCondition(p.Status.Conditions, karpenter.ConditionLaunchBackOff)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == "LaunchFailed" && strings.Contains(c.Message, "in a row"), fmt.Sprint(p.Status.Conditions)
	})
}
