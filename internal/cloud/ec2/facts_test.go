package ec2

import (
	"encoding/json"
	"testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestMarket: who trades at the prices that a provider tells, sent as JSON, pays what the
// provider does, for spot in each zone, and not what the catalogue says.
func TestMarket(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	told, err := p.Market(t.Context())
	if err != nil || told.Region != "us-west-2" || !told.At.Equal(began) {
		t.Fatalf("%v: %s at %s", err, told.Region, told.At)
	}
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	var read cloud.Market
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	type offer struct{ kind, capacity, zone string }
	prices := func(list func(*aws.EC2NodeClass) ([]cloud.InstanceType, error)) map[offer]int64 {
		t.Helper()
		types, err := list(class)
		if err != nil {
			t.Fatal(err)
		}
		out := map[offer]int64{}
		for _, k := range types {
			for _, o := range k.Offerings {
				out[offer{k.Name, o.CapacityType, o.Zone}] = o.MicroUSD
			}
		}
		return out
	}
	facts := NewFacts("us-west-2")
	plain := prices(facts.InstanceTypes)
	facts.Trade(read)
	traded := prices(facts.InstanceTypes)
	spot, otherwise := 0, 0
	for o, want := range prices(func(c *aws.EC2NodeClass) ([]cloud.InstanceType, error) { return p.InstanceTypes(t.Context(), c) }) {
		if traded[o] != want {
			t.Errorf("%v costs %d, traded at %d", o, want, traded[o])
		}
		if o.capacity == karpenter.CapacityTypeSpot {
			spot++
			if plain[o] != want {
				otherwise++
			}
		}
	}
	t.Logf("%d bytes; the catalogue is wrong about %d of %d offerings of spot", len(text), otherwise, spot)
	if spot == 0 || otherwise == 0 {
		t.Error("the catalogue's prices are the provider's: the test shows nothing")
	}
}

// TestFactsSize: nodes are as large as the controller's flags make them.
func TestFactsSize(t *testing.T) {
	w := newWorld(t)
	overhead := 0.2
	p := w.provider(func(c *Config) { c.MemoryOverhead, c.ReservedENIs = &overhead, 1 })
	class := w.resolve(p, newClass())
	want, err := p.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	facts := NewFacts("us-west-2")
	facts.Size(overhead, 1)
	got, err := facts.InstanceTypes(class)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"m5.large", "c6g.xlarge"} {
		find := func(list []cloud.InstanceType) (t cloud.InstanceType) {
			for _, x := range list {
				if x.Name == kind {
					t = x
				}
			}
			return t
		}
		a, b := find(want), find(got)
		if a.Name == "" || a.Capacity.Memory().Cmp(*b.Capacity.Memory()) != 0 || a.Capacity.Pods().Cmp(*b.Capacity.Pods()) != 0 {
			t.Errorf("%s: %v, want %v", kind, b.Capacity, a.Capacity)
		}
	}
}
