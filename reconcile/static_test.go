package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const fixedPool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fixed}
spec:
  replicas: 3
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
`

const loneClaim = `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: lone}
spec:
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  resources: {requests: {cpu: "6"}}
  requirements:
  - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.2xlarge]}
`

// TestStaticPoolAndLoneClaim: a pool with replicas keeps its number without pods,
// up and down, and a NodeClaim that a person wrote becomes a Node that is large
// enough.
func TestStaticPoolAndLoneClaim(t *testing.T) {
	l := start(t)
	l.create(fixedPool)
	l.create(loneClaim)
	count := func(n int) {
		t.Helper()
		testkit.Await(t, l.kube, fmt.Sprintf("%d nodes of the static pool", n), 2*time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
			ready := 0
			for _, c := range list {
				for _, x := range c.Status.Conditions {
					if x.Type == karpenter.ConditionReady && x.Status == metav1.ConditionTrue && c.DeletionTimestamp == nil {
						ready++
					}
				}
			}
			return ready == n && len(list) == n, fmt.Sprintf("%d of %d are ready", ready, len(list))
		}, client.MatchingLabels{karpenter.LabelNodePool: "fixed"})
	}
	count(3)
	for _, n := range []int{4, 1} {
		pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}}
		if err := l.kube.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))); err != nil {
			t.Fatal(err)
		}
		count(n)
	}
	testkit.AwaitObject(t, l.kube, "the lone NodeClaim to be ready", time.Minute, &karpenter.NodeClaimList{}, client.ObjectKey{Name: "lone"}, func(c *karpenter.NodeClaim) (bool, string) {
		if c == nil {
			return false, "it is gone"
		}
		for _, x := range c.Status.Conditions {
			if x.Type == karpenter.ConditionReady && x.Status == metav1.ConditionTrue {
				return true, ""
			}
		}
		return false, fmt.Sprint(c.Status.Conditions)
	})
	var lone karpenter.NodeClaim
	if err := l.kube.Get(t.Context(), client.ObjectKey{Name: "lone"}, &lone); err != nil {
		t.Fatal(err)
	}
	if got := lone.Labels["node.kubernetes.io/instance-type"]; got != "m5.2xlarge" {
		t.Errorf("a claim for 6 cores became %s", got)
	}
	l.settled()
	l.twice()
	var told eventsv1.EventList
	if err := l.kube.List(t.Context(), &told); err != nil {
		t.Fatal(err)
	}
	for _, e := range told.Items {
		if e.Regarding.Name == "lone" && e.Reason == "DisruptionBlocked" {
			t.Errorf("a claim that a person wrote is told: %s", e.Note)
		}
	}
	testkit.Delete(t, l.kube, &lone)
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, client.ObjectKey{Name: "lone"})
}
