package forecast

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// defaultRegion stands for a pool's region where nothing names one. Regions differ in
// price by some 20 %, hardly in what is cheaper than what.
const defaultRegion = "us-east-1"

// Static plans without a cluster, as plan.Static does, and adds what the pools that
// change may launch at which prices.
func Static(head render.Bundle, base *render.Bundle, commit string, judge *admission.Judge) (*plan.Plan, error) {
	p := plan.Static(head, base, commit, judge)
	guessed := false
	for _, c := range p.Changes {
		if c.Object.Kind != "NodePool" || c.Action == plan.Delete {
			continue
		}
		m := plan.Market{Pool: c.Object.Name}
		after, class, err := poolOf(head, c.Object.Name, judge)
		if err != nil || after == nil {
			return p, err
		}
		var named bool
		if m.Region, named = regionOf(after); !named {
			guessed = true
		}
		if m.After, err = choice(after, class, m.Region); err != nil {
			return p, err
		}
		if base != nil && c.Action == plan.Update {
			before, class, err := poolOf(*base, c.Object.Name, judge)
			if err != nil {
				return p, err
			}
			if before != nil {
				if m.Before, err = choice(before, class, m.Region); err != nil {
					return p, err
				}
			}
		}
		p.Market = append(p.Market, m)
	}
	if len(p.Market) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("Prices are those of the embedded catalogue, of %s; of spot, the average over zones.", catalogue.Get().Date()))
	}
	if guessed {
		p.Notes = append(p.Notes, fmt.Sprintf("Pools that name neither a zone nor a region are priced in %s.", defaultRegion))
	}
	return p, nil
}

// poolOf reads a pool and its class out of a bundle. A class that isn't in it is one
// without settings.
func poolOf(b render.Bundle, name string, judge *admission.Judge) (*karpenter.NodePool, *aws.EC2NodeClass, error) {
	class := &aws.EC2NodeClass{}
	o, ok := b.Find("NodePool", name)
	if !ok {
		return nil, class, nil
	}
	pool := &karpenter.NodePool{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(judge.Stored(o.Value), pool); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", o.ID(), err)
	}
	if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil {
		if o, ok := b.Find("EC2NodeClass", ref.Name); ok {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(judge.Stored(o.Value), class); err != nil {
				return nil, nil, fmt.Errorf("read %s: %w", o.ID(), err)
			}
		}
	}
	return pool, class, nil
}

// regionOf is the region of the zones that a pool names, or the one that it names.
func regionOf(p *karpenter.NodePool) (region string, named bool) {
	for _, r := range p.Spec.Template.Spec.Requirements {
		if len(r.Values) == 0 || r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		switch r.Key {
		case corev1.LabelTopologyRegion:
			return r.Values[0], true
		case corev1.LabelTopologyZone:
			return zoneRegion(r.Values[0]), true
		}
	}
	return defaultRegion, false
}

// choice says what a pool may launch in a region with a subnet in every zone.
func choice(p *karpenter.NodePool, class *aws.EC2NodeClass, region string) (*plan.Choice, error) {
	everywhere := class.DeepCopy()
	everywhere.Status = aws.EC2NodeClassStatus{AMIs: []aws.AMI{{ID: "ami"}}}
	for i, id := range catalogue.Get().ZoneIDs(region) {
		// Which name an account has for a zone's ID nobody else knows.
		zone := region + string(rune('a'+i%26))
		everywhere.Status.Subnets = append(everywhere.Status.Subnets, aws.Subnet{ID: id, Zone: zone, ZoneID: id})
	}
	types, err := ec2.NewFacts(region).InstanceTypes(everywhere)
	if err != nil {
		return nil, err
	}
	out := &plan.Choice{}
	for _, t := range cloud.Acceptable(types, p.Spec.Template.Spec.Requirements) {
		out.Types++
		cpus := t.Capacity.Cpu().Value()
		seen := []string{}
		for _, o := range t.Offerings {
			out.Offerings++
			if cpus == 0 || slices.Contains(seen, o.CapacityType) {
				continue
			}
			seen = append(seen, o.CapacityType)
			per := o.MicroUSD / cpus
			if out.Cheapest == "" || per < out.PerCPU || per == out.PerCPU && strings.Compare(t.Name, out.Cheapest) < 0 {
				out.Cheapest, out.CapacityType, out.MicroUSD, out.PerCPU = t.Name, o.CapacityType, o.MicroUSD, per
			}
		}
	}
	return out, nil
}
