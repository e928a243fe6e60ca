package forecast

import (
	"encoding/json"
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
	known := market{types: map[string][]cloud.InstanceType{}, choices: map[string]*plan.Choice{}}
	now := booked(head, judge)
	var then *book
	if base != nil {
		then = booked(*base, judge)
	}
	for _, c := range p.Changes {
		if c.Object.Kind != "NodePool" || c.Action == plan.Delete {
			continue
		}
		m := plan.Market{Pool: c.Object.Name}
		after, class, err := now.pool(c.Object.Name)
		if err != nil || after == nil {
			return p, err
		}
		var named bool
		if m.Region, named = regionOf(after); !named {
			guessed = true
		}
		if m.After, err = known.choice(after, class, m.Region); err != nil {
			return p, err
		}
		if base != nil && c.Action == plan.Update {
			before, class, err := then.pool(c.Object.Name)
			if err != nil {
				return p, err
			}
			if before != nil {
				if m.Before, err = known.choice(before, class, m.Region); err != nil {
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

// book is a bundle's pools and classes by name. Thousands of pools may have one class.
type book struct {
	judge   *admission.Judge
	pools   map[string]render.Object
	objects map[string]render.Object
	classes map[string]*aws.EC2NodeClass
}

func booked(b render.Bundle, judge *admission.Judge) *book {
	out := &book{judge: judge, pools: map[string]render.Object{}, objects: map[string]render.Object{}, classes: map[string]*aws.EC2NodeClass{}}
	for _, o := range b.Objects {
		switch o.GVK.Kind {
		case "NodePool":
			out.pools[o.Name] = o
		case "EC2NodeClass":
			out.objects[o.Name] = o
		}
	}
	return out
}

// pool reads a pool and its class. A class that isn't there is one without settings.
func (b *book) pool(name string) (*karpenter.NodePool, *aws.EC2NodeClass, error) {
	class := &aws.EC2NodeClass{}
	o, ok := b.pools[name]
	if !ok {
		return nil, class, nil
	}
	pool := &karpenter.NodePool{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(b.judge.Stored(o.Value), pool); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", o.ID(), err)
	}
	ref := pool.Spec.Template.Spec.NodeClassRef
	if ref == nil {
		return pool, class, nil
	}
	if read, ok := b.classes[ref.Name]; ok {
		return pool, read, nil
	}
	if o, ok := b.objects[ref.Name]; ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(b.judge.Stored(o.Value), class); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", o.ID(), err)
		}
	}
	b.classes[ref.Name] = class
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

// market knows what was worked out before: instance types by region and class, choices by
// those and a pool's requirements.
type market struct {
	types   map[string][]cloud.InstanceType
	choices map[string]*plan.Choice
}

// choice says what a pool may launch in a region with a subnet in every zone.
func (m market) choice(p *karpenter.NodePool, class *aws.EC2NodeClass, region string) (*plan.Choice, error) {
	spec, err := json.Marshal([]any{region, class.Spec})
	if err != nil {
		return nil, fmt.Errorf("name a class: %w", err)
	}
	wants, err := json.Marshal(p.Spec.Template.Spec.Requirements)
	if err != nil {
		return nil, fmt.Errorf("name requirements: %w", err)
	}
	key := string(spec) + string(wants)
	if c, ok := m.choices[key]; ok {
		return c, nil
	}
	types, ok := m.types[string(spec)]
	if !ok {
		everywhere := class.DeepCopy()
		everywhere.Status = aws.EC2NodeClassStatus{AMIs: []aws.AMI{{ID: "ami"}}}
		for i, id := range catalogue.Get().ZoneIDs(region) {
			// Which name an account has for a zone's ID nobody else knows.
			zone := region + string(rune('a'+i%26))
			everywhere.Status.Subnets = append(everywhere.Status.Subnets, aws.Subnet{ID: id, Zone: zone, ZoneID: id})
		}
		if types, err = ec2.NewFacts(region).InstanceTypes(everywhere); err != nil {
			return nil, err
		}
		m.types[string(spec)] = types
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
	m.choices[key] = out
	return out, nil
}
