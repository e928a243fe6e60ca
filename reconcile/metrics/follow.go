package metrics

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Follow counts what the cache tells of pods and conditions, on the replica that leads:
// elected is closed once this is it. What happened before isn't counted.
func (s *Set) Follow(ctx context.Context, c cache.Cache, clk clock.PassiveClock, elected <-chan struct{}) error {
	for _, f := range []struct {
		object client.Object
		follow func(old, now any)
		gone   func(o client.Object)
	}{
		{&corev1.Pod{}, func(old, now any) { s.followPod(old.(*corev1.Pod), now.(*corev1.Pod), clk.Now()) }, func(client.Object) {}},
		{&karpenter.NodeClaim{}, func(old, now any) {
			s.claimConditions.follow(old.(*karpenter.NodeClaim).Status.Conditions, now.(*karpenter.NodeClaim).Status.Conditions)
		}, func(o client.Object) { s.claimConditions.gone(o, clk.Now()) }},
		{&karpenter.NodePool{}, func(old, now any) {
			s.poolConditions.follow(old.(*karpenter.NodePool).Status.Conditions, now.(*karpenter.NodePool).Status.Conditions)
		}, func(o client.Object) { s.poolConditions.gone(o, clk.Now()) }},
		{&aws.EC2NodeClass{}, func(old, now any) {
			s.classConditions.follow(old.(*aws.EC2NodeClass).Status.Conditions, now.(*aws.EC2NodeClass).Status.Conditions)
		}, func(o client.Object) { s.classConditions.gone(o, clk.Now()) }},
	} {
		informer, err := c.GetInformer(ctx, f.object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", f.object, err)
		}
		leads := func() bool {
			select {
			case <-elected:
				return true
			default:
				return false
			}
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			UpdateFunc: func(old, now any) {
				if leads() {
					f.follow(old, now)
				}
			},
			DeleteFunc: func(o any) {
				if o, ok := o.(client.Object); ok && leads() { // of another kind if its end was missed
					f.gone(o)
				}
			},
		}); err != nil {
			return fmt.Errorf("watch %T: %w", f.object, err)
		}
	}
	return nil
}

// followPod takes the time when a pod gets its Node, and when it begins to run.
func (s *Set) followPod(old, p *corev1.Pod, now time.Time) {
	if old.UID != p.UID {
		return // two of one name, one after the other
	}
	age := now.Sub(p.CreationTimestamp.Time).Seconds()
	if old.Spec.NodeName == "" && p.Spec.NodeName != "" {
		s.PodBound.WithLabelValues().Observe(age)
	}
	if old.Status.Phase == corev1.PodPending && p.Status.Phase == corev1.PodRunning {
		s.PodStartup.WithLabelValues().Observe(age)
	}
}

// follow takes the conditions that have another status than before.
func (c conditions) follow(old, now []metav1.Condition) {
	for _, to := range now {
		from := apimeta.FindStatusCondition(old, to.Type)
		if from != nil && from.Status == to.Status {
			continue
		}
		c.transitions.WithLabelValues(to.Type, string(to.Status), to.Reason).Inc()
		if from != nil {
			c.lasted.WithLabelValues(from.Type, string(from.Status)).Observe(to.LastTransitionTime.Sub(from.LastTransitionTime.Time).Seconds())
		}
	}
}

// gone takes how long the end of an object took.
func (c conditions) gone(o client.Object, now time.Time) {
	if at := o.GetDeletionTimestamp(); at != nil {
		c.ended.WithLabelValues().Observe(max(0, now.Sub(at.Time).Seconds()))
	}
}
