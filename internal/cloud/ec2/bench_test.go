package ec2

import (
	"testing"
)

// BenchmarkInstanceTypes is what each pass of the scheduler pays: nothing while
// nothing changed, the offerings after a shortage, and everything for a new class.
func BenchmarkInstanceTypes(b *testing.B) {
	w := newWorld(b)
	p := w.provider()
	class := w.resolve(p, newClass())
	if _, err := p.InstanceTypes(b.Context(), class); err != nil {
		b.Fatal(err)
	}
	run := func(name string, change func(n int)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				change(n)
				n++
				list, err := p.InstanceTypes(b.Context(), class)
				if err != nil || len(list) == 0 {
					b.Fatal(len(list), err)
				}
			}
		})
	}
	run("unchanged", func(int) {})
	run("shortage", func(n int) {
		p.unavailable.mark(offeringKey{"spot", "m5.large", string(rune('a' + n%26)), ""}, w.clock.Now())
		p.unavailable.mu.Lock()
		p.unavailable.changes++
		p.unavailable.mu.Unlock()
	})
	run("class", func(int) {
		p.mu.Lock()
		clear(p.types)
		p.mu.Unlock()
	})
}

// BenchmarkMarket is a start: every type, offering and price over the wire. The
// simulator's share is in it.
func BenchmarkMarket(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		p := w.provider()
		if _, err := p.loadMachines(b.Context()); err != nil {
			b.Fatal(err)
		}
		if _, err := p.loadPrices(b.Context()); err != nil {
			b.Fatal(err)
		}
		if _, err := p.loadSpotPrices(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
