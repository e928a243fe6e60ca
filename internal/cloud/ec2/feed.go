package ec2

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// How soon a load that failed is tried again: at first almost at once while there is
	// no answer, then ever later; without haste while an old one serves.
	feedFirstRetry = 5 * time.Second
	feedRetry      = 5 * time.Minute
	// firstAnswer is how long the first answer is worth waiting for where something else
	// will do instead: a large region's types take some five seconds.
	firstAnswer = 10 * time.Second
)

// feed is one large answer that is refreshed while the old one goes on serving. A
// caller waits for the first load alone; if that fails, callers get its error at once
// while further loads are tried behind their backs.
type feed[T any] struct {
	clock clock.PassiveClock
	every time.Duration
	load  func(context.Context) (T, error)

	mu      sync.Mutex
	value   T
	version uint64 // 0 until the first answer
	next    time.Time
	flight  chan struct{} // closed when the load under way ends
	err     error
	// failures counts loads that failed since the last that didn't.
	failures int
	asked    time.Time // when somebody first asked
	loaded   time.Time // when value was
}

// soon is get for who has something else to go by: it gives up when the first answer is
// long in coming. ok is false if there is none.
func (f *feed[T]) soon(ctx context.Context) (value T, version uint64, ok bool) {
	f.mu.Lock()
	if f.asked.IsZero() {
		f.asked = f.clock.Now()
	}
	left := firstAnswer - f.clock.Since(f.asked)
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(left, 0))
	defer cancel()
	value, version, err := f.get(ctx)
	return value, version, err == nil
}

// age is when the answer was loaded, zero without one.
func (f *feed[T]) age() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loaded
}

// get returns the answer and its version, which changes with every refresh. It
// returns an error only while no load has succeeded yet.
func (f *feed[T]) get(ctx context.Context) (T, uint64, error) {
	f.mu.Lock()
	if f.flight == nil && !f.clock.Now().Before(f.next) {
		f.flight = make(chan struct{})
		go f.refresh(context.WithoutCancel(ctx))
	}
	value, version, flight, err := f.value, f.version, f.flight, f.err
	f.mu.Unlock()
	if version > 0 {
		return value, version, nil
	}
	if err != nil {
		return value, 0, err
	}
	select {
	case <-flight:
	case <-ctx.Done():
		return value, 0, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version == 0 {
		return f.value, 0, f.err
	}
	return f.value, f.version, nil
}

func (f *feed[T]) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*loadTimeout)
	defer cancel()
	value, err := f.load(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.failures++
	switch {
	case err == nil:
		f.value, f.version, f.failures, f.loaded = value, f.version+1, 0, f.clock.Now()
		f.next = f.clock.Now().Add(f.every)
	case f.version == 0:
		f.next = f.clock.Now().Add(min(feedFirstRetry<<min(f.failures-1, 10), f.every, feedRetry))
	default:
		f.next = f.clock.Now().Add(min(f.every, feedRetry))
	}
	close(f.flight)
	f.flight = nil
}
