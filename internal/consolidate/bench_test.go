package consolidate

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkSearch evaluates whole fleets: one that is packed well, and two of which
// pods have left.
func BenchmarkSearch(b *testing.B) {
	for _, tc := range []struct {
		pods int
		gone float64
	}{{500, 0.6}, {10_000, 0}, {12_500, 0.2}, {25_000, 0.6}} {
		b.Run(fmt.Sprintf("pods=%d/gone=%v", tc.pods, tc.gone), func(b *testing.B) {
			s, _ := fleet(b, tc.pods, linearTypes(16), tc.gone, rand.New(rand.NewPCG(1, 1)))
			p := problem(s, tc.pods)
			var got Result
			b.ReportAllocs()
			for b.Loop() {
				got = search(s, p)
			}
			b.ReportMetric(float64(len(p.Nodes)), "nodes")
			b.ReportMetric(float64(got.Before)/1e6, "usd/h-before")
			b.ReportMetric(float64(got.After)/1e6, "usd/h-after")
		})
	}
}
