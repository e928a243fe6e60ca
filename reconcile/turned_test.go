package reconcile_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// turnedClock names the file that says, in seconds, by how much the clock of a controller
// that runs as a child of a test is wrong.
const turnedClock = "COPPICE_TEST_CLOCK"

// turned is the time of a machine whose clock somebody turns: what it says jumps, and the
// monotonic reading, by which Go measures how long something takes, doesn't. Timers follow
// the latter on such a machine as well.
type turned struct {
	clock.RealClock
	by *atomic.Int64 // seconds
}

// newTurned follows the file until the process ends.
func newTurned(path string) turned {
	c := turned{by: &atomic.Int64{}}
	read := func() {
		text, err := os.ReadFile(path)
		if err != nil {
			return // the test is over
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			c.by.Store(n)
		}
	}
	read()
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			read()
		}
	}()
	return c
}

// Now implements clock.PassiveClock.
func (c turned) Now() time.Time { return turn(time.Now(), c.by.Load()) }

// Since implements clock.PassiveClock.
func (c turned) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// turn moves the wall time of a time that has a monotonic reading too, and not the latter.
// Package time has nothing for that. Of the first word of such a time the bits from 30 on
// count seconds; TestTurn tells should that ever change.
func turn(t time.Time, seconds int64) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(seconds << 30)
	return t
}

func TestTurn(t *testing.T) {
	now := time.Now()
	for _, by := range []time.Duration{0, time.Second, -time.Hour, 40 * time.Hour} {
		got := turn(now, int64(by/time.Second))
		if wall := got.Round(0).Sub(now.Round(0)); wall != by {
			t.Errorf("turned by %s, the wall time jumped by %s", by, wall)
		}
		if took := got.Sub(now); took != 0 {
			t.Errorf("turned by %s, the monotonic time jumped by %s", by, took)
		}
	}
}

// turn sets by how much the replica's clock is wrong, in this process of it and the next.
func (r *replica) turn(by time.Duration) {
	if err := os.WriteFile(r.clock, fmt.Append(nil, int64(by/time.Second)), 0o600); err != nil {
		r.t.Error(err)
	}
}
