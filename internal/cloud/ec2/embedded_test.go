package ec2

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// The catalogue's entries are read as EC2's answers are, but for what it doesn't hold.
func TestCatalogueMachines(t *testing.T) {
	newWorld(t)
	m, err := readMarket()
	if err != nil {
		t.Fatal(err)
	}
	list := fromCatalogue(catalogue.Get(), "us-west-2")
	if !list.byZoneID || list.everywhere {
		t.Errorf("zones are read as %t, %t", list.byZoneID, list.everywhere)
	}
	missing := cmpopts.IgnoreFields(machine{}, "encrypted", "efas", "enclaves", "nestedVirtualization", "neuronCores")
	if diff := cmp.Diff(m.machines.machines, list.machines, cmp.AllowUnexported(machine{}, device{}), missing); diff != "" {
		t.Errorf("machines (-EC2 +catalogue):\n%s", diff)
	}
	elsewhere := fromCatalogue(catalogue.Get(), "xx-nowhere-1")
	if got := elsewhere.soldIn("m5.large", nil, []string{"a", "b"}); len(elsewhere.machines) < 500 || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("in an unknown region %d types are sold, m5.large in %v", len(elsewhere.machines), got)
	}
}

// EC2 or Pricing that don't answer stop nobody: the catalogue serves until they do, and
// they are asked again, ever more rarely.
func TestCatalogueUntilTheFirstAnswer(t *testing.T) {
	w := newWorld(t)
	p := w.fresh(func(c *Config) { c.DisableDryRun = true })
	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:DescribeInstanceType*", "pricing:*", "ec2:DescribeSpotPriceHistory"}, Code: "UnauthorizedOperation"}})
	class := w.resolve(p, newClass())
	list, err := p.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := p.InstanceTypes(t.Context(), class); &list[0] != &again[0] {
		t.Error("the list was made anew although nothing changed")
	}
	offers := func(list []cloud.InstanceType, name string) (zones []string, spot int) {
		for _, it := range list {
			for _, o := range it.Offerings {
				if it.Name == name && o.CapacityType == cloud.OnDemand {
					zones = append(zones, o.Zone)
				} else if it.Name == name {
					spot++
				}
			}
		}
		return zones, spot
	}
	zones, spot := offers(list, "m5.large")
	if len(list) < 400 || len(zones) == 0 || spot != len(zones) {
		t.Errorf("%d types; m5.large in %v and as spot in %d zones", len(list), zones, spot)
	}
	w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))

	// An hour of questions costs few calls.
	w.sim.ResetCounters()
	for range 360 {
		w.clock.Advance(10 * time.Second)
		if _, err := p.InstanceTypes(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	quiesce(p)
	if n := w.calls("pricing:GetProducts"); n < 10 || n > 50 {
		t.Errorf("Pricing was asked %d times in an hour", n)
	}
	w.sim.EndEffects()
	w.clock.Advance(feedRetry)
	if _, err := p.InstanceTypes(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	quiesce(p)
	answered, err := p.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	if p.machines.version != 1 || p.prices.version != 1 || p.spots.version != 1 || &answered[0] == &list[0] {
		t.Errorf("versions %d, %d, %d after EC2 answers again", p.machines.version, p.prices.version, p.spots.version)
	}
	got, _ := offers(answered, "m5.large")
	if !slices.Equal(got, zones) {
		t.Errorf("m5.large is in %v, the catalogue said %v", got, zones)
	}
	// Old answers serve while new ones are missing, and are refreshed after half a day.
	w.sim.ResetCounters()
	w.clock.Advance(machinesEvery)
	if _, err := p.InstanceTypes(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	quiesce(p)
	if p.machines.version != 2 || p.prices.version != 2 || w.calls("ec2:DescribeInstanceTypes") == 0 {
		t.Errorf("after %s the versions are %d and %d", machinesEvery, p.machines.version, p.prices.version)
	}
}

// quiesce waits until no load is under way.
func quiesce(p *Provider) {
	wait := func(flight func() chan struct{}) {
		if f := flight(); f != nil {
			<-f
		}
	}
	wait(func() chan struct{} { p.machines.mu.Lock(); defer p.machines.mu.Unlock(); return p.machines.flight })
	wait(func() chan struct{} { p.prices.mu.Lock(); defer p.prices.mu.Unlock(); return p.prices.flight })
	wait(func() chan struct{} { p.spots.mu.Lock(); defer p.spots.mu.Unlock(); return p.spots.flight })
}
