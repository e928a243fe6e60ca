package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/reconcile/disrupt"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// catalogue lists types as the embedded catalogue knows them, with the memory that the
// cluster's own nodes turned out to have, at the controller's prices where it told them.
func (f *forecaster) catalogue() func(*aws.EC2NodeClass) ([]cloud.InstanceType, error) {
	region := f.region()
	facts := ec2.NewFacts(region)
	for _, c := range f.claims {
		if n := f.nodes[c.Status.ProviderID]; n != nil && c.Status.ProviderID != "" {
			facts.Observe(c.Labels[corev1.LabelInstanceTypeStable], c.Status.ImageID, n.Status.Capacity)
		}
	}
	facts.Size(f.in.Settings.MemoryOverhead, f.in.Settings.ReservedENIs)
	f.out.Prices = &plan.Prices{From: plan.PricesCatalogue, Region: region, Date: catalogue.Get().Date()}
	if c := f.in.Picture.Controller; c != nil && len(c.Market.OnDemand) > 0 {
		facts.Trade(c.Market)
		f.out.Prices = &plan.Prices{From: plan.PricesController, Region: c.Market.Region, At: c.Market.At, NoSpot: c.Market.Spot == nil}
	}
	return facts.InstanceTypes
}

// price works out what machines cost before and after, in all and by pool. What pools
// save or cost whose machines were out of date already isn't the change's doing.
func (f *forecaster) price(r *disrupt.Rehearsal, effect func(string) *plan.PoolEffect) {
	apart := func(pool string) bool {
		e := effect(pool)
		return e.Action == "" && len(e.Affected) > 0 && !slices.ContainsFunc(e.Affected, func(n plan.NodeEffect) bool { return !n.Already })
	}
	for _, c := range f.claims {
		f.add(c.Labels, &f.out.Before)
		if name := c.Labels[karpenter.LabelNodePool]; apart(name) {
			f.add(c.Labels, &f.out.After)
			f.note("NodePool %s has nodes that go because they were out of date before the change: in the sum it costs what it did.", name)
		}
		if e := effect(c.Labels[karpenter.LabelNodePool]); e != nil {
			f.add(c.Labels, &e.Before)
		}
	}
	for _, n := range r.State.Snapshot().Nodes {
		if n.Claim == nil || n.Claim.Spec.NodeClassRef == nil || n.Claim.Spec.NodeClassRef.Group != aws.Group {
			continue
		}
		if !apart(n.Pool()) {
			f.add(n.Claim.Labels, &f.out.After)
		}
		f.add(n.Claim.Labels, &effect(n.Pool()).After)
	}
}

// add adds what a machine with these labels costs.
func (f *forecaster) add(labels map[string]string, to *plan.Cost) {
	name, zone, capacity := labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelTopologyZone], labels[karpenter.LabelCapacityType]
	// What another pool knows of the market holds for all.
	for _, pool := range append([]string{labels[karpenter.LabelNodePool]}, slices.Sorted(maps.Keys(f.types))...) {
		for _, t := range f.types[pool] {
			if t.Name != name {
				continue
			}
			for _, o := range t.Offerings {
				if o.Zone == zone && o.CapacityType == capacity {
					to.MicroUSD += o.MicroUSD
					return
				}
			}
		}
	}
	if c := f.in.Picture.Controller; c != nil && capacity != cloud.Reserved {
		price := c.Market.OnDemand[name]
		if capacity == cloud.Spot {
			price = cmp.Or(c.Market.Spot[name][zone], price)
		}
		if price > 0 {
			to.MicroUSD += price
			return
		}
	}
	if p, ok := catalogue.Get().Price(name, cmpRegion(labels[corev1.LabelTopologyRegion], zone)); ok {
		switch {
		case capacity == cloud.Reserved:
			return // it is paid for whether it is used or not
		case capacity == cloud.Spot && p.Spot > 0:
			to.MicroUSD += p.Spot
			return
		case capacity == cloud.OnDemand && p.OnDemand > 0:
			to.MicroUSD += p.OnDemand
			return
		}
	}
	to.Unpriced++
}

