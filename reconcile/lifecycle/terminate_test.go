package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// stored is a client of these objects with the indexes that a drain reads.
func stored(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).WithObjects(objects...).
		WithIndex(&karpenter.NodeClaim{}, indexFleet, func(o client.Object) []string { return []string{fleetToken(o.(*karpenter.NodeClaim))} }).
		WithIndex(&corev1.Pod{}, indexPodNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&storagev1.VolumeAttachment{}, indexAttachedNode, func(o client.Object) []string { return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName} }).
		Build()
}

func onNode(name string, alter ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}, Spec: corev1.PodSpec{NodeName: node().Name}}
	for _, f := range alter {
		f(p)
	}
	return p
}

// TestDrainPassesOverRefusals has a webhook forbid the first pod's eviction: the others
// must leave all the same, and the one whose time is up first of all.
func TestDrainPassesOverRefusals(t *testing.T) {
	long := int64(3600)
	var did []string
	kube := interceptor.NewClient(stored(t, onNode("a"), onNode("b"), onNode("late", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &long })), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, o, _ client.Object, _ ...client.SubResourceCreateOption) error {
			did = append(did, "evict "+o.GetName())
			if o.GetName() == "a" {
				return apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("the webhook says no"))
			}
			return nil
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			did = append(did, "delete "+o.GetName())
			return nil
		},
	})
	r := &Reconciler{kube: kube, events: events.NewFakeRecorder(10), metrics: metrics.New()}
	c := claim()
	_, err := r.drain(t.Context(), c, node(), now.Add(10*time.Minute), true, now)
	if err == nil || !strings.Contains(err.Error(), "the webhook says no") {
		t.Errorf("drain() = %v, want the webhook's refusal", err)
	}
	if want := []string{"delete late", "evict a", "evict b"}; !slices.Equal(did, want) {
		t.Errorf("the drain did %q, want %q", did, want)
	}
	if got := apimeta.FindStatusCondition(c.Status.Conditions, karpenter.ConditionDrained); got == nil || !strings.Contains(got.Message, "d/a is kept by") {
		t.Errorf("condition Drained %+v doesn't say what keeps d/a", got)
	}
}

// TestAttachmentsOfStayingPods counts only the volumes that a drain sets free.
func TestAttachmentsOfStayingPods(t *testing.T) {
	mounts := func(pvc string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc}}}}
		}
	}
	stays := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	scratch := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
	bound := func(name, pv string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv}}
	}
	attached := func(pv string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: pv},
			Spec: storagev1.VolumeAttachmentSpec{NodeName: node().Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
	}
	r := &Reconciler{kube: stored(t,
		onNode("agent", stays, mounts("state")), onNode("cache", stays, scratch), onNode("lost", stays, mounts("none")), onNode("web", mounts("data")),
		bound("state", "pv-state"), bound("cache-v", "pv-cache"), bound("data", "pv-data"),
		attached("pv-state"), attached("pv-cache"), attached("pv-data"),
	)}
	if got, err := r.attachments(t.Context(), node()); err != nil || got != 1 {
		t.Errorf("attachments() = %d, %v; want 1, that of the pod that leaves", got, err)
	}
}

// stubborn is a cloud in which one instance can't be ended.
type stubborn struct {
	Cloud
	instances []cloud.Instance
	ended     []string
}

func (s *stubborn) Instances(context.Context) ([]cloud.Instance, error) { return s.instances, nil }

func (s *stubborn) Terminate(_ context.Context, id string) error {
	if id == "i-1" {
		return errors.New("termination protection")
	}
	s.ended = append(s.ended, id)
	return nil
}

// TestInstancesOfClaim: a crash between a launch and the write of its outcome leaves the
// claim's UID with the instance alone.
func TestInstancesOfClaim(t *testing.T) {
	r := &Reconciler{cloud: &stubborn{instances: []cloud.Instance{
		{ID: "i-1", ProviderID: "aws:///z/i-1", ClaimUID: "uid-1"}, {ID: "i-2", ProviderID: "aws:///z/i-2", ClaimUID: "uid-2"},
		{ID: "i-3", ProviderID: "aws:///z/i-3"},
	}}}
	named := func(c *karpenter.NodeClaim) { c.Status.ProviderID = "aws:///z/i-3" }
	for want, c := range map[string]*karpenter.NodeClaim{"i-1": claim(), "i-1 i-3": claim(named)} {
		got, err := r.instances(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, i := range got {
			ids = append(ids, i.ID)
		}
		if strings.Join(ids, " ") != want {
			t.Errorf("instances %q, want %q", ids, want)
		}
	}
}

func TestCollectorPassesOverFailures(t *testing.T) {
	old := now.Add(-time.Hour)
	s := &stubborn{instances: []cloud.Instance{
		{ID: "i-1", ProviderID: "aws:///z/i-1", LaunchTime: old}, {ID: "i-2", ProviderID: "aws:///z/i-2", LaunchTime: old},
	}}
	gone := claim(func(c *karpenter.NodeClaim) { c.Status.ProviderID = "aws:///z/i-9" })
	gone.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionLaunched, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(old)}}
	kube := stored(t, gone)
	c := &collector{kube: kube, live: kube, cloud: s, clock: clocktesting.NewFakeClock(now), metrics: metrics.New()}
	if _, err := c.collect(t.Context()); err == nil || !strings.Contains(err.Error(), "i-1") {
		t.Errorf("collect() = %v, want the failure to end i-1", err)
	}
	if !slices.Equal(s.ended, []string{"i-2"}) {
		t.Errorf("ended %q, want i-2", s.ended)
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(gone), &karpenter.NodeClaim{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim whose instance is gone: %v, want it deleted", err)
	}
}
