package reconcile_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cli"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// repool changes the pool "general", as an applied commit would.
func (l *loop) repool(change func(*karpenter.NodePool)) {
	l.t.Helper()
	var pool karpenter.NodePool
	if err := l.kube.Get(l.t.Context(), types.NamespacedName{Name: "general"}, &pool); err != nil {
		l.t.Fatal(err)
	}
	before := pool.DeepCopy()
	if pool.Annotations == nil {
		pool.Annotations = map[string]string{}
	}
	if pool.Spec.Template.Labels == nil {
		pool.Spec.Template.Labels = map[string]string{}
	}
	change(&pool)
	if err := l.kube.Patch(l.t.Context(), &pool, client.MergeFrom(before)); err != nil {
		l.t.Fatal(err)
	}
}

// condition waits for a condition of the pool whose reason is as wanted, "" for none,
// and returns its message.
func (l *loop) condition(kind, reason string) (message string) {
	l.t.Helper()
	testkit.Await(l.t, l.kube, fmt.Sprintf("condition %s with reason %q", kind, reason), 30*time.Second, &karpenter.NodePoolList{}, func(list []*karpenter.NodePool) (bool, string) {
		c := apimeta.FindStatusCondition(list[0].Status.Conditions, kind)
		if c == nil {
			return reason == "", "none"
		}
		message = c.Message
		return c.Reason == reason, c.Reason + ": " + c.Message
	})
	return message
}

// only waits until there is one NodeClaim that suits, and returns it.
func (l *loop) only(what string, suits func(*karpenter.NodeClaim) bool) *karpenter.NodeClaim {
	l.t.Helper()
	var found *karpenter.NodeClaim
	testkit.Await(l.t, l.kube, what, time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		if len(list) != 1 {
			return false, fmt.Sprintf("%d claims", len(list))
		}
		found = list[0]
		return suits(found), fmt.Sprint(found.Labels, found.Annotations)
	})
	return found
}

// TestControlFromGit changes a pool as commits would, and looks at what its one node
// makes of it.
func TestControlFromGit(t *testing.T) {
	l := prepare(t, thrifty, "--boot-delay", "500ms")
	l.run(reconcile.Options{Interruptions: true})
	l.repool(func(p *karpenter.NodePool) {
		p.Annotations[sugar.AnnotationInPlace] = `{"labels":["team"],"taints":["dedicated"],"tags":["cost"]}`
		p.Spec.Template.Labels["team"] = "a"
	})
	l.deploy("web", 3, "1", func(p *corev1.PodTemplateSpec) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	})
	l.running("web", 3)
	first := l.only("the claim to carry its template", func(c *karpenter.NodeClaim) bool { return c.Annotations[coppice.Group+"/template"] != "" })

	t.Log("a label and a taint are changed on the running node, a tag on its instance")
	l.repool(func(p *karpenter.NodePool) {
		p.Spec.Template.Labels["team"] = "b"
		p.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	})
	var class aws.EC2NodeClass
	if err := l.kube.Get(t.Context(), types.NamespacedName{Name: "default"}, &class); err != nil {
		t.Fatal(err)
	}
	if err := l.kube.Patch(t.Context(), &class, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"tags":{"cost":"42"}}}`))); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, l.kube, "the Node to follow", 30*time.Second, &corev1.NodeList{}, func(list []*corev1.Node) (bool, string) {
		for _, n := range list {
			if n.Name == first.Status.NodeName {
				return n.Labels["team"] == "b" && len(n.Spec.Taints) == 1 && n.Spec.Taints[0].Value == "x", fmt.Sprint(n.Labels, n.Spec.Taints)
			}
		}
		return false, "it is gone"
	})
	second := l.only("the claim to follow", func(c *karpenter.NodeClaim) bool {
		return c.Labels["team"] == "b" && strings.Contains(c.Annotations[coppice.Group+"/template"], `"cost":"42"`)
	})
	if second.UID != first.UID {
		t.Error("the node was replaced")
	}
	// The list of instances may be some seconds old.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		instances, err := l.cloud.Instances(t.Context())
		if err == nil && len(instances) == 1 && instances[0].Tags["cost"] == "42" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("instances %+v, %v", instances, err)
		}
	}
	l.told(first.Name, "ChangedInPlace", "without a replacement")
	l.condition(karpenter.ConditionNodeClaimsDrifted, "UpToDate")

	t.Log("drift waits for its approval, which names what it leads to")
	l.repool(func(p *karpenter.NodePool) {
		p.Annotations[sugar.AnnotationDriftApproval] = sugar.ApprovalRequired
		p.Spec.Template.Labels["tier"] = "front"
	})
	message := l.condition(karpenter.ConditionNodeClaimsDrifted, "AwaitingApproval")
	l.told(first.Name, "DisruptionBlocked", "waits for approval")
	if out := command(t, cli.ExitOK, "disruptions", "--kubeconfig", l.env.Kubeconfig); !strings.Contains(out, "Approval: ") {
		t.Errorf("what is blocked isn't listed:\n%s", out)
	}
	revision := regexp.MustCompile(`"([0-9a-f]{10})"`).FindStringSubmatch(message)
	if revision == nil {
		t.Fatalf("no revision in %q", message)
	}

	t.Log("a pause outranks an approval, and says who wants it")
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	l.repool(func(p *karpenter.NodePool) {
		p.Annotations[sugar.AnnotationPause] = `{"until":"` + until + `","author":"ops","reason":"incident 42"}`
		p.Annotations[sugar.AnnotationDriftApproval] = revision[1]
	})
	if message := l.condition(karpenter.ConditionPaused, "PausedInGit"); !strings.Contains(message, "by ops: incident 42") {
		t.Errorf("the condition says %q", message)
	}
	l.told("general", "DisruptionPaused", "incident 42")
	l.told(first.Name, "DisruptionBlocked", "is paused by ops")
	if kept := l.only("the claim to stay", func(*karpenter.NodeClaim) bool { return true }); kept.UID != first.UID || kept.DeletionTimestamp != nil {
		t.Error("a paused pool's node went")
	}

	t.Log("an interruption isn't paused")
	id := first.Status.ProviderID[strings.LastIndexByte(first.Status.ProviderID, '/')+1:]
	l.send(1, func(int) string {
		return `{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"` + id + `","instance-action":"terminate"}}`
	})
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, types.NamespacedName{Name: first.Name})
	l.running("web", 3)

	t.Log("after the pause the approved drift goes on")
	third := l.only("its successor", func(c *karpenter.NodeClaim) bool { return c.Labels["tier"] == "front" && c.Status.NodeName != "" })
	l.repool(func(p *karpenter.NodePool) {
		delete(p.Annotations, sugar.AnnotationPause)
		delete(p.Annotations, sugar.AnnotationDriftApproval)
		p.Spec.Template.Labels["tier"] = "back"
	})
	l.condition(karpenter.ConditionPaused, "")
	l.told("general", "DisruptionResumed", "again")
	fourth := l.only("the drifted node to be replaced", func(c *karpenter.NodeClaim) bool { return c.Labels["tier"] == "back" })
	if fourth.UID == third.UID {
		t.Error("the label was changed in place, which nobody asked for")
	}
	l.running("web", 3)
	l.settled()
}
