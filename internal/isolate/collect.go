package isolate

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// roomyHeap is up to where the heap grows before garbage is collected, in bytes. An
	// evaluation keeps most of what it allocates, so that collecting at every doubling
	// of a small heap marks the same values over and over: a third of the time of
	// 1,000 NodePools, whose evaluation comes to some 110 MiB.
	roomyHeap = 240 << 20
	// leastPercent and mostPercent bound how far the heap may grow beyond what is in use.
	// The former is Go's default.
	leastPercent, mostPercent = 100, 1600
)

// collectRarely lets the heap grow to roomyHeap whatever of it is in use, and beyond that
// as usual. A limit that is set on memory holds all the same.
func collectRarely() {
	type sentinel struct{ next *sentinel }
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	// The cleanup of a value that nothing refers to runs after each collection.
	var again func(int)
	again = func(int) {
		metrics.Read(live)
		percent := mostPercent
		if n := live[0].Value.Uint64(); n > 0 && n < roomyHeap {
			percent = int((roomyHeap - n) * 100 / n)
		} else if n > 0 {
			percent = leastPercent
		}
		debug.SetGCPercent(max(leastPercent, min(mostPercent, percent)))
		runtime.AddCleanup(new(sentinel), again, 0)
	}
	again(0)
}
