package compare

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/pack"
)

// offering is one way to buy a node.
type offering struct{ typeName, zone, capacityType string }

// bound computes what nodes for so many pods of each deployment cost at least,
// and keeps it as the run's lower bound. It costs the simulator some calls and
// this process some time, so that it comes before what is measured.
func (r *run) bound(ctx context.Context, counts []int) error {
	pool, types, err := r.market(ctx)
	if err != nil {
		return err
	}
	sum := int64(0)
	for i, d := range r.pods {
		if !d.apart {
			continue
		}
		// No two of them share a node, so each costs what it would alone.
		one := make([]int, len(r.pods))
		one[i] = 1
		plan, err := r.plan(pool, types, one)
		if err != nil {
			return err
		}
		sum += plan.LowerBound * int64(counts[i])
	}
	plan, err := r.plan(pool, types, counts)
	if err != nil {
		return err
	}
	r.result.LowerBound = float64(max(sum, plan.LowerBound)) / 1e6
	return nil
}

// market returns the pool and its types as they can be bought now.
func (r *run) market(ctx context.Context) (cluster.Pool, []cloud.InstanceType, error) {
	pool, class, err := r.poolAndClass(ctx)
	if err != nil {
		return cluster.Pool{}, nil, err
	}
	types, err := r.cloud.InstanceTypes(ctx, class)
	if err != nil {
		return cluster.Pool{}, nil, err
	}
	types = cloud.Acceptable(types, pool.Spec.Template.Spec.Requirements)
	for i := range types {
		types[i].Offerings = slices.Clone(types[i].Offerings)
		for j, o := range types[i].Offerings {
			if r.empty[offering{types[i].Name, o.Zone, o.CapacityType}] {
				types[i].Offerings[j].Available = false
			}
		}
	}
	return cluster.Pool{NodePool: pool, Class: class}, types, nil
}

// plan packs so many pods of each deployment onto new nodes.
func (r *run) plan(pool cluster.Pool, types []cloud.InstanceType, counts []int) (*pack.Plan, error) {
	state := cluster.NewState(clock.RealClock{})
	for i, d := range r.pods {
		t := d.template()
		for n := range counts[i] {
			state.SetPod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", d.name, n), Labels: t.Labels},
				Spec:       t.Spec,
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
				}},
			})
		}
	}
	pool.Types = types
	model := cluster.NewModel()
	if err := model.Sync(state, []cluster.Pool{pool}); err != nil {
		return nil, fmt.Errorf("encode the pods for a lower bound: %w", err)
	}
	plan := model.Plan(pack.Options{})
	if n := len(plan.Unschedulable); n > 0 {
		return nil, fmt.Errorf("%d pods fit no type of the pool: %s", n, cluster.Explain(plan.Unschedulable[0].Reasons[0]))
	}
	return plan, nil
}

// emptyBest leaves no capacity in those n offerings on which the run's pods alone
// would cost least: where price over room, in whichever of processors and memory
// runs out first, is least.
func (r *run) emptyBest(ctx context.Context, n int) error {
	_, types, err := r.market(ctx)
	if err != nil {
		return err
	}
	var cpu, memory float64
	for _, d := range r.pods {
		for _, c := range d.template().Spec.Containers {
			cpu += c.Resources.Requests.Cpu().AsApproximateFloat64() * float64(d.replicas)
			memory += c.Resources.Requests.Memory().AsApproximateFloat64() * float64(d.replicas)
		}
	}
	type choice struct {
		offering
		cost float64
	}
	var all []choice
	for _, t := range types {
		nodes := math.Max(cpu/t.Allocatable.Cpu().AsApproximateFloat64(), memory/t.Allocatable.Memory().AsApproximateFloat64())
		for _, o := range t.Offerings {
			all = append(all, choice{offering{t.Name, o.Zone, o.CapacityType}, nodes * float64(o.MicroUSD)})
		}
	}
	slices.SortFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.typeName, b.typeName), cmp.Compare(a.zone, b.zone), cmp.Compare(a.capacityType, b.capacityType))
	})
	r.empty = map[offering]bool{}
	for _, c := range all[:min(n, len(all))] {
		r.empty[c.offering] = true
		step := ec2sim.Step{Shortage: &ec2sim.Shortage{Match: ec2sim.Match{
			Types: []string{c.typeName}, Zones: []string{c.zone}, CapacityTypes: []string{c.capacityType},
		}}}
		if _, err := r.stack.EC2.Do(step); err != nil {
			return fmt.Errorf("empty %s in %s: %w", c.typeName, c.zone, err)
		}
	}
	return nil
}
