package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/reconcile/lifecycle"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// plainPool is a pool of m5.large whose nodes nothing but a person takes away.
func plainPool(name string, spec ...string) string {
	return `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: ` + name + `}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
` + strings.Join(spec, "")
}

// created counts from now on the NodeClaims that are made with a label's value, those
// that are soon gone included.
func (l *loop) created(label, value string) func() int {
	l.t.Helper()
	var mu sync.Mutex
	seen := map[types.UID]bool{}
	l.each(l.t.Context(), &karpenter.NodeClaimList{}, func(o client.Object, added bool) {
		mu.Lock()
		defer mu.Unlock()
		if added && o.GetLabels()[label] == value {
			seen[o.GetUID()] = true
		}
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}

// claim waits for a pool's one claim to be ready and returns it.
func (l *loop) claim(pool string) *karpenter.NodeClaim {
	l.t.Helper()
	var out *karpenter.NodeClaim
	testkit.Await(l.t, l.kube, "the NodeClaim of "+pool+" to be ready", time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		if len(list) != 1 {
			return false, fmt.Sprintf("%d claims", len(list))
		}
		out = list[0].DeepCopy()
		return apimeta.IsStatusConditionTrue(out.Status.Conditions, karpenter.ConditionReady), fmt.Sprint(out.Status.Conditions)
	}, client.MatchingLabels{karpenter.LabelNodePool: pool})
	return out
}

// tells waits until a claim's condition has a status and a reason.
func (l *loop) tells(claim, condition, reason, text string) {
	l.t.Helper()
	testkit.AwaitObject(l.t, l.kube, condition+" of "+claim+" to be "+reason, time.Minute, &karpenter.NodeClaimList{}, client.ObjectKey{Name: claim}, func(c *karpenter.NodeClaim) (bool, string) {
		if c == nil {
			return false, "it is gone"
		}
		got := apimeta.FindStatusCondition(c.Status.Conditions, condition)
		return got != nil && got.Reason == reason && strings.Contains(got.Message, text), fmt.Sprint(c.Status.Conditions)
	})
}

// running instances are those that serve a claim, as EC2 tells.
func (l *loop) instances() []string {
	var out []string
	for _, i := range l.simulator().live() {
		out = append(out, i.ID)
	}
	return out
}

// inPool binds pods to a pool.
func inPool(pool string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.NodeSelector = map[string]string{karpenter.LabelNodePool: pool}
	}
}

// TestVolumesLeaveFirst: an instance isn't ended while a volume of a pod that has left
// is attached to it, or another node would wait six minutes for it.
func TestVolumesLeaveFirst(t *testing.T) {
	l := prepare(t, nodeClass+plainPool("general"), "--boot-delay", "300ms")
	l.run(reconcile.Options{})
	l.deploy("db", 1, "1")
	l.running("db", 1)
	claim := l.claim("general")

	// What an attach controller would have written for a volume of the pod.
	volume := "vol"
	ctx := t.Context()
	for _, o := range []client.Object{
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "ebs.csi.aws.com", VolumeHandle: "vol-1",
			}},
		}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "attached", Finalizers: []string{"example.com/attacher"}}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "ebs.csi.aws.com", NodeName: claim.Status.NodeName, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		}},
	} {
		if err := l.kube.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Delete(t, l.kube, claim)
	l.tells(claim.Name, karpenter.ConditionVolumesDetached, "AwaitingVolumeDetachment", "still attached")
	if !slices.Contains(l.instances(), claim.Status.ProviderID[strings.LastIndexByte(claim.Status.ProviderID, '/')+1:]) {
		t.Error("the instance was ended with a volume attached to it")
	}
	l.running("db", 1)
	testkit.Await(t, l.kube, "the successor to be ready", time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		for _, c := range list {
			if c.Name != claim.Name && !apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionReady) {
				return false, fmt.Sprint(c.Status.Conditions)
			}
		}
		return len(list) == 2, fmt.Sprintf("%d claims", len(list))
	})
	l.twiceWhileGoing(claim.Name)

	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "attached"}}
	testkit.Delete(t, l.kube, attached)
	if err := l.kube.Patch(ctx, attached, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, client.ObjectKey{Name: claim.Name})
	l.running("db", 1)
	l.settled()
}

// twiceWhileGoing lets other controllers take over while a claim waits for something.
// They mustn't start its end anew: no pod is evicted, nothing is written.
func (l *loop) twiceWhileGoing(claim string) {
	l.t.Helper()
	var before, after karpenter.NodeClaim
	if err := l.kube.Get(l.t.Context(), client.ObjectKey{Name: claim}, &before); err != nil {
		l.t.Fatal(err)
	}
	l.twice()
	if err := l.kube.Get(l.t.Context(), client.ObjectKey{Name: claim}, &after); err != nil {
		l.t.Fatal(err)
	}
	if before.ResourceVersion != after.ResourceVersion {
		l.t.Errorf("the second run changed NodeClaim %s: from %v to %v", claim, before.Status.Conditions, after.Status.Conditions)
	}
}