func cmpRegion(region, zone string) string {
	if region == "" {
		return zoneRegion(zone)
	}
	return region
}

// gates lists what paces a pool's replacements.
func (f *forecaster) gates(name string, e *plan.PoolEffect) []plan.Gate {
	p := f.pools[name]
	if p == nil || len(e.Affected) == 0 {
		return nil
	}
	now := f.in.Picture.TakenAt
	pool := disrupt.NewPool(p)
	if pool.Err != nil {
		return []plan.Gate{{Kind: "options", Message: kube.OneLine(pool.Err.Error())}}
	}
	var out []plan.Gate
	if until, paused := pool.Options.PausedUntil(now); paused {
		p := pool.Options.Pause
		out = append(out, plan.Gate{Kind: "pause", Message: fmt.Sprintf("paused by %s: %s", p.Author, p.Reason), Until: until})
	}
	total := 0
	for _, c := range f.claims {
		if n := f.nodes[c.Status.ProviderID]; c.Labels[karpenter.LabelNodePool] == name && n != nil && n.Labels[karpenter.LabelInitialized] == "true" {
			total++
		}
	}
	budgets := sugar.BudgetsOf(p.Spec, pool.Options)
	const reason = karpenter.DisruptionReasonDrifted
	limit, err := sugar.Allowed(budgets, reason, total, now)
	switch {
	case err != nil:
		out = append(out, plan.Gate{Kind: "budget", Message: kube.OneLine(err.Error())})
	case limit.By != "":
		out = append(out, plan.Gate{Kind: "budget", Message: fmt.Sprintf("budget %s: %d of %d nodes at once", limit.By, limit.Nodes, total), Until: limit.Until})
	default:
		out = append(out, plan.Gate{Kind: "budget", Message: "no budget bounds it now"})
	}
	for _, b := range budgets {
		if b.Schedule == "" || !b.Covers(reason) {
			continue
		}
		windows, err := b.Windows(now, now.Add(horizon))
		if err != nil || len(windows) == 0 || !windows[0].From.After(now) {
			continue
		}
		out = append(out, plan.Gate{Kind: "window", Message: fmt.Sprintf("budget %s from %s begins %s", b.Nodes, b.Schedule, windows[0].From.UTC().Format(time.RFC3339)), Until: windows[0].To.UTC()})
	}
	return out
}

// limits lists those of a pool that its machines exceed.
func (f *forecaster) limits(name string) []plan.LimitEffect {
	p := f.pools[name]
	if p == nil || len(p.Spec.Limits) == 0 {
		return nil
	}
	used := corev1.ResourceList{}
	count := int64(0)
	for _, c := range f.claims {
		if c.Labels[karpenter.LabelNodePool] != name {
			continue
		}
		count++
		have := c.Status.Capacity
		if n := f.nodes[c.Status.ProviderID]; n != nil && c.Status.ProviderID != "" {
			have = n.Status.Capacity
		}
		for k, q := range have {
			sum := used[k]
			sum.Add(q)
			used[k] = sum
		}
	}
	used["nodes"] = *resource.NewQuantity(count, resource.DecimalSI)
	var out []plan.LimitEffect
	for _, k := range slices.Sorted(maps.Keys(p.Spec.Limits)) {
		limit, have := p.Spec.Limits[k], used[k]
		if have.Cmp(limit) > 0 {
			out = append(out, plan.LimitEffect{Resource: string(k), Limit: limit.String(), Used: have.String()})
		}
	}
	return out
}

// homeless reads the pod out of what keeps a machine for its sake.
func homeless(message string) plan.Unplaced {
	pod, reason, ok := strings.Cut(strings.TrimPrefix(message, "pod "), " would find no place: ")
	if !ok {
		return plan.Unplaced{Reason: message, Running: true}
	}
	return plan.Unplaced{Pod: pod, Reason: reason, Running: true}
}

func explain(u pack.Unschedulable) string {
	var parts []string
	for _, r := range u.Reasons {
		parts = append(parts, cluster.Explain(r))
	}
	return kube.OneLine(strings.Join(parts, "; "))
}
