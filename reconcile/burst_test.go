package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// burstNodes is how many nodes come at once unless COPPICE_BURST_NODES says otherwise.
const burstNodes = 30

const burstPool = nodeClass + `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: burst}
spec:
  replicas: 0
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
`

// arrivals are when Nodes became ready, when the node controller had taken its own taints
// from them, and when NodeClaims were initialized, as a watch saw it.
type arrivals struct {
	mu                       sync.Mutex
	ready, open, initialized map[string]time.Time
	changed                  chan struct{}
}

// note takes down the first time that a name is seen.
func (a *arrivals) note(times map[string]time.Time, name string, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := times[name]; is && !known {
		times[name] = time.Now()
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// last is how many names have a time, and the first and the last of these.
func (a *arrivals) last(times map[string]time.Time) (n int, first, last time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range times {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return len(times), first, last
}

// arrivals watches from now on.
func (l *loop) arrivals(ctx context.Context) *arrivals {
	l.t.Helper()
	a := &arrivals{ready: map[string]time.Time{}, open: map[string]time.Time{}, initialized: map[string]time.Time{}, changed: make(chan struct{}, 1)}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &karpenter.NodeClaimList{}} {
		l.each(ctx, list, func(o client.Object, _ bool) {
			switch o := o.(type) {
			case *corev1.Node:
				a.note(a.ready, o.Name, cluster.Ready(o))
				a.note(a.open, o.Name, cluster.Ready(o) && !slices.ContainsFunc(o.Spec.Taints, cluster.Ephemeral))
			case *karpenter.NodeClaim:
				a.note(a.initialized, o.Name, apimeta.IsStatusConditionTrue(o.Status.Conditions, karpenter.ConditionInitialized))
			}
		})
	}
	return a
}

// each calls fn for every object of a list's kind that is created or changed from now on,
// until the test ends. The server ends watches from time to time; the next goes on where
// the one before ended.
func (l *loop) each(ctx context.Context, list client.ObjectList, fn func(o client.Object, added bool)) {
	l.t.Helper()
	if err := l.kube.List(ctx, list, client.Limit(1)); err != nil {
		l.t.Fatal(err)
	}
	version := list.GetResourceVersion()
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	l.t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w, err := l.kube.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
			if err != nil {
				if ctx.Err() == nil {
					l.t.Errorf("watch %T: %v", list, err)
				}
				return
			}
			for e := range w.ResultChan() {
				if o, ok := e.Object.(client.Object); ok {
					version = o.GetResourceVersion()
					fn(o, e.Type == watch.Added)
				}
			}
			w.Stop()
		}
	}()
}

// TestNodesThatComeAtOnce launches many nodes at once. All are initialized soon after
// the last has become ready, as the log tells, since what each costs is a few writes that
// don't get into each other's way. COPPICE_BURST_NODES asks for another number.
func TestNodesThatComeAtOnce(t *testing.T) {
	n := number(t, "COPPICE_BURST_NODES", burstNodes)
	l := prepare(t, burstPool, "--boot-delay", "5s", "--unthrottled")
	l.run(reconcile.Options{})
	a := l.arrivals(t.Context())
	l.acts.reset()
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "burst"}}
	if err := l.kube.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))); err != nil {
		t.Fatal(err)
	}
	limit := time.After(5 * time.Minute)
	for {
		claims, _, initialized := a.last(a.initialized)
		nodes, first, ready := a.last(a.ready)
		if claims == n {
			_, _, open := a.last(a.open)
			t.Logf("%d nodes became ready within %.1f s; the last was initialized %.1f s after the last had become ready, %.1f s after the last had lost the node controller's taints",
				n, ready.Sub(first).Seconds(), initialized.Sub(ready).Seconds(), initialized.Sub(open).Seconds())
			break
		}
		select {
		case <-a.changed:
		case <-limit:
			t.Fatalf("%d of %d nodes are ready, %d initialized", nodes, n, claims)
		}
	}
	pause := l.acts.mean()
	writes, refused := l.acts.reset()
	t.Logf("writes: %v, each answered after %s in the mean; of them refused: %v", writes, pause.Round(time.Millisecond), refused)
	// One Node is taken over and labelled when it is ready; its claim says how far it has
	// come. What comes on top is for others' writes in between.
	for what, most := range map[string]float64{"POST nodeclaims": 1, "PATCH nodes": 2.5, "PATCH nodeclaims": 2, "PATCH nodeclaims/status": 5} {
		if got := float64(writes[what]) / float64(n); got > most {
			t.Errorf("%s: %.1f writes for each node, want %.1f at most", what, got, most)
		}
	}
	l.settled()
	// They are bought alike, and each learns afterwards whose it is.
	if got := l.changes()["ec2:CreateFleet"]; got > n/2 {
		t.Errorf("%d calls of CreateFleet for %d nodes", got, n)
	}
	l.twice()
}
