package provision

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// watch has the planner plan again when a NodePool or an EC2NodeClass has changed in a
// way that a plan depends on: pods that had no place may have one now.
func (p *Planner) watch(ctx context.Context, c cache.Cache) error {
	for _, x := range []struct {
		object  client.Object
		matters func(before, after any) bool
	}{
		{&karpenter.NodePool{}, func(before, after any) bool {
			return poolMatters(before.(*karpenter.NodePool), after.(*karpenter.NodePool))
		}},
		{&aws.EC2NodeClass{}, func(before, after any) bool {
			return classMatters(before.(*aws.EC2NodeClass), after.(*aws.EC2NodeClass))
		}},
	} {
		informer, err := c.GetInformer(ctx, x.object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", x.object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { p.nudge() },
			DeleteFunc: func(any) { p.nudge() },
			UpdateFunc: func(before, after any) {
				if x.matters(before, after) {
					p.nudge()
				}
			},
		}); err != nil {
			return fmt.Errorf("watch %T: %w", x.object, err)
		}
	}
	return nil
}

// nudge asks for another plan. Several may come to one.
func (p *Planner) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// poolMatters reports whether plans may differ: what nodes add up to is counted in the
// status all the time and known from them.
func poolMatters(before, after *karpenter.NodePool) bool {
	ready := func(p *karpenter.NodePool) bool {
		return apimeta.IsStatusConditionTrue(p.Status.Conditions, karpenter.ConditionReady)
	}
	return before.Generation != after.Generation || ready(before) != ready(after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || !maps.Equal(before.Annotations, after.Annotations)
}

// classMatters reports whether the types that the class offers may differ.
func classMatters(before, after *aws.EC2NodeClass) bool {
	return before.Generation != after.Generation || !equality.Semantic.DeepEqual(before.Status, after.Status)
}