// TestTerminationGracePeriodIsUsedUp: a pod that a PodDisruptionBudget keeps is deleted
// so long before the end of its claim's grace period as its own asks for, and not before.
func TestTerminationGracePeriodIsUsedUp(t *testing.T) {
	const whole, own = 9 * time.Second, 4 * time.Second
	l := prepare(t, nodeClass+plainPool("general", fmt.Sprintf("      terminationGracePeriod: %s\n", whole)), "--boot-delay", "300ms")
	l.run(reconcile.Options{})
	seconds := int64(own / time.Second)
	l.deploy("kept", 1, "1", func(p *corev1.PodTemplateSpec) { p.Spec.TerminationGracePeriodSeconds = &seconds })
	l.running("kept", 1)
	zero := intstr.FromInt32(0)
	if err := l.kube.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &zero, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}}},
	}); err != nil {
		t.Fatal(err)
	}
	claim := l.claim("general")
	var pods corev1.PodList
	if err := l.kube.List(t.Context(), &pods, client.MatchingLabels{"app": "kept"}); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	pod := &pods.Items[0]
	testkit.Delete(t, l.kube, claim)
	l.tells(claim.Name, karpenter.ConditionDrained, "Draining", "default/"+pod.Name+" is kept by PodDisruptionBudget")
	l.told(pod.Name, "FailedDraining", "")
	l.told(claim.Name, "TerminationGracePeriodExpiring", "")

	var going karpenter.NodeClaim
	if err := l.kube.Get(t.Context(), client.ObjectKeyFromObject(claim), &going); err != nil {
		t.Fatal(err)
	}
	deadline := going.DeletionTimestamp.Add(whole)
	if got := going.Annotations[karpenter.AnnotationTerminationTimestamp]; got != deadline.UTC().Format(time.RFC3339) {
		t.Errorf("the claim's end is noted as %s, want %s", got, deadline.UTC().Format(time.RFC3339))
	}
	var deleted time.Time
	testkit.AwaitObject(t, l.kube, "the pod to be deleted", time.Minute, &corev1.PodList{}, types.NamespacedName{Namespace: "default", Name: pod.Name}, func(p *corev1.Pod) (bool, string) {
		switch {
		case p == nil:
			return true, ""
		case p.DeletionTimestamp != nil:
			// It includes the pod's grace period, and the API server counts in seconds.
			deleted = p.DeletionTimestamp.Time
			return true, ""
		}
		return false, "it runs"
	})
	if early := deadline.Add(-own); !deleted.IsZero() && (deleted.Before(early) || deleted.After(deadline.Add(time.Second))) {
		t.Errorf("the pod is to be gone by %s, want between %s and %s", deleted, early, deadline)
	}
	if now := time.Now(); now.Before(deadline.Add(-own - time.Second)) {
		t.Errorf("the pod was deleted at %s, more than its own grace period before %s", now, deadline)
	}
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, client.ObjectKey{Name: claim.Name})
	l.running("kept", 1)
	l.settled()
	l.twice("POST events", "PATCH events") // what keeps its successor from disruption is said again
}

// TestDeletedNodeIsReplacedFirst: who deletes a Node doesn't take a workload of one pod
// down for as long as a machine boots.
func TestDeletedNodeIsReplacedFirst(t *testing.T) {
	l := prepare(t, nodeClass+plainPool("general"), "--boot-delay", "3s")
	l.run(reconcile.Options{})
	l.deploy("web", 1, "1")
	nodes := l.running("web", 1)
	claim := l.claim("general")
	for name := range nodes {
		testkit.Delete(t, l.kube, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	l.tells(claim.Name, karpenter.ConditionDrained, "AwaitingReplacement", "which is on its way")
	testkit.Await(t, l.kube, "the pod to be evicted", time.Minute, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || !nodes[p.Spec.NodeName] }), "it runs"
	}, client.MatchingLabels{"app": "web"})
	var list karpenter.NodeClaimList
	if err := l.kube.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Items, func(c karpenter.NodeClaim) bool {
		return c.Name != claim.Name && apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionInitialized)
	}) {
		t.Errorf("the pod was evicted before another node was ready for it")
	}
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, client.ObjectKey{Name: claim.Name})
	l.running("web", 1)
	l.settled()
	l.twice()
}

