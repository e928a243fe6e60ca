package ec2

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/cloud"
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
		p.unavailable.mark(offeringKey{"spot", "m5.large", string(rune('a' + n%26)), "", ""}, w.clock.Now())
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
		p := w.fresh()
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

// BenchmarkLaunch starts 100 instances at once, each from 60 types in four zones. The
// simulator's share is in the time; calls counts all that EC2 was asked.
func BenchmarkLaunch(b *testing.B) {
	w := newWorld(b)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.clock.Advance(2 * time.Minute)
	all, err := p.InstanceTypes(b.Context(), class)
	if err != nil {
		b.Fatal(err)
	}
	n, calls := 0, 0
	for b.Loop() {
		w.sim.ResetCounters()
		var wg sync.WaitGroup
		for range 100 {
			n++
			claim := w.claim(fmt.Sprint(n))
			wg.Go(func() {
				req := cloud.LaunchRequest{Claim: claim, Class: class, Token: string(claim.UID), Types: all, Labels: claim.Labels}
				if _, err := p.Launch(b.Context(), req); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		for _, c := range w.sim.Counters() {
			calls += c.Calls
		}
	}
	b.ReportMetric(float64(calls)/float64(n), "calls/launch")
}
