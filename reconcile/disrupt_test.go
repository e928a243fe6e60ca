package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Pools whose nodes are consolidated as soon as they have been quiet for a second.
const thrifty = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: KarpenterNodeRole
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: "true"}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: "true"}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 1s, budgets: [{nodes: "100%"}]}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge, m5.2xlarge, m5.4xlarge]}
`

func (l *loop) scale(app string, replicas int32) {
	l.t.Helper()
	var d appsv1.Deployment
	if err := l.kube.Get(l.t.Context(), types.NamespacedName{Namespace: "default", Name: app}, &d); err != nil {
		l.t.Fatal(err)
	}
	before := d.DeepCopy()
	d.Spec.Replicas = &replicas
	if err := l.kube.Patch(l.t.Context(), &d, client.MergeFrom(before)); err != nil {
		l.t.Fatal(err)
	}
}

// fleet waits until the claims' instance types are those wanted, as in "m5.large x2".
func (l *loop) fleet(want string, limit time.Duration) {
	l.t.Helper()
	testkit.Await(l.t, l.kube, "a fleet of "+want, limit, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		got := map[string]int{}
		for _, c := range list {
			got[c.Labels[corev1.LabelInstanceTypeStable]]++
		}
		var text []string
		for _, size := range []string{"", "m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge"} {
			if got[size] > 0 {
				text = append(text, fmt.Sprintf("%s x%d", size, got[size]))
			}
		}
		return strings.Join(text, ", ") == want, strings.Join(text, ", ")
	})
}

func TestConsolidation(t *testing.T) {
	l := prepare(t, thrifty, "--boot-delay", "500ms")
	l.run(reconcile.Options{})

	t.Log("a node that is too large is replaced by one that isn't, before its pods move")
	l.deploy("web", 7, "1")
	l.running("web", 7)
	l.settled()
	l.fleet("m5.2xlarge x1", time.Minute)
	l.scale("web", 3)
	l.fleet("m5.xlarge x1", time.Minute)
	l.running("web", 3)
	l.settled()

	t.Log("a node whose pods fit elsewhere goes")
	l.deploy("api", 3, "1")
	l.running("api", 3)
	l.settled()
	l.scale("web", 1)
	l.scale("api", 2)
	l.fleet("m5.xlarge x1", time.Minute)
	l.running("web", 1)
	l.running("api", 2)
	l.settled()

	t.Log("a pod that forbids it keeps its node, and it is said which")
	l.deploy("guarded", 6, "1", func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
	})
	l.running("guarded", 6)
	l.scale("guarded", 1)
	l.running("guarded", 1)
	l.told("general", "DisruptionBlocked", "guarded")
}