// TestPoolAndClassAreDeleted: a deleted class stays while claims refer to it and opens no
// more nodes; a deleted pool takes its nodes along, and then the class goes.
func TestPoolAndClassAreDeleted(t *testing.T) {
	l := prepare(t, nodeClass+plainPool("general"), "--boot-delay", "300ms")
	l.run(reconcile.Options{})
	l.deploy("web", 1, "1")
	nodes := l.running("web", 1)
	claim := l.claim("general")

	class := &aws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	testkit.Delete(t, l.kube, class)
	l.told("default", "WaitingOnNodeClaimTermination", claim.Name)
	testkit.AwaitObject(t, l.kube, "the pool not to be ready", time.Minute, &karpenter.NodePoolList{}, client.ObjectKey{Name: "general"}, func(p *karpenter.NodePool) (bool, string) {
		c := apimeta.FindStatusCondition(p.Status.Conditions, karpenter.ConditionReady)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "NodeClassTerminating", fmt.Sprint(p.Status.Conditions)
	})
	l.running("web", 1)
	l.twice("POST events", "PATCH events") // what it waits for is said again

	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	testkit.Delete(t, l.kube, pool, client.PropagationPolicy(metav1.DeletePropagationBackground))
	for name := range nodes {
		testkit.AwaitGone(t, l.kube, time.Minute, &corev1.NodeList{}, client.ObjectKey{Name: name})
	}
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, client.ObjectKey{Name: claim.Name})
	testkit.AwaitGone(t, l.kube, time.Minute, &aws.EC2NodeClassList{}, client.ObjectKey{Name: "default"})
	if left := l.instances(); len(left) != 0 {
		t.Errorf("instances %q are left", left)
	}
	var list corev1.PodList
	if err := l.kube.List(t.Context(), &list, client.MatchingLabels{"app": "web"}); err != nil || len(list.Items) != 1 || list.Items[0].Spec.NodeName != "" {
		t.Errorf("%d pods of the workload (%v), want one that waits for a node", len(list.Items), err)
	}
}

// TestNeverInitialized: a Node that never becomes ready for pods is given up after the
// initialization timeout, and its pool held back.
func TestNeverInitialized(t *testing.T) {
	l := prepare(t, nodeClass+plainPool("general", "      startupTaints: [{key: example.com/agent, effect: NoSchedule}]\n"), "--boot-delay", "300ms")
	timeouts := lifecycle.DefaultTimeouts
	timeouts.Initialization = 5 * time.Second
	l.run(reconcile.Options{Timeouts: timeouts})
	made := l.created(karpenter.LabelNodePool, "general")
	l.deploy("web", 1, "1")
	l.told("general-", "FailedInitialization", `StartupTaint "example.com/agent:NoSchedule" still exists`)
	l.told("web", "FailedScheduling", `NodePool "general": held back, its last launch failed: FailedInitialization`)
	if n := made(); n > 3 {
		t.Errorf("%d NodeClaims were made within seconds of a failure", n)
	}

	// Whoever owns the taint removes it from the next one.
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		l.untaint(ctx, "example.com/agent")
	}()
	l.running("web", 1)
	l.settled()
	stop()
	l.twice()
}

// untaint removes a taint from every Node that joins.
func (l *loop) untaint(ctx context.Context, key string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var list corev1.NodeList
		if l.kube.List(ctx, &list) != nil {
			continue
		}
		for i := range list.Items {
			n := &list.Items[i]
			before := n.DeepCopy()
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
			if len(n.Spec.Taints) != len(before.Spec.Taints) {
				_ = l.kube.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) // again with the next tick
			}
		}
	}
}

// TestWeights: the pool with the greatest weight is used as long as it can be, and then
// the next.
func TestWeights(t *testing.T) {
	heavy := strings.Replace(plainPool("heavy"), "spec:\n", "spec:\n  weight: 50\n", 1)
	heavy = strings.Replace(heavy, "m5.large", "m5.4xlarge", 1) // dearer, so that the price doesn't choose it
	l := prepare(t, nodeClass+heavy+"---\n"+plainPool("light"), "--boot-delay", "300ms")
	l.run(reconcile.Options{})
	l.deploy("first", 1, "1")
	l.running("first", 1)
	l.claim("heavy")

	l.simulator().do(ec2sim.Step{Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: []string{"m5.4xlarge"}}}})
	l.deploy("second", 12, "1500m") // the first node has room for some, none can be had like it
	l.running("second", 12)
	var list karpenter.NodeClaimList
	if err := l.kube.List(t.Context(), &list, client.MatchingLabels{karpenter.LabelNodePool: "light"}); err != nil || len(list.Items) == 0 {
		t.Errorf("%d NodeClaims of the lighter pool (%v), want some", len(list.Items), err)
	}
	l.settled()
	l.twice()
}
