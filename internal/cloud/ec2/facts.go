package ec2

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
)

// Facts says what classes could launch as far as the embedded catalogue knows, and a
// market that is given. It asks nobody, and takes everything to be available. It is for
// one caller at a time.
type Facts struct {
	p      *Provider
	market *cloud.Market
}

// NewFacts returns what is known of a region.
func NewFacts(region string) *Facts {
	return &Facts{p: &Provider{region: region, clock: clock.RealClock{}, overheadPPM: defaultMemoryOverhead * 1e6}}
}

// Trade takes over prices that a provider knows.
func (f *Facts) Trade(m cloud.Market) { f.market = &m }

// Size takes over what a provider is told about the size of nodes: the part of memory that
// a guest never sees, 0.075 by default, and the network interfaces that pods don't get.
func (f *Facts) Size(memoryOverhead float64, reservedENIs int) {
	f.p.overheadPPM, f.p.cfg.ReservedENIs = int64(memoryOverhead*1e6+0.5), reservedENIs
}

// Observe takes over what a node of the type and image has.
func (f *Facts) Observe(instanceType, imageID string, capacity corev1.ResourceList) {
	f.p.Observe(instanceType, imageID, capacity)
}

// InstanceTypes lists what the class can launch in the zones that its status names,
// sorted by name. Without a market spot costs its average over all zones.
func (f *Facts) InstanceTypes(class *aws.EC2NodeClass) ([]cloud.InstanceType, error) {
	facts := catalogue.Get()
	sold := fromCatalogue(facts, f.p.region)
	memory, _ := f.p.memory.all(f.p.clock.Now())
	base, err := f.p.baseTypes(class, sold.machines, memory)
	if err != nil {
		return nil, fmt.Errorf("list instance types of EC2NodeClass %s: %w", class.Name, err)
	}
	if m := f.market; m != nil {
		return withOfferings(base, offeringInput{class: class, sold: sold, prices: m.OnDemand, spots: pooled(m.Spot)}), nil
	}
	prices := cataloguePrices(facts, f.p.region)
	spots := map[spotPool]int64{}
	for _, t := range facts.Types() {
		price, ok := facts.Price(t.Name, f.p.region)
		if !ok || price.Spot == 0 {
			continue
		}
		for _, s := range class.Status.Subnets {
			spots[spotPool{t.Name, s.Zone}] = price.Spot
		}
	}
	return withOfferings(base, offeringInput{class: class, sold: sold, prices: prices, spots: spots}), nil
}

// pooled are spot prices by pool, nil if none is known.
func pooled(by map[string]map[string]int64) map[spotPool]int64 {
	if by == nil {
		return nil
	}
	out := map[spotPool]int64{}
	for name, zones := range by {
		for zone, price := range zones {
			out[spotPool{name, zone}] = price
		}
	}
	return out
}
