package reconcile_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Pools whose nodes are consolidated as soon as they have been quiet for a second.
const thrifty = nodeClass + `
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

// claims lists the NodeClaims by what they are to a command: those that it takes away
// and those that it has brought in.
func (l *loop) claims() (old, fresh []karpenter.NodeClaim) {
	l.t.Helper()
	var list karpenter.NodeClaimList
	if err := l.kube.List(l.t.Context(), &list); err != nil {
		l.t.Fatal(err)
	}
	for _, c := range list.Items {
		if c.Annotations[coppice.AnnotationDisruption] != "" {
			old = append(old, c)
		}
		if c.Annotations[coppice.AnnotationReplaces] != "" {
			fresh = append(fresh, c)
		}
	}
	return old, fresh
}

func TestReplacement(t *testing.T) {
	l := prepare(t, thrifty, "--boot-delay", "4s")
	stop := l.run(reconcile.Options{Interruptions: true})
	l.deploy("web", 3, "1")
	l.running("web", 3)
	l.settled()

	t.Log("a drifted node's replacement is on its way when the controller dies")
	var pool karpenter.NodePool
	if err := l.kube.Get(t.Context(), types.NamespacedName{Name: "general"}, &pool); err != nil {
		t.Fatal(err)
	}
	before := pool.DeepCopy()
	pool.Spec.Template.Labels = map[string]string{"team": "a"}
	if err := l.kube.Patch(t.Context(), &pool, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	var doomed string
	testkit.Await(t, l.kube, "a replacement to be launched", time.Minute, &karpenter.NodeClaimList{}, func([]*karpenter.NodeClaim) (bool, string) {
		old, fresh := l.claims()
		if len(old) == 1 {
			doomed = old[0].Name
		}
		return len(old) == 1 && len(fresh) == 1, fmt.Sprintf("%d go, %d come", len(old), len(fresh))
	})
	stop()
	if old, fresh := l.claims(); len(old) != 1 || len(fresh) != 1 || old[0].DeletionTimestamp != nil {
		t.Fatalf("after the controller's death %d claims were to go and %d to come", len(old), len(fresh))
	}

	t.Log("its successor goes on, and the node goes after the replacement is ready")
	l.run(reconcile.Options{Interruptions: true})
	most := 0
	testkit.Await(t, l.kube, "the drifted node to be replaced", time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		most = max(most, len(list))
		gone, ready := true, false
		for _, c := range list {
			if c.Name == doomed {
				gone = c.DeletionTimestamp != nil
			} else if c.Status.NodeName != "" {
				// The Node says so a moment before the claim's condition does.
				var n corev1.Node
				if err := l.kube.Get(t.Context(), types.NamespacedName{Name: c.Status.NodeName}, &n); err != nil {
					t.Error(err)
				}
				ready = ready || n.Labels[karpenter.LabelInitialized] == "true"
			}
		}
		if gone && !ready {
			t.Error("the drifted node went before its replacement was ready")
		}
		return gone && len(list) == 1 && list[0].Labels["team"] == "a", fmt.Sprintf("%d claims", len(list))
	})
	if most > 2 {
		t.Errorf("there were %d claims at a time; one replacement was enough", most)
	}
	l.running("web", 3)
	l.settled()

	t.Log("a notice among many that concern nobody is found, and repeated ones do no harm")
	_, fresh := l.claims()
	id := fresh[0].Status.ProviderID[strings.LastIndexByte(fresh[0].Status.ProviderID, '/')+1:]
	const others = 2000
	began := time.Now()
	l.send(others, func(i int) string {
		return fmt.Sprintf(`{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-%017d","state":"terminated"}}`, i)
	})
	l.send(3, func(int) string {
		return `{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"` + id + `","instance-action":"terminate"}}`
	})
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, types.NamespacedName{Name: fresh[0].Name})
	t.Logf("%d messages were sent and read, and the node was gone, after %.1f s", others+3, time.Since(began).Seconds())
	l.told(fresh[0].Name, "SpotInterrupted", "two minutes")
	l.running("web", 3)
	l.settled()
}

// send puts messages into the interruption queue.
func (l *loop) send(n int, body func(i int) string) {
	l.t.Helper()
	cfg, err := config.LoadDefaultConfig(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	queue := sqs.NewFromConfig(cfg)
	at, err := queue.GetQueueUrl(l.t.Context(), &sqs.GetQueueUrlInput{QueueName: &l.env.Queue})
	if err != nil {
		l.t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				text := body(i)
				if _, err := queue.SendMessage(l.t.Context(), &sqs.SendMessageInput{QueueUrl: at.QueueUrl, MessageBody: &text}); err != nil {
					l.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
