package catalogue

import (
	"slices"
	"strings"
	"testing"
)

// TestContent holds the promises that other packages rely on.
func TestContent(t *testing.T) {
	c := Get()
	if got := len(c.Types()); got < 800 {
		t.Errorf("%d types, want at least 800", got)
	}
	if len(embedded) > 200<<10 {
		t.Errorf("embedded file has %d bytes, want at most 200 KiB", len(embedded))
	}
	if c.Date() == "" || len(c.Sources()) == 0 {
		t.Errorf("date %q, sources %q: want both", c.Date(), c.Sources())
	}
	if !slices.IsSortedFunc(c.Types(), func(a, b Type) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("types are not sorted by name")
	}
	for _, region := range []string{"us-west-2", "us-east-1", "eu-west-1"} {
		priced, spot := 0, 0
		for _, typ := range c.Types() {
			p, _ := c.Price(typ.Name, region)
			if p.OnDemand > 0 {
				priced++
			}
			if p.Spot > 0 {
				spot++
			}
			if p.SpotMin > p.SpotMax {
				t.Errorf("%s in %s: lowest spot price %d above the highest %d", typ.Name, region, p.SpotMin, p.SpotMax)
			}
		}
		if priced < 750 || spot < 700 {
			t.Errorf("%s: %d types with an on-demand and %d with a spot price, want at least 750 and 700", region, priced, spot)
		}
	}
	for _, typ := range c.Types() {
		enis := 0
		for _, card := range typ.Cards {
			enis += card.ENIs
		}
		switch {
		case typ.VCPU <= 0 || typ.MemoryMiB <= 0:
			t.Errorf("%s: %d vCPU, %d MiB", typ.Name, typ.VCPU, typ.MemoryMiB)
		case typ.Arch != "x86_64" && typ.Arch != "arm64":
			t.Errorf("%s: architecture %q", typ.Name, typ.Arch)
		case enis < 1 || typ.IPv4PerENI < 1 || typ.DefaultCard >= len(typ.Cards):
			t.Errorf("%s: %d interfaces of %d addresses, default card %d of %d", typ.Name, enis, typ.IPv4PerENI, typ.DefaultCard, len(typ.Cards))
		case typ.BareMetal != strings.Contains(typ.Name, "metal"):
			t.Errorf("%s: bare metal %t", typ.Name, typ.BareMetal)
		case typ.BareMetal != (typ.Hypervisor == ""):
			t.Errorf("%s: bare metal %t with hypervisor %q", typ.Name, typ.BareMetal, typ.Hypervisor)
		}
	}
}

// TestKnown compares a few types with what AWS publishes for them.
func TestKnown(t *testing.T) {
	tests := map[string]struct {
		why  string
		want func(Type) bool
	}{
		"m5.large": {"plain", func(t Type) bool {
			return t.VCPU == 2 && t.MemoryMiB == 8192 && t.ENIs == 3 && t.IPv4PerENI == 10 && t.NetworkMbps == 750
		}},
		"c6gd.xlarge": {"arm with a disk", func(t Type) bool {
			return t.Arch == "arm64" && t.NVMeDisks == 1 && t.NVMeGB == 237 && t.Manufacturer == "AWS"
		}},
		"g5.xlarge": {"one GPU", func(t Type) bool { return t.GPU == Accelerator{1, "NVIDIA", "A10G", 24576} && t.Accelerator.Count == 0 }},
		"inf2.xlarge": {"its chip is listed as a GPU by the source", func(t Type) bool {
			return t.GPU.Count == 0 && t.Accelerator == Accelerator{1, "AWS", "Inferentia2", 32768}
		}},
		"trn1.32xlarge": {"its chips are listed as Inferentia by the source", func(t Type) bool { return t.Accelerator == Accelerator{16, "AWS", "Trainium", 32768} }},
		"t3.micro":      {"burstable", func(t Type) bool { return t.Burstable && t.MemoryMiB == 1024 }},
		"m5.metal":      {"bare metal", func(t Type) bool { return t.BareMetal && t.Hypervisor == "" }},
		"p4d.24xlarge":  {"several network cards", func(t Type) bool { return len(t.Cards) == 4 && t.GPU.Count == 8 && t.NVMeDisks == 8 }},
	}
	for name, test := range tests {
		typ, ok := Get().Type(name)
		if !ok || !test.want(typ) {
			t.Errorf("%s (%s): got %+v, found %t", name, test.why, typ, ok)
		}
	}
	if p, ok := Get().Price("m5.large", "us-west-2"); !ok || p.OnDemand != 96000 {
		t.Errorf("m5.large in us-west-2: %+v, want 96000 millionths of a dollar", p)
	}
	if got := Get().SoldIn("m5.large", "eu-west-1"); !slices.Equal(got, []string{"euw1-az1", "euw1-az2", "euw1-az3"}) {
		t.Errorf("m5.large sold in %q", got)
	}
	if _, ok := Get().Type("m5.lrage"); ok {
		t.Error("m5.lrage found")
	}
	if _, ok := Get().Price("m5.large", "xx-west-1"); ok {
		t.Error("price in an unknown region")
	}
}

func TestNearest(t *testing.T) {
	tests := map[string]struct {
		why  string
		want []string
	}{
		"m5.lrage":   {"two letters swapped", []string{"m5.large"}},
		"m5large":    {"no dot", []string{"m5.large"}},
		"c6i.2xlage": {"a letter missing", []string{"c6i.2xlarge"}},
		"m5.large":   {"nothing to correct", []string{"m5.large"}},
		"bananas":    {"nothing near", nil},
	}
	for name, test := range tests {
		got := Get().Nearest(name, 3)
		if len(test.want) == 0 && len(got) != 0 || len(test.want) > 0 && (len(got) == 0 || got[0] != test.want[0]) {
			t.Errorf("Nearest(%q) (%s) = %q, want %q first", name, test.why, got, test.want)
		}
	}
	if got := Get().NearestFamily("m5x"); len(got) == 0 || !slices.Contains(got, "m5n") {
		t.Errorf("NearestFamily(m5x) = %q, want m5n among them", got)
	}
	if got := Get().NearestFamily("c5"); !slices.Equal(got, []string{"c5"}) {
		t.Errorf("NearestFamily(c5) = %q, want c5 alone", got)
	}
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(embedded); err != nil {
			b.Fatal(err)
		}
	}
}
