package ec2

import (
	"cmp"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

// fromCatalogue is what the region sells as far as the embedded catalogue knows, for as
// long as EC2 hasn't said. What the catalogue doesn't hold a type is taken not to have:
// EFA, enclaves, nested virtualization, encryption in transit.
func fromCatalogue(facts *catalogue.Catalogue, region string) machineList {
	known := facts.ZoneIDs(region) != nil
	out := machineList{byZoneID: true, everywhere: !known, zones: map[string][]string{}}
	for _, t := range facts.Types() {
		price, sold := facts.Price(t.Name, region)
		zones := facts.SoldIn(t.Name, region)
		if known && (!sold || len(zones) == 0) {
			continue
		}
		m := machineOfFacts(t)
		m.onDemand, m.spot = !known || price.OnDemand > 0, !known || price.Spot > 0
		m.complete(facts)
		if m.arch == "" || m.enis <= 0 || m.addresses <= 0 {
			continue
		}
		out.machines = append(out.machines, m)
		out.zones[t.Name] = zones
	}
	return out
}

// machineOfFacts reads the catalogue's entry as machineOf reads EC2's.
func machineOfFacts(t catalogue.Type) machine {
	m := machine{
		name: t.Name, arch: kubeArch(t.Arch), vcpus: int64(t.VCPU), memoryMiB: t.MemoryMiB,
		hypervisor: t.Hypervisor, bareMetal: t.BareMetal, manufacturer: slug(t.Manufacturer), clockMHz: int64(t.ClockMHz),
		localGB: int64(t.NVMeDisks) * t.NVMeGB, networkMbps: int64(t.NetworkMbps),
		addresses: int64(t.IPv4PerENI), cards: int64(len(t.Cards)), enis: int64(t.ENIs),
		trackingConfigurable: t.Hypervisor == "nitro" || t.BareMetal,
	}
	if t.EBSMbps > 0 {
		m.ebsMbps = int64(max(t.EBSMaxMbps, t.EBSMbps))
	}
	if t.DefaultCard < len(t.Cards) {
		m.enis = int64(t.Cards[t.DefaultCard].ENIs)
	}
	if g := t.GPU; g.Count > 0 {
		m.gpu = device{name: slug(g.Name), manufacturer: slug(g.Manufacturer), count: int64(g.Count), memoryMiB: g.MemoryMiB}
	}
	if a := t.Accelerator; a.Count > 0 {
		m.accelerator = device{name: slug(a.Name), manufacturer: cmp.Or(slug(a.Manufacturer), "aws"), count: int64(a.Count)}
	}
	return m
}

// soldIn returns the names of those of the class's zones that sell the type, in the
// order of zones, which holds names by ID.
func (l *machineList) soldIn(instanceType string, zones map[string]string, names []string) []string {
	switch {
	case l.everywhere:
		return names
	case !l.byZoneID:
		return l.zones[instanceType]
	}
	var out []string
	for _, name := range names {
		for _, id := range l.zones[instanceType] {
			if zones[name] == id {
				out = append(out, name)
			}
		}
	}
	return out
}

// cataloguePrices are the on-demand prices that the catalogue holds for the region.
func cataloguePrices(facts *catalogue.Catalogue, region string) map[string]int64 {
	out := map[string]int64{}
	for _, t := range facts.Types() {
		price, ok := facts.Price(t.Name, region)
		if !ok || price.OnDemand == 0 {
			// Regions differ by some 20 %: good enough to order types by.
			price, ok = facts.Price(t.Name, "us-east-1")
		}
		if ok && price.OnDemand > 0 {
			out[t.Name] = price.OnDemand
		}
	}
	return out
}
