package ec2

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// How soon a load that failed is tried again: at once, nearly, while there is no
// answer, and without haste while an old one serves.
const (
	feedFirstRetry = 5 * time.Second
	feedRetry      = 5 * time.Minute
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
	switch {
	case err == nil:
		f.value, f.version = value, f.version+1
		f.next = f.clock.Now().Add(f.every)
	case f.version == 0:
		f.next = f.clock.Now().Add(feedFirstRetry)
	default:
		f.next = f.clock.Now().Add(feedRetry)
	}
	close(f.flight)
	f.flight = nil
}
