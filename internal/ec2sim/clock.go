package ec2sim

import (
	"container/heap"
	"sync"
	"time"
)

// Clock is the simulator's time. Delays, prices and notices follow it alone.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, d after now. The returned function calls it off;
	// it does nothing if f has been called.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// NewClock returns a clock that runs speed times as fast as real time, from the
// real time of the call. A speed of 1 is real time.
func NewClock(speed float64) Clock {
	now := time.Now()
	return &runningClock{began: now, speed: speed}
}

type runningClock struct {
	began time.Time
	speed float64
}

func (c *runningClock) Now() time.Time {
	return c.began.Add(time.Duration(float64(time.Since(c.began)) * c.speed))
}

func (c *runningClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(time.Duration(float64(d)/c.speed), f)
	return func() { t.Stop() }
}

// ManualClock stands still until Advance is called.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	serial int
	timers timerHeap
}

// NewManualClock returns a clock that shows now.
func NewManualClock(now time.Time) *ManualClock { return &ManualClock{now: now} }

// Now returns the time that the clock shows.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc is as in Clock; f is called from Advance.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	t := &manualTimer{due: c.now.Add(d), serial: c.serial, f: f}
	heap.Push(&c.timers, t)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.f = nil
	}
}

// Advance moves the clock on by d, calling what falls due on the way in order of
// time, then of the calls to AfterFunc. It returns when all of it has returned.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for len(c.timers) > 0 && !c.timers[0].due.After(end) {
		t := heap.Pop(&c.timers).(*manualTimer)
		if t.due.After(c.now) {
			c.now = t.due
		}
		f := t.f
		t.f = nil
		if f == nil {
			continue
		}
		c.mu.Unlock()
		f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

type manualTimer struct {
	due    time.Time
	serial int
	f      func()
}

type timerHeap []*manualTimer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].serial < h[j].serial
	}
	return h[i].due.Before(h[j].due)
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(t any)   { *h = append(*h, t.(*manualTimer)) }
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	*h = old[:len(old)-1]
	return t
}
